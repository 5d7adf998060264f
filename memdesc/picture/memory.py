"""The memory side of a picture: offsets line by line, cache lines marked; an image as its pixels."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from memdesc.picture.cells import LANES, visible
from memdesc.picture.grid import spread
from memdesc.picture.paint import outline, paint_cell
from memdesc.picture.svg import ACCENT, element, label

if TYPE_CHECKING:
    from collections.abc import Callable

    from memdesc.picture.cells import Cell, Cells

__all__ = ["CACHE_LINE", "Lines", "Strip", "lines_of", "pixel_lines"]

CACHE_LINE = 64
_MOST_LINES, _MOST_PIXELS, _WIDEST, _USUAL = 20, 6, 16, 8
_HEIGHT, _ABOVE, _GAP = 26, 26, 16


class Lines(NamedTuple):
    """Which offsets below `stop` are shown: line k starts at `k * length`; in an image a line is a row of pixels."""

    stop: int
    length: int
    rows: list[int]
    columns: list[int]
    lanes: int = 0

    def starts(self) -> list[int]:
        """Return the offset that each shown line starts with."""
        return [row * self.length for row in self.rows]

    def offsets(self) -> list[list[int]]:
        """Return the offsets of each shown line."""
        return [
            [start + column for column in self.columns if start + column < self.stop]
            for start in self.starts()
        ]

    def heads(self, bits: int) -> list[str]:
        """Return what each shown line is called."""
        return [
            f"y {row}" if self.lanes else f"byte {start * bits // 8}"
            for row, start in zip(self.rows, self.starts(), strict=True)
        ]


def lines_of(cells: Cells) -> Lines:
    """Choose lines of a buffer: whole blocks, of 8 to 16 elements where that is possible."""
    layout = cells.layout
    tile = 1
    for block in layout.inner():
        tile *= block.extent
    low = max(
        layout.offset0 + sum(min((block.extent - 1) * block.stride, 0) for block in layout.blocks),
        0,
    )
    length = _USUAL if tile < _WIDEST and layout.last - low < _USUAL * _MOST_LINES // 2 else _WIDEST
    if tile < _WIDEST and length % tile:
        length = _WIDEST // tile * tile
    first = low // length
    count = layout.last // length + 1 - first
    rows = [first + row for row in visible(count, count, _MOST_LINES)]
    if count > _MOST_LINES and layout.last - low >= 2 * layout.padded_nelems:
        rows = _held(cells, length)
    return Lines(layout.last + 1, length, rows, list(range(length)))


def _held(cells: Cells, length: int) -> list[int]:
    """Choose lines of a buffer of many gaps: the first ones that hold elements, and the last one."""
    layout = cells.layout
    rows = {layout.last // length}
    # the starts of long loops do
    for index in product(*(range(min(block.extent, 16 * length)) for block in cells.order)):
        rows.add(
            (
                layout.offset0
                + sum(i * block.stride for i, block in zip(index, cells.order, strict=True))
            )
            // length
        )
        if len(rows) == _MOST_LINES:
            break
    return sorted(rows)


def pixel_lines(cells: Cells, width: int, channels: int) -> Lines:
    """Choose lines of an image: its rows, some of the pixels of each."""
    height = (cells.layout.last + 1) // (width * channels)
    shown = visible(width, width, _MOST_PIXELS if channels > 1 else _WIDEST)
    columns = [pixel * channels + lane for pixel in shown for lane in range(channels)]
    return Lines(
        cells.layout.last + 1,
        width * channels,
        visible(height, height, _MOST_LINES),
        columns,
        channels,
    )


class Strip:
    """Lines of cells, from a corner of the picture on.

    `at_offset` says what lies at an offset; `right` and `bottom` are where it ends.
    """

    def __init__(
        self, lines: Lines, at_offset: Callable[[int], Cell], bits: int, left: int, top: int
    ) -> None:
        self.lines = lines
        self.cells = [[at_offset(offset) for offset in line] for line in lines.offsets()]
        self.heads = lines.heads(bits)
        shown = [cell for row in self.cells for cell in row]
        self.cell_width = max(
            26,
            *(7 * len(cell.number) + 8 for cell in shown),
            *(5 * len(cell.note) + 6 for cell in shown),
        )
        self.start, self.top = left + 6 * max(map(len, self.heads)) + 8, top + _ABOVE
        xs, x_gaps, width = spread(lines.columns, self.cell_width, _GAP)
        ys, y_gaps, height = spread(lines.rows, _HEIGHT, _GAP)
        self.xs, self.ys = [self.start + x for x in xs], [self.top + y for y in ys]
        self.x_gaps, self.y_gaps = [self.start + x for x in x_gaps], [self.top + y for y in y_gaps]
        self.right, self.bottom = self.start + width, self.top + height
        self.marks = [
            f"M{x} {y - 1}v{_HEIGHT + 2}"
            for y, line in zip(self.ys, lines.offsets(), strict=True)
            for x, offset in zip(self.xs, line, strict=False)  # the last line may be shorter
            if not offset * bits % (8 * CACHE_LINE)
        ]

    def paint(self) -> list[str]:
        """Return everything."""
        parts = self._column_heads()
        parts += [
            label(self.start - 6, y + 16, head, size=9, anchor="end", faint=True)
            for y, head in zip(self.ys, self.heads, strict=True)
        ]
        found: dict[tuple[int, int], Cell] = {}
        for r, (y, row) in enumerate(zip(self.ys, self.cells, strict=True)):
            for c, (x, cell) in enumerate(zip(self.xs, row, strict=False)):
                found[c, r] = cell
                parts.append(paint_cell(cell, x, y, (self.cell_width, _HEIGHT)))
        parts.append(outline(found, self.xs, self.ys, (self.cell_width, _HEIGHT)))
        if self.marks:
            parts.append(
                element("path", d="".join(self.marks), stroke=ACCENT, stroke_width=3.5, fill="none")
            )
        parts += [
            label(gap + _GAP / 2, self.ys[0] + 17, "⋯", anchor="middle", faint=True)
            for gap in self.x_gaps
        ]
        parts += [
            label(self.start + 8, gap + 12, "⋮", anchor="middle", faint=True) for gap in self.y_gaps
        ]
        return parts

    def _column_heads(self) -> list[str]:
        """Return what stands above the columns: offsets in a line, or pixels and their lanes."""
        parts = []
        lanes, width = self.lines.lanes, self.cell_width
        for x, column in zip(self.xs, self.lines.columns, strict=True):
            name = LANES[column % lanes] if lanes else f"+{column}"
            parts.append(
                label(x + width / 2, self.top - 4, name, size=8, anchor="middle", faint=True)
            )
            if lanes and not column % lanes:
                parts.append(
                    label(
                        x + lanes * width / 2,
                        self.top - 14,
                        f"x {column // lanes}",
                        size=9,
                        anchor="middle",
                        faint=True,
                    )
                )
        return parts
