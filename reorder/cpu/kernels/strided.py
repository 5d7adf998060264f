"""Micro-kernel: rows of columns of any strides, element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reorder.cpu.kernels.emit import int64, loop

if TYPE_CHECKING:
    from reorder.cpu.kernels.emit import Elements, Loop, Place, Rows

__all__ = ["emit_strided"]


def emit_strided(elements: Elements, src: Place, dst: Place, rows: Rows, columns: Loop) -> None:
    """Move the elements that are valid in both loops and write zeros for the others."""
    builder = elements.builder

    def along(place: Place, column: Any, stride: Any) -> Place:
        return place[0], builder.add(place[1], builder.mul(column, stride))

    for fro, to, is_valid in rows.each(builder, src, dst):
        valid = builder.select(is_valid, columns.valid, int64(0))
        with loop(builder, int64(0), valid) as column:
            elements.store(
                elements.load(*along(fro, column, columns.src_stride)),
                *along(to, column, columns.dst_stride),
            )
        with loop(builder, valid, columns.extent) as column:
            elements.store(elements.zero, *along(to, column, columns.dst_stride))
