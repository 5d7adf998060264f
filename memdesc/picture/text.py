"""The text form of a picture, for terminals."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from memdesc.picture.memory import CACHE_LINE, Lines

if TYPE_CHECKING:
    from memdesc.picture.cells import Cell, Cells
    from memdesc.picture.grid import Grid

# the most characters of a line of panels
_MAX_WIDTH = 100


def grid_text(grid: Grid) -> list[str]:
    """Write the grid with as many panels side by side as fit; `[padding]`, `<highlighted>`."""
    lines: list[str] = []
    beside: list[list[str]] = []
    for k, panel in enumerate(grid.panels):
        written = _panel_text(grid, panel)
        is_full = sum(len(rows[0]) + 2 for rows in [*beside, written]) > _MAX_WIDTH
        before = grid.panels[k - 1]
        if beside and (
            is_full
            or grid.skips(k)
            or grid.block(panel) != grid.block(before)
            or panel[:-1] != before[:-1]
        ):
            lines += _side_by_side(beside)
            lines += ["…"] if grid.skips(k) else []
            beside = []
        beside.append(written)
    return lines + _side_by_side(beside)


def _panel_text(grid: Grid, panel: tuple[int, ...]) -> list[str]:
    """Return the lines of a panel, all of the same length."""
    width = max(len(grid.cells.widest) + 2, 4)
    heads = _gapped(grid.columns, [str(i) for i in grid.columns])
    rows = []
    for row in grid.rows:
        found = [grid.cell(panel, row, column) for column in grid.columns]
        texts = [
            "" if cell is None else _marked(cell, cell.number, f"{cell.number} ") for cell in found
        ]
        name = "" if grid.row is None else str(row)
        rows.append(
            f"{name:>3} " + "".join(f"{text:>{width}}" for text in _gapped(grid.columns, texts))
        )
    lines = [grid.caption(panel)] if panel else []
    lines += [
        " " * 4 + "".join(f"{head:>{width - 1}} " for head in heads),
        *_gapped(grid.rows, rows),
    ]
    wide = max(map(len, lines))
    return [f"{line:{wide}}" for line in lines]


def _side_by_side(panels: list[list[str]]) -> list[str]:
    return ["  ".join(rows).rstrip() for rows in zip(*panels, strict=True)]


def memory_text(cells: Cells, lines: Lines) -> list[str]:
    """Write the memory line by line; a bar marks the start of a cache line."""
    shown = [[cells.at_offset(offset) for offset in line] for line in lines.offsets()]
    return cells_text(lines, shown, cells.dtype.bits)


def cells_text(
    lines: Lines, shown: list[list[Cell]], bits: int, *, of_number: bool = False
) -> list[str]:
    """Write cells line by line: their notes, or their numbers if `of_number`."""
    texts = [[_cell_text(cell, of_number=of_number) for cell in row] for row in shown]
    width = max(len(text) for row in texts for text in row)
    rows = []
    for line, row in zip(lines.offsets(), texts, strict=True):
        marks = ["|" if not offset * bits % (8 * CACHE_LINE) else " " for offset in line]
        written = [f"{mark}{text:>{width}}" for mark, text in zip(marks, row, strict=True)]
        rows.append("".join(_gapped(lines.columns[: len(line)], written)))
    heads = [
        lines.pixels.row_name(row) if lines.pixels else str(start)
        for row, start in zip(lines.rows, lines.starts(), strict=True)
    ]
    wide = max(6, *map(len, heads))
    return _gapped(
        lines.rows, [f"{head:>{wide}} {row}" for head, row in zip(heads, rows, strict=True)]
    )


def _cell_text(cell: Cell, *, of_number: bool) -> str:
    if cell.run is None:
        return "-"
    note = cell.number if of_number or cell.is_padding else cell.note
    return _marked(cell, note, note)


def _marked(cell: Cell, text: str, plain: str) -> str:
    """Return the text of a cell in brackets if it is highlighted or padding, otherwise `plain`."""
    if cell.is_highlighted:
        return f"<{text}>"
    return f"[{text}]" if cell.is_padding else plain


def _gapped(indices: list[int], texts: list[str]) -> list[str]:
    """Return the strings of some indices, with an ellipsis where indices are left out."""
    result = texts[:1]
    for (before, after), text in zip(pairwise(indices), texts[1:], strict=True):
        result += ["…", text] if after != before + 1 else [text]
    return result
