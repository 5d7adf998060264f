"""Micro-kernel: transpose a loop group contiguous in src and a loop group contiguous in dst.

The groups are moved in the first of these ways that fits: element by element, for 4-bit elements;
interleaved, for groups of two to four elements; as tiles transposed in registers, of the first
height that fits the rows, in the widest shape that fits the columns; element by element, for groups
with fewer rows than the smallest tile.

There is code for whole tiles only. An edge tile reads its rows through a table: rows without data
point to zeros, and rows that a whole tile would read beyond the end of src point to copies. It
writes its columns through a table: columns that do not exist point to a buffer that is never read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir
from numba.core import cgutils

from reorder.cpu.kernels.elements import Location, emit_clear
from reorder.cpu.kernels.emit import (
    BYTE,
    I64,
    entry_address,
    int64,
    int64_pointer,
    load_int64,
    loop,
    maximum,
    minimum,
    prefetch,
    shared_constant,
)
from reorder.cpu.kernels.interleave import emit_interleaved
from reorder.cpu.kernels.loop_group import ColumnSpan, TileShape
from reorder.cpu.kernels.register_tile import emit_tile, tile_heights, tile_shapes
from reorder.cpu.kernels.shuffle import LANE_BITS
from reorder.cpu.schedule.select import MAX_INTERLEAVED
from reorder.cpu.tables import WORD_NBYTES
from reorder.cpu.target import BYTE_BITS, LINE_BITS, LINE_NBYTES, is_x86

if TYPE_CHECKING:
    from reorder.cpu.kernels.elements import Elements
    from reorder.cpu.kernels.emit import Value
    from reorder.cpu.kernels.loop_group import LoopGroup, Transposition

__all__ = ["emit_transposed"]

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
    elements, rows = move.elements, move.rows
    builder = elements.builder
    if elements.is_nibble:
        for part in move.each_repeat():
            _emit_scalar(part, span)
        return
    stop = span.last
    data = span._replace(last=minimum(builder, stop, move.columns.valid))
    done, cleared = (builder.append_basic_block(name) for name in ("moved", "cleared"))
    shorter = minimum(builder, rows.extent, move.columns.extent)
    with builder.if_then(builder.icmp_signed("<=", shorter, int64(MAX_INTERLEAVED))):
        emit_interleaved(move, (data.first, data.last), done)
    for height in tile_heights(elements.bits, streams=elements.streams):
        _emit_tiles(move, data, height, done)
    for part in move.each_repeat():
        _emit_scalar(part, data)
    builder.branch(done)
    builder.position_at_end(done)
    first = maximum(builder, span.first, move.columns.valid)
    with builder.if_then(builder.icmp_signed("<", first, stop)):
        # contiguous columns are cleared at once
        run = maximum(builder, move.columns.run, int64(1))
        is_run = builder.icmp_signed(">=", run, stop)
        rest = builder.or_(builder.urem(first, run), builder.urem(stop, run))
        has_runs = builder.icmp_signed("==", rest, int64(0))
        step = builder.select(has_runs, run, int64(1))
        step = builder.select(is_run, builder.sub(stop, first), step)
        for part in move.each_repeat():
            with loop(builder, first, stop, step) as column:
                target = part.columns.locate(elements, part.dst, column)
                emit_clear(elements, target, builder.mul(step, rows.extent))
    builder.branch(cleared)
    builder.position_at_end(cleared)


def _emit_tiles(move: Transposition, span: ColumnSpan, height: int, done: Value) -> None:
    """Move tiles of a height, then branch to `done`, if the rows suit that height."""
    elements, rows = move.elements, move.rows
    builder, bits = elements.builder, elements.bits
    # the last tile overlaps the one before it, so it moves some rows twice
    repeated = builder.and_(builder.neg(rows.extent), int64(height - 1))
    limit = int64(height)
    if height * bits == LINE_BITS:
        limit = builder.lshr(rows.extent, int64(_REPEATED_ROWS_SHIFT))
    fits = builder.and_(
        builder.icmp_signed(">=", rows.extent, int64(height)),
        builder.icmp_signed("<=", repeated, limit),
    )
    with builder.if_then(fits):
        *wider, narrowest = tile_shapes(bits, height, streams=elements.streams)
        for shape in wider:
            count = builder.sub(span.last, span.first)
            with builder.if_then(builder.icmp_signed(">=", count, int64(shape.width))):
                _emit_sweeps(move, span, shape)
                builder.branch(done)
        _emit_sweeps(move, span, narrowest)
        builder.branch(done)


def _emit_sweeps(move: Transposition, span: ColumnSpan, shape: TileShape) -> None:
    """Move tiles of one shape, in sweeps: some columns of all rows, then the next columns.

    A sweep uses whole cache lines of src while they are in the cache. The columns that wide tiles
    leave over are moved by tiles of one lane.
    """
    elements = move.elements
    builder = elements.builder
    height, width = shape
    lane = TileShape(height, LANE_BITS // elements.bits)
    edge = _EdgeTables(elements, lane)
    is_narrow = edge.is_narrow(span)
    last_column = maximum(builder, builder.sub(span.last, int64(lane.width)), span.first)
    # a select instead of a branch, for which LLVM would duplicate the loop; narrow tiles start with
    # the first column, whose entry is the first one of their table
    narrow_table = builder.sub(edge.columns, builder.mul(span.first, int64(WORD_NBYTES)))
    column_tables = builder.select(is_narrow, narrow_table, move.columns.table)
    last_row = builder.sub(move.rows.extent, int64(height))
    step = _sweep_columns(elements, last_row, height)
    is_padded = builder.icmp_signed("<", move.rows.valid, move.rows.extent)
    # most calls have whole tiles only
    has_edges = builder.or_(is_narrow, is_padded)
    with builder.if_then(is_narrow):
        edge.write_columns(move.columns, span)
    for part in move.each_repeat():
        src = elements.rebased(part.src)
        with loop(builder, span.first, span.last, step) as start:
            stop = minimum(builder, builder.add(start, step), span.last)
            with loop(builder, int64(0), move.rows.extent, height) as next_row:
                row = minimum(builder, next_row, last_row)
                dst = elements.rebased(part.dst.plus(builder, row))
                whole_table = entry_address(builder, move.rows.table, row)
                before = builder.block
                with builder.if_then(has_edges):
                    edge_part = part._replace(src=src, dst=dst)
                    edge_table = _prepare_edge(edge, edge_part, row, span)
                    prepared = builder.block
                row_table = builder.phi(I64)
                row_table.add_incoming(whole_table, before)
                row_table.add_incoming(edge_table, prepared)
                rest = start
                if width > lane.width:
                    whole = builder.and_(builder.sub(stop, start), int64(-width))
                    rest = builder.add(start, whole)
                    with loop(builder, start, rest, width) as column:
                        column_table = entry_address(builder, move.columns.table, column)
                        first = elements.rebased(Location(src.address, column))
                        emit_tile(elements, first, dst, (row_table, column_table), shape)
                        _prefetch_columns(move, dst, column_table, shape)
                with loop(builder, rest, stop, lane.width) as next_column:
                    column = minimum(builder, next_column, last_column)
                    column_table = entry_address(builder, column_tables, column)
                    first = elements.rebased(Location(src.address, column))
                    # a line that non-temporal stores write twice goes to memory twice
                    stored = builder.sub(next_column, column) if elements.streams else None
                    emit_tile(elements, first, dst, (row_table, column_table), lane, stored)
                    _prefetch_columns(move, dst, column_table, lane)


def _sweep_columns(elements: Elements, last_row: Value, height: int) -> Value:
    """Return how many columns a sweep takes, by the row at which its last tile starts."""
    builder = elements.builder
    count = _SWEEP_NBYTES * BYTE_BITS // elements.bits
    columns = int64(count if elements.streams else min(count, _SWEEP_COLUMNS))
    if elements.streams:
        # two blocks of rows make two lines of dst, which should be stored in succession
        is_two = builder.icmp_signed("<=", last_row, int64(height))
        columns = builder.select(is_two, int64(count // 2), columns)
    # one block of rows needs no sweeps
    is_one = builder.icmp_signed("<=", last_row, int64(0))
    return builder.select(is_one, int64(_MAX_COLUMNS), columns)


def _prefetch_columns(move: Transposition, dst: Location, table: Value, shape: TileShape) -> None:
    """Prefetch the lines of dst that the next tile of the same columns is the first to write.

    They are those in which that tile ends, if tiles are as high as lines. Measured on x86 only.
    """
    elements, builder = move.elements, move.elements.builder
    if elements.streams or shape.height * elements.bits < LINE_BITS or not is_x86():
        return
    with builder.if_then(move.prefetches_dst):
        for k in range(shape.width):
            column = elements.moved(dst, load_int64(builder, table, k))
            ahead = builder.add(elements.address_of(column), int64(2 * LINE_NBYTES - 1))
            prefetch(builder, ahead, writes=True)


def _prepare_edge(edge: _EdgeTables, move: Transposition, row: Value, span: ColumnSpan) -> Value:
    """Write the tables that the edge tiles from a row on need; returns the table of the rows."""
    builder = edge.elements.builder
    height = int64(edge.height)
    is_narrow = edge.is_narrow(span)
    # a tile may read rows beyond the last column, but not beyond the end of src
    columns = edge.elements.nbytes(builder.add(span.first, int64(edge.width)))
    row_end = builder.add(edge.elements.address_of(move.src), columns)
    last_read = builder.add(row_end, span.row_span)
    copies = builder.and_(is_narrow, builder.icmp_signed(">", last_read, span.src_end))
    # rows beyond the last one, which are not stored, are in the table
    has_padding = builder.and_(
        builder.icmp_signed(">", builder.add(row, height), move.rows.valid),
        builder.icmp_signed("<", move.rows.valid, move.rows.extent),
    )
    needs_table = builder.or_(has_padding, copies)
    with builder.if_then(needs_table):
        edge.write_rows(move.src, move.rows, row, span, copies)
    whole_table = entry_address(builder, move.rows.table, row)
    table = builder.select(needs_table, edge.rows, whole_table)
    with builder.if_then(is_narrow):
        edge.write_missing_columns(move.dst, span)
    return table


def _emit_scalar(move: Transposition, span: ColumnSpan) -> None:
    """Move element by element."""
    elements, builder, rows = move.elements, move.elements.builder, move.rows
    with loop(builder, span.first, span.last) as column:
        is_data = builder.icmp_signed("<", column, move.columns.valid)
        valid = builder.select(is_data, rows.valid, int64(0))
        target = move.columns.locate(elements, move.dst, column)
        with loop(builder, int64(0), valid) as row:
            source = rows.locate(elements, move.src, row)
            element = elements.load(source.plus(builder, column))
            elements.store(element, target.plus(builder, row))
        with loop(builder, valid, rows.extent) as row:
            elements.store(elements.zero, target.plus(builder, row))


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
        self.rows = builder.ptrtoint(cgutils.alloca_once(builder, I64, size=self.height), I64)
        self.columns = builder.ptrtoint(cgutils.alloca_once(builder, I64, size=self.width), I64)
        copies = cgutils.alloca_once(builder, BYTE, size=self.height * self.width * size)
        self.copies = builder.ptrtoint(copies, I64)
        unread = cgutils.alloca_once(builder, BYTE, size=self.height * size)
        unread.align = LINE_NBYTES
        self.unread = builder.ptrtoint(unread, I64)
        kind = ir.ArrayType(BYTE, (_MAX_COLUMNS + self.width) * _MAX_ELEMENT_NBYTES)
        zeros = ir.Constant(kind, None)
        name = f"memdesc.zeros.{kind.count}"
        self.zeros = shared_constant(builder, name, zeros, LINE_NBYTES)

    def _offset(self, address: Value, start: Location) -> Value:
        """Return the offset of a buffer from a location, in bytes."""
        return self.elements.builder.sub(address, self.elements.address_of(start))

    def is_narrow(self, span: ColumnSpan) -> Value:
        """Whether a span has fewer columns than a tile."""
        builder = self.elements.builder
        return builder.icmp_signed("<", builder.sub(span.last, span.first), int64(self.width))

    def write_columns(self, columns: LoopGroup, span: ColumnSpan) -> None:
        """Write the entries of columns that exist."""
        builder = self.elements.builder
        with loop(builder, int64(0), builder.sub(span.last, span.first)) as k:
            offset = load_int64(builder, columns.table, builder.add(span.first, k))
            builder.store(offset, int64_pointer(builder, self.columns, k))

    def write_missing_columns(self, dst: Location, span: ColumnSpan) -> None:
        """Write the entries of columns that do not exist, up to the width of a tile."""
        builder = self.elements.builder
        unread = self._offset(self.unread, dst)
        with loop(builder, builder.sub(span.last, span.first), int64(self.width)) as k:
            builder.store(unread, int64_pointer(builder, self.columns, k))

    def write_rows(
        self, src: Location, rows: LoopGroup, row: Value, span: ColumnSpan, copies: Value
    ) -> None:
        """Write the table of the rows from a row on, one tile high.

        If `copies` is true, rows that a tile would read beyond the end of src are copied.
        """
        builder = self.elements.builder
        with loop(builder, int64(0), int64(self.height)) as k:
            index = builder.add(row, k)
            entry = int64_pointer(builder, self.rows, k)
            with builder.if_else(builder.icmp_signed("<", index, rows.valid)) as (data, padding):
                with data:
                    offset = load_int64(builder, rows.table, index)
                    builder.store(offset, entry)
                    start = self.elements.moved(src, offset).plus(builder, span.first)
                    stop = self.elements.address_of(start.plus(builder, int64(self.width)))
                    is_beyond = builder.icmp_signed(">", stop, span.src_end)
                    with builder.if_then(builder.and_(copies, is_beyond)):
                        copy = self._copy_row(start, k, span)
                        first = src.plus(builder, span.first)
                        builder.store(self._offset(copy, first), entry)
                with padding:
                    builder.store(self._offset(self.zeros, src), entry)

    def _copy_row(self, start: Location, k: Value, span: ColumnSpan) -> Value:
        """Copy the columns of row `k` from `start` on; returns the address of the copies."""
        elements, builder = self.elements, self.elements.builder
        copy = Location(self.copies, builder.mul(k, int64(self.width)))
        with loop(builder, int64(0), builder.sub(span.last, span.first)) as i:
            elements.store(elements.load(start.plus(builder, i)), copy.plus(builder, i))
        return elements.address_of(copy)
