"""The memory half of a picture: offsets line by line, or an image's rows of pixels."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

from memdesc.dtypes import BYTE_BITS
from memdesc.picture.cells import CACHE_LINE, LANES, Cell, Cells, Pixels, visible_indices
from memdesc.picture.grid import FULL, Limits
from memdesc.picture.sheet import Half
from memdesc.picture.svg import cell_width, text_width
from memdesc.picture.table import Table, bracketed
from memdesc.swizzle import swizzled

# What fits on a page: four-lane pixels per line, and elements per line, at most and usually.
_MAX_PIXELS, _MAX_LENGTH, _LENGTH = 6, 16, 8
# A buffer with at most this many lines of the usual length gets such lines.
_FEW_LINES = 10
# Pixels: height of a cell; around a note in it.
_HEIGHT, _AROUND_NOTE = 30, 6
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

    def heads(self, bits: int) -> list[tuple[str, str]]:
        """Return the heading of each shown line, in a picture and in text."""
        if self.pixels:
            return [(self.pixels.row_name(row),) * 2 for row in self.rows]
        return [(f"byte {start * bits // 8}", str(start)) for start in self.starts()]


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


class Strip(NamedTuple):
    """Lines of a memory with their cells."""

    lines: Lines
    table: Table

    def half(self, caption: str) -> Half:
        """Draw the lines."""
        shown = self.table.shown
        widths = [cell_width(cell.number) for cell in shown]
        widths += [text_width(cell.note) + _AROUND_NOTE for cell in shown]
        size = max(cell_width(""), *widths), _HEIGHT
        return Half(caption, *self.table.size(size), self.table.paint(0, 0, size))

    def text(self, *, of_number: bool = False) -> list[str]:
        """Write the notes of cells, or their numbers; a bar marks the start of a cache line."""

        def write(cell: Cell) -> str:
            if cell.run is None:
                return "-"
            return bracketed(cell, cell.number if of_number or cell.is_padding else cell.note)

        return self.table.text(write)


def strip_of(lines: Lines, at_offset: Callable[[int], Cell], bits: int) -> Strip:
    """Return lines with the cells that a function returns for their offsets."""
    offsets = lines.offsets()
    lanes = lines.lanes
    tops = [LANES[column % lanes] if lanes else f"+{column}" for column in lines.columns]
    pixels = [k for k, column in enumerate(lines.columns) if lanes and not column % lanes]
    marks = {
        (r, c)
        for r, line in enumerate(offsets)
        for c, offset in enumerate(line)
        if not offset * bits % (BYTE_BITS * CACHE_LINE)
    }
    table = Table(
        lines.rows,
        lines.columns,
        [[at_offset(offset) for offset in line] for line in offsets],
        lines.heads(bits),
        tops,
        groups={k: f"x {lines.columns[k] // lanes}" for k in pixels},
        span=lanes,
        marks=marks,
    )
    return Strip(lines, table)
