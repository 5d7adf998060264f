"""One operation on vectors of values.

Values are f32 or f64.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from llvmlite import ir

from reorder.cpu.convert.operation import Operation, has_small_steps, rounding_bits
from reorder.cpu.convert.vectors import GROUP
from reorder.values.formats import FLOATS, INTEGERS

if TYPE_CHECKING:
    from reorder.cpu.convert.codec import Codec
    from reorder.cpu.kernels.emit import Value

__all__ = ["Operands", "apply"]

# Magnitudes of the dividends of `QUOTIENT`, from _LOW to below _HIGH; other dividends are divided.
# `has_quotient` has the bounds of the divisors.
_LOW, _HIGH = 2.0**-64, 2.0**64
# Smaller quotients are divided where dst has numbers as small as f32: below, the products of
# dividends and of what the inverses lack may lose bits.
_LEAST = 2.0**-70


class Operands(NamedTuple):
    """Vectors that an operation takes; `factor` is for `ADD_PRODUCT`, and `QUOTIENT` (1 / y)."""

    x: Value
    y: Value | None
    factor: Value | None


def apply(codec: Codec, operation: Operation, operands: Operands, work: str, dst: str) -> Value:
    """Return the results of an operation in a working type; they are stored as type `dst`."""
    builder, vector_type = codec.builder, codec.values(work)
    x, y, factor = operands
    if operation is Operation.CLAMP:
        low = builder.fsub(codec.splat(vector_type, -0.0), y)
        x = builder.select(builder.fcmp_ordered(">", x, y), y, x)
        return builder.select(builder.fcmp_ordered("<", x, low), low, x)
    if operation is Operation.ROUND_F16:
        return codec.decode(codec.encode(x, work, "f16"), "f16", work)
    if operation is Operation.QUOTIENT:
        divide = _quotient if rounding_bits(dst) is None else _narrow_quotient
        return divide(codec, operands, dst)
    if operation is Operation.ADD_PRODUCT:
        result = builder.fadd(x, builder.fmul(factor, y))
    else:
        emit = {
            Operation.SUBTRACT: builder.fsub,
            Operation.MULTIPLY: builder.fmul,
            Operation.DIVIDE: builder.fdiv,
            Operation.ADD: builder.fadd,
        }[operation]
        result = emit(x, y)
    return result


def _quotient(codec: Codec, operands: Operands, dst: str) -> Value:
    """Return x / y, correctly rounded, computed from the rounded reciprocal of y.

    Two corrections by the exact remainder round it correctly (Markstein, IBM J. Res. Dev. 34,
    1990), provided that no step overflows or becomes denormal. The corrections lose the sign of
    -0.0, so a zero dividend beside others out of range takes the first product; those are divided.
    If dst holds integers, only the rounded integer must be right, so small dividends need no test.
    """
    x, y, reciprocal = operands
    builder, vector_type, i32 = codec.builder, codec.values("f32"), codec.integers(32)
    fma = f"llvm.fma.{codec.suffix(vector_type)}"
    first = quotient = builder.fmul(x, reciprocal)
    for _ in range(2):
        remainder = codec.call(fma, vector_type, builder.fneg(quotient), y, x)
        quotient = codec.call(fma, vector_type, remainder, reciprocal, quotient)
    low, high = (int(np.float32(limit).view(np.uint32)) for limit in (_LOW, _HIGH))
    # high - low is a power of two: bits(x) - low has this bit clear exactly for magnitudes from
    # _LOW to below _HIGH, whatever the sign
    bit = high - low
    # tensors are full of zeros, and all steps keep them; the corrections lose the sign of -0.0 only
    bits = builder.bitcast(x, i32)
    is_plus_zero = builder.icmp_unsigned("==", bits, codec.splat(i32, 0))
    tested = builder.select(is_plus_zero, codec.splat(i32, low), bits)
    difference = builder.sub(tested, codec.splat(i32, low))
    magnitude = codec.call(f"llvm.fabs.{codec.suffix(vector_type)}", vector_type, x)

    def divide() -> Value:
        result = builder.fdiv(x, y)
        return result if dst in INTEGERS else codec.canonical(result, "f32")

    def check_range() -> Value:
        is_large = builder.fcmp_unordered("uge", magnitude, codec.splat(vector_type, _HIGH))
        if dst in INTEGERS:
            return codec.rarely(is_large, divide, quotient)
        is_zero = builder.fcmp_ordered("==", x, codec.splat(vector_type, 0.0))
        is_small = builder.fcmp_ordered("<", magnitude, codec.splat(vector_type, _LOW))
        is_outside = builder.or_(is_large, builder.and_(is_small, builder.not_(is_zero)))
        return codec.rarely(is_outside, divide, builder.select(is_zero, first, quotient))

    return codec.rarely(codec.any_bit(difference, bit), check_range, quotient)


def _narrow_quotient(codec: Codec, operands: Operands, dst: str) -> Value:
    """Return x / y for a dst of few bits, from the inverse of y and what that lacks.

    It need not be rounded correctly, only be on the right side of the numbers at which dst rounds.
    Those have few bits, so it is (`rounding_bits`). NaN, and infinities where they become NaN, are
    divided.
    """
    x, lacking, inverse = operands
    builder, vector_type, i32 = codec.builder, codec.values("f32"), codec.integers(32)
    fma = f"llvm.fma.{codec.suffix(vector_type)}"
    quotient = codec.call(fma, vector_type, x, inverse, builder.fmul(x, lacking))
    if dst not in INTEGERS:
        # the sum of zeros of two signs has the wrong one
        sign = builder.and_(builder.bitcast(x, i32), codec.splat(i32, FLOATS["f32"].sign))
        quotient = builder.or_(builder.bitcast(quotient, i32), sign)
        quotient = builder.bitcast(quotient, vector_type)

    def divide() -> Value:
        # y, which is a float: the error of the sum is a small part of the distance to the next one
        ones = codec.splat(vector_type, 1.0)
        about = builder.fdiv(ones, inverse)
        rest = codec.call(fma, vector_type, builder.fneg(inverse), about, ones)
        rest = codec.call(fma, vector_type, builder.fneg(lacking), about, rest)
        result = builder.fdiv(x, codec.call(fma, vector_type, rest, about, about))
        return result if dst in INTEGERS else codec.canonical(result, "f32")

    parts = codec.parts(quotient, min(codec.lanes, GROUP))
    pairs = zip(parts[::2], parts[1::2] or parts, strict=True)
    tests = [builder.fcmp_unordered("uno", *pair) for pair in pairs]
    if has_small_steps(dst):
        # twice the bits, so without the sign, less one, so that zeros are the largest numbers
        doubled = builder.shl(builder.bitcast(quotient, i32), codec.splat(i32, 1))
        before = codec.parts(builder.sub(doubled, codec.splat(i32, 1)), min(codec.lanes, GROUP))
        least = reduce(codec.lesser, before)
        limit = 2 * int(np.float32(_LEAST).view(np.uint32)) - 1
        tests.append(
            builder.icmp_unsigned("<", least, ir.Constant(least.type, [limit] * least.type.count))
        )
    return codec.rarely(reduce(builder.or_, tests), divide, quotient)
