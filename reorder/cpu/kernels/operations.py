"""The operations of post-ops, on the values of one vector."""

import operator
from collections.abc import Callable
from functools import reduce

import numpy as np

from memdesc.tuples import NamedTuple
from reorder.cpu.codecs.codec import Codec
from reorder.cpu.llvm.emit import Value, where
from reorder.cpu.llvm.vectors import GROUP, any_nan, is_number, lesser
from reorder.cpu.schedule.post_ops import Operation, has_small_steps, rounding_bits
from reorder.cpu.schedule.tile_program import StageTypes
from reorder.cpu.target import has_fma
from reorder.values.formats import FLOATS, INTEGERS

# Smaller quotients are divided if dst has numbers as small as those of f32: below this, the
# products of dividends and residues of the inverses may lose bits.
_LEAST = 2.0**-70


class Operands(NamedTuple):
    """The vectors that an operation takes; None for an operand that it does not have."""

    x: Value
    y: Value
    factor: Value


def has_quotient_code(types: StageTypes) -> bool:
    """Whether `NARROW_QUOTIENT` is compiled for these types."""
    return rounding_bits(types.dst) is not None and types.work == "f32" and has_fma()


def may_be_nan(operation: Operation, types: StageTypes) -> bool:
    """Whether a result may be a NaN: finite scales and zero points make no integer one."""
    if operation is Operation.NARROW_QUOTIENT and types.dst in INTEGERS:
        return False
    return types.src not in INTEGERS or operation is Operation.ADD_PRODUCT


_ARITHMETIC: dict[Operation, Callable[[Value, Value], Value]] = {
    Operation.SUBTRACT: operator.sub,
    Operation.MULTIPLY: operator.mul,
    Operation.DIVIDE: operator.truediv,
    Operation.ADD: operator.add,
}


def apply(codec: Codec, operation: Operation, operands: Operands, types: StageTypes) -> Value:
    """Return the results of an operation in the working type."""
    x, y, factor = operands
    if operation in _ARITHMETIC:
        return _ARITHMETIC[operation](x, y)
    if operation is Operation.NARROW_QUOTIENT:
        return _narrow_quotient(codec, operands, types)
    if operation is Operation.ADD_PRODUCT:
        return x + factor * y
    if operation is Operation.CONVERT:
        return x
    if operation is Operation.ROUND_F16:
        return codec.decode(codec.encode(x, types.work, "f16"), "f16", types.work)
    # CLAMP
    low = -0.0 - y
    x = where(x > y, y, x)
    return where(x < low, low, x)


def _narrow_quotient(codec: Codec, operands: Operands, types: StageTypes) -> Value:
    """Return x / y for a dst of few bits, from the inverse of y and its residue.

    It need not be rounded correctly, only fall on the right side of the midpoint at which dst
    rounds up or down. It does, since midpoints have few bits (`rounding_bits`). NaN, and infinities
    that become NaN, are divided; integers become neither of them, nor numbers below 2^-24.
    """
    x, residue, inverse = operands
    quotient = codec.fma(x, inverse, x * residue)
    if types.src in INTEGERS:
        return quotient
    if types.dst not in INTEGERS:
        # the sum of zeros of two signs has the wrong one
        quotient = _with_sign(codec, quotient, x)

    def divide() -> Value:
        # y itself, from its inverse and residue: the error is far below the distance to the next
        # float
        ones = inverse.like(1.0)
        about = ones / inverse
        rest = codec.fma(-residue, about, codec.fma(-inverse, about, ones))
        return _divided(codec, x, codec.fma(rest, about, about), types)

    is_rare = _any_nan(codec, quotient)
    if has_small_steps(types.dst):
        # the shift drops the sign, and subtracting 1 makes zeros the largest numbers
        doubled = quotient.bitcast(codec.integers(32)) << 1
        least = reduce(lesser, codec.parts(doubled - 1, min(codec.lanes, GROUP)))
        limit = 2 * int(np.float32(_LEAST).view(np.uint32)) - 1
        is_rare |= least.below(limit)
    return codec.rarely(is_rare, divide, quotient)


def _divided(codec: Codec, x: Value, y: Value, types: StageTypes) -> Value:
    """Return x / y; a NaN becomes 0 if dst holds integers, else the canonical NaN."""
    result = x / y
    if types.dst not in INTEGERS:
        return codec.canonical(result, "f32")
    return where(is_number(result), result, 0.0)


def _with_sign(codec: Codec, quotient: Value, of: Value) -> Value:
    """Return quotients with the signs of other values, which only zeros may lack."""
    i32 = codec.integers(32)
    sign = of.bitcast(i32) & FLOATS["f32"].sign
    return (quotient.bitcast(i32) | sign).bitcast(quotient.type)


def _any_nan(codec: Codec, values: Value) -> Value:
    """Return at most `GROUP` flags; at least one is true if any value is NaN."""
    parts = codec.parts(values, min(codec.lanes, GROUP))
    pairs = zip(parts[::2], parts[1::2] or parts, strict=True)
    return reduce(operator.or_, [any_nan(*pair) for pair in pairs])
