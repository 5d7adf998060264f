"""Edge tiles: tables that make whole tiles of rows and columns that do not fill one.

Tiles are always whole. An edge tile reads its rows from a table that points to zeros for rows
without data, and to copies of the rows that end with src, beyond which nothing may be read; it
stores columns that do not exist to a buffer that nobody reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from llvmlite import ir
from numba.core import cgutils

from reorder.cpu.kernels.elements import Location
from reorder.cpu.kernels.emit import BYTE, I64, int64, int64_pointer, load_int64, loop
from reorder.cpu.target import LINE_NBYTES

if TYPE_CHECKING:
    from reorder.cpu.kernels.elements import Elements
    from reorder.cpu.kernels.emit import Builder, Value
    from reorder.cpu.kernels.loop_group import LoopGroup, TileShape

__all__ = ["MAX_COLUMNS", "ColumnSpan", "EdgeTables"]

# As many columns as a call may have: a row of zeros has this length.
MAX_COLUMNS = 1 << 11


class ColumnSpan(NamedTuple):
    """The columns of a call that hold data, `first` to `last`, and the bounds of src."""

    first: Value
    last: Value
    # elements of src from this index on must not be read
    src_end: Value
    # how far the last row starts behind the first in src
    row_span: Value


class EdgeTables:
    """Tables and buffers of edge tiles, on the stack of the kernel."""

    def __init__(self, elements: Elements, shape: TileShape) -> None:
        self.elements = elements
        self.height, self.width = shape
        builder = elements.builder
        size = elements.bits // 8
        self.rows = builder.ptrtoint(cgutils.alloca_once(builder, I64, size=self.height), I64)
        self.columns = builder.ptrtoint(cgutils.alloca_once(builder, I64, size=self.width), I64)
        # one element more: src may be aligned to less than its elements, see `_offset`
        copies = cgutils.alloca_once(builder, BYTE, size=(self.height * self.width + 1) * size)
        self.copies = builder.ptrtoint(copies, I64)
        unread = cgutils.alloca_once(builder, BYTE, size=(self.height + 1) * size)
        unread.align = LINE_NBYTES
        self.unread = builder.ptrtoint(unread, I64)
        zeros = _zeros(builder, (MAX_COLUMNS + self.width + 1) * 8)
        self.zeros = builder.ptrtoint(zeros, I64)

    def _offset(self, address: Value, start: Location) -> Value:
        """Return how many elements behind a location a buffer starts, rounded up."""
        builder = self.elements.builder
        size = self.elements.bits // 8
        start_address = builder.add(start.address, builder.mul(start.index, int64(size)))
        distance = builder.sub(address, start_address)
        return builder.ashr(builder.add(distance, int64(size - 1)), int64(size.bit_length() - 1))

    def is_narrow(self, span: ColumnSpan) -> Value:
        """Whether a tile has more columns than there are."""
        builder = self.elements.builder
        return builder.icmp_signed("<", builder.sub(span.last, span.first), int64(self.width))

    def write_columns(self, dst: Location, columns: LoopGroup, span: ColumnSpan) -> None:
        """Write the table of the columns from the first on, one tile wide."""
        builder = self.elements.builder
        unread = self._offset(self.unread, dst)
        with loop(builder, int64(0), int64(self.width)) as k:
            column = builder.add(span.first, k)
            exists = builder.icmp_signed("<", column, span.last)
            # the first one is read where the column has no entry
            offset = load_int64(builder, columns.table, builder.select(exists, column, span.first))
            offset = builder.select(exists, offset, unread)
            builder.store(offset, int64_pointer(builder, self.columns, k))

    def write_rows(
        self, src: Location, rows: LoopGroup, row: Value, span: ColumnSpan, copies: Value
    ) -> None:
        """Write the table of the rows from a row on, one tile high.

        Where `copies` holds, rows that a tile would read beyond the end of src are copied.
        """
        builder = self.elements.builder
        with loop(builder, int64(0), int64(self.height)) as k:
            index = builder.add(row, k)
            entry = int64_pointer(builder, self.rows, k)
            with builder.if_else(builder.icmp_signed("<", index, rows.valid)) as (data, padding):
                with data:
                    offset = load_int64(builder, rows.table, index)
                    builder.store(offset, entry)
                    start = builder.add(builder.add(src.index, offset), span.first)
                    stop = builder.add(start, int64(self.width))
                    is_beyond = builder.icmp_signed(">", stop, span.src_end)
                    with builder.if_then(builder.and_(copies, is_beyond)):
                        self._copy_row(src, start, (entry, k), span)
                with padding:
                    builder.store(self._offset(self.zeros, src), entry)

    def _copy_row(
        self, src: Location, start: Value, entry: tuple[Value, Value], span: ColumnSpan
    ) -> None:
        """Copy a row from an index of src on; `entry` is a pointer to its entry, and its number."""
        elements, builder = self.elements, self.elements.builder
        pointer, k = entry
        offset = self._offset(self.copies, src.plus(builder, span.first))
        offset = builder.add(offset, builder.mul(k, int64(self.width)))
        builder.store(offset, pointer)
        copy = Location(src.address, builder.add(builder.add(src.index, offset), span.first))
        with loop(builder, int64(0), builder.sub(span.last, span.first)) as i:
            element = elements.load(Location(src.address, builder.add(start, i)))
            elements.store(element, copy.plus(builder, i))


def _zeros(builder: Builder, nbytes: int) -> Value:
    """Return a constant of zeros, shared by all kernels of a module."""
    name = f"memdesc.zeros.{nbytes}"
    module = builder.module
    if name not in module.globals:
        kind = ir.ArrayType(BYTE, nbytes)
        zeros = ir.GlobalVariable(module, kind, name)
        zeros.initializer, zeros.align = ir.Constant(kind, None), LINE_NBYTES
        zeros.global_constant, zeros.linkage = True, "private"
    return module.globals[name]
