"""Rows given by offset tables: the loop of the copying and of the strided kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reorder.cpu.kernels.emit import load_int64, loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.cpu.kernels.elements import Elements, Location
    from reorder.cpu.kernels.emit import Value

__all__ = ["InnerLoop", "RowTable"]


class InnerLoop(NamedTuple):
    """The innermost loop, the columns of each row: a node as LLVM values."""

    extent: Value
    valid: Value
    src_stride: Value
    dst_stride: Value


class RowTable(NamedTuple):
    """Rows `first` to `last`, of which those below `valid` hold data."""

    first: Value
    last: Value
    valid: Value
    # addresses of the offset of each row in src and in dst
    src_table: Value
    dst_table: Value
    # offset of the last row from the first in src
    src_span: Value

    def each_row(
        self, elements: Elements, src: Location, dst: Location
    ) -> Iterator[tuple[Location, Location, Value]]:
        """Emit a loop over the rows; yields both locations, and whether the row holds data."""
        builder = elements.builder
        with loop(builder, self.first, self.last) as row:
            row_src = elements.moved(src, load_int64(builder, self.src_table, row))
            row_dst = elements.moved(dst, load_int64(builder, self.dst_table, row))
            yield row_src, row_dst, builder.icmp_signed("<", row, self.valid)
