"""Micro-kernel: rows of columns of any strides, element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.cpu.kernels.emit import int64, loop

if TYPE_CHECKING:
    from reorder.cpu.kernels.elements import Elements, Location
    from reorder.cpu.kernels.row_table import InnerLoop, RowTable

__all__ = ["emit_strided"]


def emit_strided(
    elements: Elements, src: Location, dst: Location, rows: RowTable, columns: InnerLoop
) -> None:
    """Move the elements that are valid in both loops and write zeros for the others."""
    builder = elements.builder
    for row_src, row_dst, is_valid in rows.each_row(elements, src, dst):
        valid = builder.select(is_valid, columns.valid, int64(0))
        with loop(builder, int64(0), valid) as column:
            steps = (
                builder.mul(column, stride) for stride in (columns.src_stride, columns.dst_stride)
            )
            source, target = map(elements.moved, (row_src, row_dst), steps)
            elements.store(elements.load(source), target)
        with loop(builder, valid, columns.extent) as column:
            target = elements.moved(row_dst, builder.mul(column, columns.dst_stride))
            elements.store(elements.zero, target)
