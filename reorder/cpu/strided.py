"""Micro-kernel: one loop of any strides, element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reorder.cpu.emit import int64, loop

if TYPE_CHECKING:
    from reorder.cpu.emit import Elements, Loop

__all__ = ["emit_strided"]


def emit_strided(elements: Elements, src: tuple[Any, Any], dst: tuple[Any, Any], node: Loop) -> None:
    """Move the valid elements of a loop and write zeros for the others."""
    builder = elements.builder

    def at(place: tuple[Any, Any], i: Any, stride: Any) -> tuple[Any, Any]:
        return place[0], builder.add(place[1], builder.mul(i, stride))

    with loop(builder, int64(0), node.valid) as i:
        elements.store(elements.load(*at(src, i, node.src_stride)), *at(dst, i, node.dst_stride))
    with loop(builder, node.valid, node.extent) as i:
        elements.store(elements.zero, *at(dst, i, node.dst_stride))
