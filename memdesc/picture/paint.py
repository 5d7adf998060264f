"""One cell, and the outlines round cells that belong together."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from memdesc.picture.svg import COLOURS, INK, element, hatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memdesc.picture.cells import Cell

__all__ = ["CELL_HEIGHT", "outline", "paint_cell"]

CELL_HEIGHT = 22


def paint_cell(cell: Cell, x: int, y: int, size: tuple[int, int]) -> str:
    """Return a cell of (width, height): its number, its note below, and what shows under the pointer."""
    width, height = size
    box = {"x": x, "y": y, "width": width, "height": height}
    ink = {"fill": INK}
    parts = [element("title", escape(cell.hover, quote=False))]
    if cell.run is None:
        parts.append(
            element(
                "rect",
                class_="memdesc-rule memdesc-none",
                fill="#ffffff",
                stroke="#9aa0a6",
                stroke_dasharray="2 2",
                **box,
            )
        )
        ink = {"class_": "memdesc-faint", "fill": "#5f6368"}
    elif cell.is_padding:
        parts.append(
            element(
                "rect",
                class_="memdesc-rule memdesc-void",
                fill="#f1f2f4",
                stroke="#9aa0a6",
                stroke_width=0.5,
                **box,
            )
        )
        parts.append(hatch(x, y, width, height))
        ink = {"class_": "memdesc-ink", "fill": INK}
    else:
        parts.append(
            element("rect", fill=_colour(cell.run), stroke="#ffffff", stroke_width=0.5, **box)
        )
    middle = f"{x + width / 2:g}"
    base = f"{y + 12 if cell.note else y + height / 2 + 4:g}"
    written = ((cell.number, base, 11), (cell.note, f"{y + height - 4}", 8))
    parts += [
        element("text", escape(text), x=middle, y=at, font_size=size, **ink)
        for text, at, size in written
        if text
    ]
    return element("g", *parts, class_="memdesc-cell", text_anchor="middle")


def _colour(run: int) -> str:
    # one further in each round: rows of 7, 14, 28 or 56 runs would show as columns
    return COLOURS[(run + run // len(COLOURS)) % len(COLOURS)]


def outline(
    cells: Mapping[tuple[int, int], Cell], xs: list[int], ys: list[int], size: tuple[int, int]
) -> str:
    """Return the edges of the blocks that cells, given by column and row, belong to."""
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
    return (
        element(
            "path",
            d="".join(lines),
            class_="memdesc-edge",
            stroke="#1a1a1a",
            stroke_width=1.5,
            fill="none",
        )
        if lines
        else ""
    )
