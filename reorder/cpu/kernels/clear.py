"""Zeros behind data: runs cleared by vectors, and masks of vectors that end in zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir

from reorder.cpu.kernels.elements import Location
from reorder.cpu.kernels.emit import BYTE, I64, int64, loop
from reorder.cpu.target import BYTE_BITS, register_bits

if TYPE_CHECKING:
    from reorder.cpu.kernels.elements import Elements
    from reorder.cpu.kernels.emit import Value

__all__ = ["MASK_NBYTES", "emit_clear", "load_mask"]

# Bits of the shortest vector of zeros: shorter tails are written element by element.
_LEAST_BITS = 64
# Bytes of the longest mask.
MASK_NBYTES = 256


def emit_clear(elements: Elements, dst: Location, count: Value) -> None:
    """Write `count` zeros; often there are none to write, so that is tested first."""
    builder = elements.builder
    with builder.if_then(builder.icmp_signed(">", count, int64(0))):
        _emit_vectors(elements, dst, count)


def _emit_vectors(elements: Elements, dst: Location, count: Value) -> None:
    """Write zeros: registers first, then ever shorter vectors."""
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


def load_mask(elements: Elements, lanes: int, valid: Value) -> Value:
    """Return a vector of `lanes` elements, all ones in the first `valid` and zeros in the others.

    It is loaded from a constant of ones and then zeros, `valid` elements before the first zero: a
    mask made by a comparison would be computed again for each row.
    """
    builder = elements.builder
    name = "memdesc.ones"
    module = builder.module
    if name not in module.globals:
        kind = ir.ArrayType(BYTE, 2 * MASK_NBYTES)
        ones = ir.GlobalVariable(module, kind, name)
        ones.initializer = ir.Constant(kind, bytearray([255] * MASK_NBYTES + [0] * MASK_NBYTES))
        ones.global_constant, ones.linkage = True, "private"
    first = builder.ptrtoint(module.globals[name], I64)
    skipped = builder.sub(int64(MASK_NBYTES * BYTE_BITS // elements.bits), valid)
    return elements.load_vector(Location(first, skipped), lanes)
