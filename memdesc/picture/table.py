"""Cells in rows and columns, as SVG and as text: a panel of the grid, or a memory line by line."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from itertools import pairwise

from memdesc.picture.cells import Cell
from memdesc.picture.svg import ACCENT, element, label, outline, paint_cell, terminal, text_width
from memdesc.tuples import NamedTuple

# Pixels: above the cells, for headings; where indices are left out; right of the headings of rows.
_ABOVE, _GAP, _BESIDE = 32, 16, 15


class Table(NamedTuple):
    """What is drawn: indices of rows and columns, with a gap where some are left out.

    A row may have fewer cells than there are columns; a cell may be None. `heads` are those of
    rows, in pictures and in text; `tops` those of columns, and `groups` those of `span` columns
    from the given one. `marks` has the row and column of cells that start a cache line, or is None
    where these do not matter.
    """

    rows: list[int]
    columns: list[int]
    cells: list[list[Cell | None]]
    heads: list[tuple[str, str]]
    tops: list[str]
    caption: str = ""
    groups: dict[int, str] = {}  # noqa: RUF012 - nothing changes it
    span: int = 1
    marks: AbstractSet[tuple[int, int]] | None = None

    @property
    def shown(self) -> list[Cell]:
        """All cells."""
        return [cell for row in self.cells for cell in row if cell]

    @property
    def above(self) -> int:
        """Pixels above the cells."""
        return _ABOVE if self.caption or self.groups else _ABOVE // 2

    @property
    def gutter(self) -> int:
        """Pixels left of the cells."""
        return max(text_width(head) for head, _ in self.heads) + _BESIDE

    def size(self, cell: tuple[int, int]) -> tuple[int, int]:
        """Return the width and height in pixels, with headings, given those of a cell."""
        width, height = (
            _starts(indices, length)[1]
            for indices, length in zip((self.columns, self.rows), cell, strict=True)
        )
        return self.gutter + max(width, text_width(self.caption)), self.above + height

    def paint(self, left: int, top: int, size: tuple[int, int]) -> list[str]:
        """Return the SVG elements of headings, cells, outlines of blocks, marks and gaps."""
        width, height = size
        (xs, _), (ys, _) = _starts(self.columns, width), _starts(self.rows, height)
        xs = [left + self.gutter + x for x in xs]
        ys = [top + self.above + y for y in ys]
        base = (height + 8) // 2  # of a text in the middle of a row
        parts = [label(xs[0], ys[0] - 18, self.caption, style="bold")] if self.caption else []
        tops = zip(xs, self.tops, strict=True)
        parts += [_faint(x + width / 2, ys[0] - 4, text) for x, text in tops]
        groups = (
            (xs[column] + self.span * width / 2, text) for column, text in self.groups.items()
        )
        parts += [_faint(x, ys[0] - 18, text) for x, text in groups]
        parts += [
            label(xs[0] - 6, y + base, head, anchor="end", style="faint")
            for y, (head, _) in zip(ys, self.heads, strict=True)
            if head
        ]
        placed = {
            (c, r): cell
            for r, row in enumerate(self.cells)
            for c, cell in enumerate(row)
            if cell is not None
        }
        parts += [paint_cell(cell, xs[c], ys[r], size) for (c, r), cell in placed.items()]
        tiles = [cell.tile for cell in placed.values()]
        # if blocks have one cell in each panel, the frames of panels show them
        if self.marks is not None or len(set(tiles)) < len(tiles):
            parts.append(outline(placed, xs, ys, size))
        if self.marks:
            path = "".join(f"M{xs[c]} {ys[r] - 1}v{height + 2}" for r, c in sorted(self.marks))
            parts.append(element("path", d=path, stroke=ACCENT, stroke_width=3.5, fill="none"))
        parts += [_faint(xs[k] - _GAP / 2, ys[0] + base, "⋯") for k in _gaps(self.columns)]
        return parts + [_faint(xs[0] + 12, ys[k] - 4, "⋮") for k in _gaps(self.rows)]

    def text(self, write: Callable[[Cell], str], width: int = 0, head: int = 0) -> list[str]:
        """Return lines of text, with the colours of a terminal.

        `write` returns the text of a cell. Cells are as wide as the widest, or have the given
        width, and headings likewise.
        """
        texts = [["" if cell is None else write(cell) for cell in row] for row in self.cells]
        width = width or max(len(text) for row in texts for text in row)
        head = head or max(6, *(len(head) for _, head in self.heads))
        lines = []
        for r, (row, cells) in enumerate(zip(texts, self.cells, strict=True)):
            marks = (
                "" if self.marks is None else " |"[(r, c) in self.marks] for c in range(len(row))
            )
            parts = [
                mark + terminal(cell, f"{text:>{width}}")
                for mark, text, cell in zip(marks, row, cells, strict=True)
            ]
            gap = "…" if self.marks is not None else f"{'…':>{width}}"
            line = "".join(gapped(self.columns[: len(parts)], parts, gap))
            lines.append(f"{self.heads[r][1]:>{head}} {line}")
        return gapped(self.rows, lines)


def bracketed(cell: Cell, text: str, after: str = "") -> str:
    """Return the text of a cell in brackets if it is highlighted or padding."""
    if cell.is_highlighted:
        return f"<{text}>"
    return f"[{text}]" if cell.is_padding else f"{text}{after}"


def gapped(indices: list[int], texts: list[str], gap: str = "…") -> list[str]:
    """Return the strings of some indices, with an ellipsis where indices are left out."""
    gaps = {*_gaps(indices)}
    return [part for k, text in enumerate(texts) for part in ([gap, text] if k in gaps else [text])]


def _gaps(indices: list[int]) -> list[int]:
    """Return the numbers of the indices before which others are left out."""
    return [k for k, (before, i) in enumerate(pairwise(indices), 1) if i != before + 1]


def _starts(indices: list[int], size: int) -> tuple[list[int], int]:
    """Return where each index starts, and where the last one ends; in pixels."""
    gaps = _gaps(indices)
    starts = [k * size + _GAP * sum(gap <= k for gap in gaps) for k in range(len(indices))]
    return starts, starts[-1] + size


def _faint(x: float, y: float, text: str) -> str:
    return label(x, y, text, anchor="middle", style="faint")
