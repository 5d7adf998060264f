"""The memory half of a picture: offsets line by line, or an image's rows of pixels."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

from memdesc.picture.cells import LANES, Cell, Cells, Pixels, visible_indices
from memdesc.picture.grid import FULL, Limits, place
from memdesc.picture.svg import ACCENT, cell_width, element, label, outline, paint_cell, text_width
from memdesc.swizzle import swizzled

# bytes, on nearly all processors
CACHE_LINE = 64
# What fits on a page: four-lane pixels per line, and elements per line, at most and usually.
_MAX_PIXELS, _MAX_LENGTH, _LENGTH = 6, 16, 8
# A buffer with at most this many lines of the usual length gets such lines.
_FEW_LINES = 10
# Pixels: height of a cell, of the headings above the cells, of a gap; around a note in a cell.
_HEIGHT, _ABOVE, _GAP, _AROUND_NOTE = 30, 32, 16, 6
# How many lines each loop is followed for, to find lines with elements.
_FOLLOWED = 16


class Lines(NamedTuple):
    """The offsets that are shown, all below `stop`.

    Line k starts at offset `k * length`; `rows` are the visible lines, `columns` the visible
    offsets in a line. In an image a line is a row of its `pixels`.
    """

    stop: int
    length: int
    rows: list[int]
    columns: list[int]
    pixels: Pixels | None = None

    @property
    def lanes(self) -> int:
        """Lanes of a pixel; 0 in a buffer."""
        return self.pixels.channels if self.pixels else 0

    def starts(self) -> list[int]:
        """Return the offset at which each shown line starts."""
        return [row * self.length for row in self.rows]

    def offsets(self) -> list[list[int]]:
        """Return the offsets of each shown line."""
        return [
            [start + column for column in self.columns if start + column < self.stop]
            for start in self.starts()
        ]

    def heads(self, bits: int) -> list[str]:
        """Return the heading of each shown line."""
        return [
            self.pixels.row_name(row) if self.pixels else f"byte {start * bits // 8}"
            for row, start in zip(self.rows, self.starts(), strict=True)
        ]


def lines_of(cells: Cells, limits: Limits = FULL) -> Lines:
    """Choose the lines of a buffer: whole blocks, with 8 to 16 elements if possible."""
    layout = cells.layout
    tile = 1
    for block in layout.base().inner():
        tile *= block.extent
    below = sum(min((block.extent - 1) * block.stride, 0) for block in layout.blocks)
    low = 0 if layout.xor else max(layout.offset0 + below, 0)
    length = (
        _LENGTH if tile < _MAX_LENGTH and layout.last - low < _LENGTH * _FEW_LINES else _MAX_LENGTH
    )
    if tile < _MAX_LENGTH and length % tile:
        length = _MAX_LENGTH // tile * tile
    first = low // length
    count = layout.last // length + 1 - first
    wanted = [layout.offset(index) // length for index in cells.wanted]
    shown = visible_indices(count, count, limits.lines, (row - first for row in wanted))
    rows = [first + row for row in shown]
    if count > limits.lines and layout.last - low >= 2 * layout.padded_nelems:
        rows = _lines_with_elements(cells, length, limits.lines, wanted)
    return Lines(layout.last + 1, length, rows, list(range(length)))


def _lines_with_elements(cells: Cells, length: int, limit: int, wanted: list[int]) -> list[int]:
    """Choose the lines of a buffer with many gaps: the first that have elements, and the last."""
    layout = cells.layout
    rows = {layout.last // length, *wanted}
    # a few steps of a long loop fill the page
    for index in product(*(range(min(block.extent, _FOLLOWED * length)) for block in cells.order)):
        base = layout.offset0
        base += sum(i * block.stride for i, block in zip(index, cells.order, strict=True))
        rows.add(swizzled(layout.xor, base) // length)
        if len(rows) >= limit:
            break
    return sorted(rows)


def pixel_lines(cells: Cells, pixels: Pixels, limits: Limits = FULL) -> Lines:
    """Choose the lines of an image: some rows of pixels, and some pixels of each."""
    width, channels, _ = pixels
    height = (cells.layout.last + 1) // (width * channels)
    wanted = [divmod(cells.layout.offset(index) // channels, width) for index in cells.wanted]
    shown = visible_indices(
        width, width, _MAX_PIXELS if channels > 1 else _MAX_LENGTH, (x for _, x in wanted)
    )
    columns = [pixel * channels + lane for pixel in shown for lane in range(channels)]
    return Lines(
        cells.layout.last + 1,
        width * channels,
        visible_indices(height, height, limits.lines, (y for y, _ in wanted)),
        columns,
        pixels,
    )


class Strip:
    """Lines drawn as cells, from (`left`, `top`) to (`right`, `bottom`).

    `at_offset` returns the cell of an offset.
    """

    def __init__(
        self, lines: Lines, at_offset: Callable[[int], Cell], bits: int, left: int, top: int
    ) -> None:
        self.lines = lines
        self.cells = [[at_offset(offset) for offset in line] for line in lines.offsets()]
        self.heads = lines.heads(bits)
        shown = [cell for row in self.cells for cell in row]
        self.cell_width = max(
            cell_width(""),
            *(cell_width(cell.number) for cell in shown),
            *(text_width(cell.note) + _AROUND_NOTE for cell in shown),
        )
        self.start, self.top = (
            left + max(text_width(head) for head in self.heads) + 8,
            top + _ABOVE,
        )
        xs, x_gaps, width = place(lines.columns, self.cell_width, _GAP)
        ys, y_gaps, height = place(lines.rows, _HEIGHT, _GAP)
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
        """Return the SVG elements of headings, cells, outlines and marks."""
        parts = self._column_heads()
        parts += [
            label(self.start - 6, y + 19, head, anchor="end", style="faint")
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
            label(gap + _GAP / 2, self.ys[0] + 19, "⋯", anchor="middle", style="faint")
            for gap in self.x_gaps
        ]
        parts += [
            label(self.start + 8, gap + 12, "⋮", anchor="middle", style="faint")
            for gap in self.y_gaps
        ]
        return parts

    def _column_heads(self) -> list[str]:
        """Return the headings of the columns: offsets within a line, or pixels and lanes."""
        parts = []
        lanes, width = self.lines.lanes, self.cell_width
        for x, column in zip(self.xs, self.lines.columns, strict=True):
            name = LANES[column % lanes] if lanes else f"+{column}"
            parts.append(label(x + width / 2, self.top - 4, name, anchor="middle", style="faint"))
            if lanes and not column % lanes:
                parts.append(
                    label(
                        x + lanes * width / 2,
                        self.top - 18,
                        f"x {column // lanes}",
                        anchor="middle",
                        style="faint",
                    )
                )
        return parts
