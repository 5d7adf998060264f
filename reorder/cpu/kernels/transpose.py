"""Micro-kernel: transpose a loop group contiguous in src and a loop group contiguous in dst.

The groups are moved in the first of these ways that fits: element by element, for 4-bit elements;
interleaved, for groups of two to four elements; as tiles transposed in registers, of the first
height that fits the rows, in the widest shape that fits the columns; element by element, for groups
with fewer rows than the smallest tile.

There is code for whole tiles only. An edge tile reads its rows through a table: rows without data
point to zeros, and rows that a whole tile would read beyond the end of src point to copies. It
writes its columns through a table: columns that do not exist point to a buffer that is never read.
"""

from llvmlite import ir

from memdesc.dtypes import BYTE_BITS
from reorder.cpu.kernels.elements import Elements, Location, emit_clear
from reorder.cpu.kernels.interleave import emit_interleaved
from reorder.cpu.kernels.loop_group import ColumnSpan, LoopGroup, TileShape, Transposition
from reorder.cpu.kernels.register_tile import emit_tile, tile_heights, tile_shapes
from reorder.cpu.llvm.emit import (
    BYTE,
    I64,
    Value,
    either,
    loop,
    maximum,
    minimum,
    phi,
    prefetch_to_write,
    shared_constant,
    stack_space,
    when,
    where,
)
from reorder.cpu.llvm.shuffle import LANE_BITS
from reorder.cpu.schedule.select import MAX_INTERLEAVED
from reorder.cpu.tables import WORD_NBYTES
from reorder.cpu.target import LINE_BITS, LINE_NBYTES, is_x86
from reorder.plan.nodes import NOWHERE

# Columns of one sweep over all rows: two cache lines of src, which are read completely before the
# next sweep.
_SWEEP_NBYTES = 128
# Most columns of a sweep: two lines written and one prefetched for each of them, plus those of the
# rows, take half of the first-level cache.
_SWEEP_COLUMNS = 64
# Tiles as high as a cache line are used if at most rows >> 3, an eighth, are moved twice.
_REPEATED_ROWS_SHIFT = 3


def emit_transposed(move: Transposition, span: ColumnSpan) -> None:
    """Move two loop groups; steps that are not valid in either write zeros.

    `span` is the range of columns to write, with data or without.
    """
    elements, rows, stop = move.elements, move.rows, span.last
    builder = elements.builder
    if elements.is_nibble:
        for part in move.each_step():
            _emit_scalar(part, span)
        return
    data = span._replace(last=minimum(stop, move.columns.valid))
    done, cleared = (builder.append_basic_block(name) for name in ("moved", "cleared"))
    shorter = minimum(rows.extent, move.columns.extent)
    with when(shorter <= MAX_INTERLEAVED):
        emit_interleaved(move, (data.first, data.last), done)
    for height in tile_heights(elements.bits):
        _emit_tiles(move, data, height, done)
    for part in move.each_step():
        _emit_scalar(part, data)
    builder.branch(done)
    builder.position_at_end(done)
    first = maximum(span.first, move.columns.valid)
    with when(first < stop):
        # contiguous columns are cleared at once
        run = maximum(move.columns.run, 1)
        is_run = run >= stop
        step = where((first % run | stop % run) == 0, run, 1)
        step = where(is_run, stop - first, step)
        for part in move.each_step():
            with loop(first, stop, step) as column:
                target = part.columns.locate(elements, part.dst, column)
                emit_clear(elements, target, step * rows.extent)
    builder.branch(cleared)
    builder.position_at_end(cleared)


def _emit_tiles(move: Transposition, span: ColumnSpan, height: int, done: Value) -> None:
    """Move tiles of a height, then branch to `done`, if the rows suit that height."""
    elements, extent = move.elements, move.rows.extent
    builder = elements.builder
    # the last tile overlaps the one before it, so it moves some rows twice
    repeated = -extent & (height - 1)
    limit: Value | int = height
    if height * elements.bits == LINE_BITS:
        limit = extent.lshr(_REPEATED_ROWS_SHIFT)
    with when((extent >= height) & (repeated <= limit)):
        *wider, narrowest = tile_shapes(elements.bits, height)
        for shape in wider:
            with when(span.last - span.first >= shape.width):
                _emit_sweeps(move, span, shape)
                builder.branch(done)
        _emit_sweeps(move, span, narrowest)
        builder.branch(done)


def _emit_sweeps(move: Transposition, span: ColumnSpan, shape: TileShape) -> None:
    """Move tiles of one shape, in sweeps: some columns of all rows, then the next columns.

    A sweep uses whole cache lines of src while they are in the cache. The columns that wide tiles
    leave over are moved by tiles of one lane.
    """
    elements, builder = move.elements, move.elements.builder
    height, width = shape
    lane = TileShape(height, LANE_BITS // elements.bits)
    edge = _EdgeTables(elements, lane)
    is_narrow = edge.is_narrow(span)
    last_column = maximum(span.last - lane.width, span.first)
    # a select, since LLVM would duplicate the loop for a branch; a narrow tile starts with the
    # first column of the span, which is the first entry of its own table
    narrow_table = edge.columns - span.first * WORD_NBYTES
    last_row = move.rows.extent - height
    step = _sweep_columns(elements, last_row, height)
    # most calls have whole tiles only
    has_edges = is_narrow | (move.rows.valid < move.rows.extent)
    for part in move.each_step():
        with when(is_narrow):
            edge.write_columns(part.columns, span)
        column_tables = where(is_narrow, narrow_table, part.columns.table)
        src = elements.rebased(part.src)
        with loop(span.first, span.last, step) as start:
            stop = minimum(start + step, span.last)
            with loop(0, move.rows.extent, height) as next_row:
                row = minimum(next_row, last_row)
                dst = elements.rebased(part.dst + row)
                whole_table = part.rows.table + row * WORD_NBYTES
                before = builder.block
                with when(has_edges):
                    edge_part = part._replace(src=src, dst=dst)
                    edge_table = _prepare_edge(edge, edge_part, row, span)
                    prepared = builder.block
                row_table = phi((whole_table, before), (edge_table, prepared))
                rest = start
                if width > lane.width:
                    rest = start + ((stop - start) & -width)
                    with loop(start, rest, width) as column:
                        column_table = part.columns.table + column * WORD_NBYTES
                        first = elements.rebased(Location(src.address, column))
                        emit_tile(elements, first, dst, (row_table, column_table), shape)
                        _prefetch_columns(move, dst, column_table, shape)
                with loop(rest, stop, lane.width) as next_column:
                    column = minimum(next_column, last_column)
                    column_table = column_tables + column * WORD_NBYTES
                    first = elements.rebased(Location(src.address, column))
                    # a line that non-temporal stores write twice goes to memory twice
                    stored = next_column - column if elements.streams else None
                    emit_tile(elements, first, dst, (row_table, column_table), lane, stored)
                    _prefetch_columns(move, dst, column_table, lane)


def _sweep_columns(elements: Elements, last_row: Value, height: int) -> Value:
    """Return how many columns a sweep takes, by the row at which its last tile starts."""
    count = _SWEEP_NBYTES * BYTE_BITS // elements.bits
    columns: Value | int = count if elements.streams else min(count, _SWEEP_COLUMNS)
    if elements.streams:
        # two blocks of rows make two lines of dst, which should be stored in succession
        columns = where(last_row <= height, count // 2, columns)
    # one block of rows needs no sweeps
    return where(last_row <= 0, _MAX_COLUMNS, columns)


def _prefetch_columns(move: Transposition, dst: Location, table: Value, shape: TileShape) -> None:
    """Prefetch the lines of dst that the next tile of the same columns is the first to write.

    They are those in which that tile ends, if tiles are as high as lines. Measured on x86 only.
    """
    elements = move.elements
    if elements.streams or shape.height * elements.bits < LINE_BITS or not is_x86():
        return
    with when(move.prefetches_dst):
        for k in range(shape.width):
            column = elements.moved(dst, table[k])
            prefetch_to_write(elements.address_of(column) + (2 * LINE_NBYTES - 1))


def _prepare_edge(edge: "_EdgeTables", move: Transposition, row: Value, span: ColumnSpan) -> Value:
    """Write the tables that the edge tiles at a row need; returns the table of the rows."""
    elements, valid = edge.elements, move.rows.valid
    is_narrow = edge.is_narrow(span)
    # a tile may read rows beyond the last column, but not beyond the end of src
    columns = elements.nbytes(span.first + edge.width)
    last_read = elements.address_of(move.src) + columns + span.row_span
    copies = is_narrow & (last_read > span.src_end)
    # padding rows must be read from zeros, not from src
    has_padding = (row + edge.height > valid) & (valid < move.rows.extent)
    needs_table = has_padding | copies
    with when(needs_table):
        edge.write_rows(move.src, move.rows, row, span, copies)
    table = where(needs_table, edge.rows, move.rows.table + row * WORD_NBYTES)
    with when(is_narrow):
        edge.write_missing_columns(move.dst, span)
    return table


def _emit_scalar(move: Transposition, span: ColumnSpan) -> None:
    """Move element by element."""
    elements, rows = move.elements, move.rows
    with loop(span.first, span.last) as column:
        valid = where(column < move.columns.valid, rows.valid, 0)
        target = move.columns.locate(elements, move.dst, column)
        with loop(0, valid) as row:
            element = elements.load(rows.locate(elements, move.src, row) + column)
            elements.store(element, target + row)
        with loop(valid, rows.extent) as row:
            elements.store(elements.zero, target + row)


# Upper bound of the columns of a call, and length of the row of zeros. Tiling cuts loop groups to
# fewer elements.
_MAX_COLUMNS = 1 << 11
# Bytes of the widest elements: all kernels of a module share the zeros.
_MAX_ELEMENT_NBYTES = 8


class _EdgeTables:
    """Tables and buffers of edge tiles, on the stack of the kernel."""

    def __init__(self, elements: Elements, shape: TileShape) -> None:
        self.elements = elements
        self.height, self.width = shape
        builder = elements.builder
        size = elements.bits // BYTE_BITS
        self.rows = stack_space(builder, I64, self.height)
        self.columns = stack_space(builder, I64, self.width)
        self.copies = stack_space(builder, BYTE, self.height * self.width * size)
        self.unread = stack_space(builder, BYTE, self.height * size, LINE_NBYTES)
        kind = ir.ArrayType(BYTE, (_MAX_COLUMNS + self.width) * _MAX_ELEMENT_NBYTES)
        name = f"memdesc.zeros.{kind.count}"
        self.zeros = shared_constant(builder, name, ir.Constant(kind, None), LINE_NBYTES)

    def _offset(self, address: Value, start: Location) -> Value:
        """Return the offset of a buffer from a location, in bytes."""
        return address - self.elements.address_of(start)

    def is_narrow(self, span: ColumnSpan) -> Value:
        """Whether a span has fewer columns than a tile."""
        return span.last - span.first < self.width

    def write_columns(self, columns: LoopGroup, span: ColumnSpan) -> None:
        """Write the entries of columns that exist."""
        with loop(0, span.last - span.first) as k:
            self.columns[k] = columns.table[span.first + k]

    def write_missing_columns(self, dst: Location, span: ColumnSpan) -> None:
        """Write the entries of columns that do not exist, up to the width of a tile."""
        unread = self._offset(self.unread, dst)
        with loop(span.last - span.first, self.width) as k:
            self.columns[k] = unread

    def write_rows(
        self, src: Location, rows: LoopGroup, row: Value, span: ColumnSpan, copies: Value
    ) -> None:
        """Write the table of the rows of a tile that starts at a row.

        If `copies` is true, rows that a tile would read beyond the end of src are copied.
        """
        elements = self.elements
        with loop(0, row.like(self.height)) as k:
            offset = rows.table[row + k]
            with either(offset != NOWHERE) as (data, padding):
                with data:
                    self.rows[k] = offset
                    start = elements.moved(src, offset) + span.first
                    stop = elements.address_of(start + self.width)
                    with when(copies & (stop > span.src_end)):
                        copy = self._copy_row(start, k, span)
                        self.rows[k] = self._offset(copy, src + span.first)
                with padding:
                    self.rows[k] = self._offset(self.zeros, src)

    def _copy_row(self, start: Location, k: Value, span: ColumnSpan) -> Value:
        """Copy the columns of row `k`, which begins at `start`; returns the address of the copy."""
        elements = self.elements
        copy = Location(self.copies, k * self.width)
        with loop(0, span.last - span.first) as i:
            elements.store(elements.load(start + i), copy + i)
        return elements.address_of(copy)
