"""A cell as SVG, and the outlines of cells that are one block."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from memdesc.picture.svg import COLOURS, FAINT, HIGHLIGHT, INK, RULE, edge, element, hatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memdesc.picture.cells import Cell

__all__ = ["CELL_HEIGHT", "outline", "paint_cell"]

# pixels of a cell without a note
CELL_HEIGHT = 22


def paint_cell(cell: Cell, x: int, y: int, size: tuple[int, int]) -> str:
    """Return a cell of (width, height): its number, its note below, its text under the pointer."""
    width, height = size
    box = {"x": x, "y": y, "width": width, "height": height}
    parts = [element("title", escape(cell.hover, quote=False))]
    if cell.run is None:
        look = {"class_": "memdesc-rule memdesc-none", "fill": "#ffffff", "stroke": RULE}
        parts.append(element("rect", stroke_dasharray="2 2", **look, **box))
        ink = {"class_": "memdesc-faint", "fill": FAINT}
    elif cell.is_padding:
        look = {"class_": "memdesc-rule memdesc-void", "fill": "#f1f2f4", "stroke": RULE}
        parts += [element("rect", stroke_width=0.5, **look, **box), hatch(x, y, width, height)]
        ink = {"class_": "memdesc-ink", "fill": INK}
    else:
        look = {"fill": _colour(cell.run), "stroke": "#ffffff"}
        parts.append(element("rect", stroke_width=0.5, **look, **box))
        ink = {"fill": INK}
    middle = f"{x + width / 2:g}"
    base = f"{y + 12 if cell.note else y + height / 2 + 4:g}"
    texts = ((cell.number, base, 11), (cell.note, f"{y + height - 4}", 8))
    parts += [
        element("text", escape(text), x=middle, y=at, font_size=size, **ink)
        for text, at, size in texts
        if text
    ]
    if cell.is_highlighted:
        inner = {"x": x + 1.5, "y": y + 1.5, "width": width - 3, "height": height - 3}
        parts.append(element("rect", fill="none", stroke=HIGHLIGHT, stroke_width=3, **inner))
    return element("g", *parts, class_="memdesc-cell", text_anchor="middle")


def _colour(run: int) -> str:
    # shifted by one in each round: otherwise rows of 7, 14, 28 or 56 runs would form columns
    return COLOURS[(run + run // len(COLOURS)) % len(COLOURS)]


def outline(
    cells: Mapping[tuple[int, int], Cell], xs: list[int], ys: list[int], size: tuple[int, int]
) -> str:
    """Return the edges of the blocks of cells, which are given by column and row."""
    width, height = size

    def tile(column: int, row: int) -> int | None:
        cell = cells.get((column, row))
        return None if cell is None else cell.tile

    lines: dict[str, None] = {}
    for (column, row), cell in cells.items():
        if cell.tile is None:
            continue
        x, y = xs[column], ys[row]
        for neighbour, line in (
            (tile(column - 1, row), f"M{x} {y}v{height}"),
            (tile(column + 1, row), f"M{x + width} {y}v{height}"),
            (tile(column, row - 1), f"M{x} {y}h{width}"),
            (tile(column, row + 1), f"M{x} {y + height}h{width}"),
        ):
            if neighbour != cell.tile:
                lines[line] = None
    return edge("path", d="".join(lines)) if lines else ""
