"""Edge tiles: offset tables for tiles that have fewer rows or columns with data than a whole one.

There is code for whole tiles only. An edge tile reads its rows through a table: rows without data
point to zeros, and rows that a whole tile would read beyond the end of src point to copies. It
writes its columns through a table: columns that do not exist point to a buffer that is not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir
from numba.core import cgutils

from reorder.cpu.kernels.elements import Location
from reorder.cpu.kernels.emit import BYTE, I64, int64, int64_pointer, load_int64, loop
from reorder.cpu.target import BYTE_BITS, LINE_NBYTES

if TYPE_CHECKING:
    from reorder.cpu.kernels.elements import Elements
    from reorder.cpu.kernels.emit import Builder, Value
    from reorder.cpu.kernels.loop_group import ColumnSpan, LoopGroup, TileShape

__all__ = ["MAX_COLUMNS", "EdgeTables"]

# Upper bound of the columns of a call, and the length of the row of zeros. Tiling cuts loop groups
# to fewer elements.
MAX_COLUMNS = 1 << 11
# Bytes of the widest elements: all kernels of a module share the zeros.
_MAX_ELEMENT_NBYTES = 8


class EdgeTables:
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
        zeros = _zeros(builder, (MAX_COLUMNS + self.width) * _MAX_ELEMENT_NBYTES)
        self.zeros = builder.ptrtoint(zeros, I64)

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
        """Copy the columns of row `k`, of which `start` is the first; returns their address."""
        elements, builder = self.elements, self.elements.builder
        copy = Location(self.copies, builder.mul(k, int64(self.width)))
        with loop(builder, int64(0), builder.sub(span.last, span.first)) as i:
            elements.store(elements.load(start.plus(builder, i)), copy.plus(builder, i))
        return elements.address_of(copy)


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
