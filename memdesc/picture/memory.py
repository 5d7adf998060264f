"""The memory half of a picture: offsets line by line, or an image's rows of pixels."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from memdesc.dtypes import BYTE_BITS
from memdesc.picture.cells import CACHE_LINE, LANES, Cell, Cells, Pixels, visible_indices
from memdesc.picture.grid import FULL, Limits
from memdesc.picture.picture import Half
from memdesc.picture.svg import cell_width, text_width
from memdesc.picture.table import Table, bracketed
from memdesc.swizzle import swizzled
from memdesc.tuples import NamedTuple

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

    def table(self, at_offset: Callable[[int], Cell], bits: int) -> Table:
        """Return the cells that a function returns for the offsets of elements of some bits."""
        lanes = self.pixels.channels if self.pixels else 0
        starts = [row * self.length for row in self.rows]
        offsets = [[at + k for k in self.columns if at + k < self.stop] for at in starts]
        if self.pixels:
            heads = [(self.pixels.row_name(row),) * 2 for row in self.rows]
        else:
            heads = [(f"byte {start * bits // 8}", str(start)) for start in starts]
        line = BYTE_BITS * CACHE_LINE
        return Table(
            self.rows,
            self.columns,
            [[at_offset(offset) for offset in row] for row in offsets],
            heads,
            [LANES[column % lanes] if lanes else f"+{column}" for column in self.columns],
            groups={
                k: f"x {column // lanes}"
                for k, column in enumerate(self.columns)
                if lanes and not column % lanes
            },
            span=lanes,
            marks={
                (r, c)
                for r, row in enumerate(offsets)
                for c, offset in enumerate(row)
                if not offset * bits % line
            },
        )


def memory_table(cells: Cells, at_offset: Callable[[int], Cell], limits: Limits = FULL) -> Table:
    """Return the lines of a buffer, with the cells that a function returns for offsets."""
    return lines_of(cells, limits).table(at_offset, cells.dtype.bits)


def memory_half(table: Table, caption: str) -> Half:
    """Draw the lines of a memory."""
    widths = [cell_width(cell.number) for cell in table.shown]
    widths += [text_width(cell.note) + _AROUND_NOTE for cell in table.shown]
    size = max(cell_width(""), *widths), _HEIGHT
    return Half(caption, *table.size(size), table.paint(0, 0, size))


def memory_text(table: Table, *, of_number: bool = False) -> list[str]:
    """Write the notes of cells, or their numbers; a bar marks the start of a cache line."""

    def write(cell: Cell) -> str:
        if cell.run is None:
            return "-"
        return bracketed(cell, cell.number if of_number or cell.is_padding else cell.note)

    return table.text(write)


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
