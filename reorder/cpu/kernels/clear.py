"""Zeros: a run of elements, or the lines of a padded block, cleared by vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.cpu.kernels.emit import int64, loop
from reorder.cpu.target import register_bits

if TYPE_CHECKING:
    from reorder.cpu.kernels.elements import Elements, Location
    from reorder.cpu.kernels.emit import Value

__all__ = ["emit_clear"]

# Bits of the shortest vector of zeros: shorter tails are written element by element.
_LEAST_BITS = 64


def emit_clear(elements: Elements, dst: Location, count: Value) -> None:
    """Write zeros to `count` neighbouring elements: registers first, then ever shorter vectors."""
    builder = elements.builder
    lanes = 1 if elements.is_nibble else register_bits() // elements.bits
    least = 1 if elements.is_nibble else max(1, _LEAST_BITS // elements.bits)
    whole = builder.and_(count, int64(-lanes))
    with loop(builder, int64(0), whole, lanes) as i:
        elements.store_vector(elements.zeros(lanes), dst.plus(builder, i))
    while lanes > least:
        lanes //= 2
        has_part = builder.icmp_signed("!=", builder.and_(count, int64(lanes)), int64(0))
        with builder.if_then(has_part):
            elements.store_vector(elements.zeros(lanes), dst.plus(builder, whole))
        whole = builder.and_(count, int64(-lanes))
    with loop(builder, whole, count) as i:
        elements.store(elements.zero, dst.plus(builder, i))
