"""Post-ops in registers: one operation on vectors of f32 or f64 values."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from llvmlite import ir

from reorder.cpu.codecs.vectors import GROUP, Known
from reorder.cpu.schedule.post_ops import QUOTIENTS, Operation, has_small_steps
from reorder.values.formats import FLOATS, FORMATS, INTEGERS, FloatFormat

if TYPE_CHECKING:
    from collections.abc import Callable

    from reorder.cpu.codecs.codec import Codec
    from reorder.cpu.kernels.emit import Value

__all__ = ["Operands", "OperationTypes", "apply", "known_results"]

# Magnitudes of the dividends of `QUOTIENT`, from _LOW to below _HIGH; other dividends are divided.
# `has_quotient` has the bounds of the divisors.
_LOW, _HIGH = 2.0**-64, 2.0**64
# Smaller quotients are divided if dst has numbers as small as those of f32: below this, the
# products of dividends and residues of the inverses may lose bits.
_LEAST = 2.0**-70


class Operands(NamedTuple):
    """Vectors that an operation takes; `factor` is for `ADD_PRODUCT` and `QUOTIENTS`."""

    x: Value
    y: Value | None
    factor: Value | None


class OperationTypes(NamedTuple):
    """The types of an operation: what is loaded, what is computed with, what is stored."""

    src: str
    work: str
    dst: str


def known_results(operation: Operation, types: OperationTypes) -> Known:
    """Return what is known of results: finite scales and points do not turn integers into NaN."""
    is_integer = types.src in INTEGERS
    if is_integer and operation is Operation.NARROW_QUOTIENT:
        return Known.NORMAL
    if operation in QUOTIENTS and types.dst in INTEGERS:
        return Known.NUMBERS
    is_number = is_integer and operation is not Operation.ADD_PRODUCT
    return Known.NUMBERS if is_number else Known.NOTHING


def apply(codec: Codec, operation: Operation, operands: Operands, types: OperationTypes) -> Value:
    """Return the results of an operation in the working type."""
    builder, work = codec.builder, types.work
    vector_type = codec.values(work)
    x, y, factor = operands
    if operation is Operation.CLAMP:
        low = builder.fsub(codec.splat(vector_type, -0.0), y)
        x = builder.select(builder.fcmp_ordered(">", x, y), y, x)
        return builder.select(builder.fcmp_ordered("<", x, low), low, x)
    if operation is Operation.ROUND_F16:
        return codec.decode(codec.encode(x, work, "f16"), "f16", work)
    if operation is Operation.QUOTIENT:
        return _quotient(codec, operands, types)
    if operation is Operation.NARROW_QUOTIENT:
        return _narrow_quotient(codec, operands, types)
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


def _quotient(codec: Codec, operands: Operands, types: OperationTypes) -> Value:
    """Return x / y, correctly rounded, computed from the rounded reciprocal of y.

    Two corrections by the exact remainder round it correctly (Markstein, IBM J. Res. Dev. 34,
    1990), provided that no step overflows or becomes denormal. That holds for integers. Floats for
    which a step may do so are divided.
    """
    x, y, reciprocal = operands
    vector_type = codec.values("f32")
    fma = f"llvm.fma.{codec.suffix(vector_type)}"
    first = quotient = codec.builder.fmul(x, reciprocal)
    for _ in range(2):
        remainder = codec.call(fma, vector_type, codec.builder.fneg(quotient), y, x)
        quotient = codec.call(fma, vector_type, remainder, reciprocal, quotient)
    if types.src in INTEGERS:
        return quotient

    def divide() -> Value:
        return _divided(codec, x, y, types)

    if _has_small_range(types.src):
        # infinities and NaN become NaN
        made = quotient if types.dst in INTEGERS else _with_sign(codec, quotient, first)
        return codec.rarely(_any_nan(codec, quotient), divide, made)
    return _quotient_in_range(codec, (x, first, quotient), divide, types.dst)


def _quotient_in_range(
    codec: Codec, values: tuple[Value, Value, Value], divide: Callable[[], Value], dst: str
) -> Value:
    """Return quotients whose dividends are in range, or all divided.

    The corrections lose the sign of -0.0, so in a vector with dividends out of range zeros take the
    first product, and the others are divided. If dst holds integers, only the rounded integer must
    be right, so small dividends need no test.
    """
    x, first, quotient = values
    builder, vector_type, i32 = codec.builder, codec.values("f32"), codec.integers(32)
    low, high = (int(np.float32(limit).view(np.uint32)) for limit in (_LOW, _HIGH))
    # high - low is a power of two: bits(x) - low has this bit clear exactly for magnitudes from
    # _LOW to below _HIGH, whatever the sign
    bit = high - low
    # tensors are full of zeros, which all steps preserve; the corrections only lose the sign of
    # -0.0
    bits = builder.bitcast(x, i32)
    is_plus_zero = builder.icmp_unsigned("==", bits, codec.splat(i32, 0))
    tested = builder.select(is_plus_zero, codec.splat(i32, low), bits)
    difference = builder.sub(tested, codec.splat(i32, low))
    magnitude = codec.absolute(x)

    def check_range() -> Value:
        is_large = builder.fcmp_unordered("uge", magnitude, codec.splat(vector_type, _HIGH))
        if dst in INTEGERS:
            return codec.rarely(is_large, divide, quotient)
        is_zero = builder.fcmp_ordered("==", x, codec.splat(vector_type, 0.0))
        is_small = builder.fcmp_ordered("<", magnitude, codec.splat(vector_type, _LOW))
        is_outside = builder.or_(is_large, builder.and_(is_small, builder.not_(is_zero)))
        return codec.rarely(is_outside, divide, builder.select(is_zero, first, quotient))

    return codec.rarely(codec.any_bit(difference, bit), check_range, quotient)


def _narrow_quotient(codec: Codec, operands: Operands, types: OperationTypes) -> Value:
    """Return x / y for a dst of few bits, from the inverse of y and its residue.

    It need not be rounded correctly, only fall on the right side of the numbers at which dst
    rounds. It does, since those have few bits (`rounding_bits`). NaN, and infinities that become
    NaN, are divided; integers become neither of them, nor numbers below 2^-24.
    """
    x, lacking, inverse = operands
    builder, vector_type, i32 = codec.builder, codec.values("f32"), codec.integers(32)
    fma = f"llvm.fma.{codec.suffix(vector_type)}"
    quotient = codec.call(fma, vector_type, x, inverse, builder.fmul(x, lacking))
    if types.src in INTEGERS:
        return quotient
    if types.dst not in INTEGERS:
        # the sum of zeros of two signs has the wrong one
        quotient = _with_sign(codec, quotient, x)

    def divide() -> Value:
        # y, which is a float: the error of the sum is a small part of the distance to the next
        # float
        ones = codec.splat(vector_type, 1.0)
        about = builder.fdiv(ones, inverse)
        rest = codec.call(fma, vector_type, builder.fneg(inverse), about, ones)
        rest = codec.call(fma, vector_type, builder.fneg(lacking), about, rest)
        return _divided(codec, x, codec.call(fma, vector_type, rest, about, about), types)

    is_rare = _any_nan(codec, quotient)
    if has_small_steps(types.dst):
        # twice the bits, so without the sign, less one, so that zeros are the largest numbers
        doubled = builder.shl(builder.bitcast(quotient, i32), codec.splat(i32, 1))
        before = codec.parts(builder.sub(doubled, codec.splat(i32, 1)), min(codec.lanes, GROUP))
        least = reduce(codec.lesser, before)
        limit = 2 * int(np.float32(_LEAST).view(np.uint32)) - 1
        is_small = builder.icmp_unsigned(
            "<", least, ir.Constant(least.type, [limit] * least.type.count)
        )
        is_rare = builder.or_(is_rare, is_small)
    return codec.rarely(is_rare, divide, quotient)


def _has_small_range(dtype: str) -> bool:
    """Whether the magnitudes of all finite numbers of a type are from _LOW to below _HIGH."""
    form = FORMATS[dtype]
    if not isinstance(form, FloatFormat):
        return False
    return form.max < _HIGH and 2.0 ** (1 - form.bias - form.mantissa) >= _LOW


def _divided(codec: Codec, x: Value, y: Value, types: OperationTypes) -> Value:
    """Return x / y; a NaN becomes 0 if dst holds integers, else the canonical NaN."""
    result = codec.builder.fdiv(x, y)
    if types.dst not in INTEGERS:
        return codec.canonical(result, "f32")
    is_number = codec.builder.fcmp_ordered("ord", result, result)
    return codec.builder.select(is_number, result, codec.splat(result.type, 0.0))


def _with_sign(codec: Codec, quotient: Value, of: Value) -> Value:
    """Return quotients with the signs of other values, which only zeros may lack."""
    builder, i32 = codec.builder, codec.integers(32)
    sign = builder.and_(builder.bitcast(of, i32), codec.splat(i32, FLOATS["f32"].sign))
    return builder.bitcast(builder.or_(builder.bitcast(quotient, i32), sign), quotient.type)


def _any_nan(codec: Codec, values: Value) -> Value:
    """Return at most `GROUP` flags, one of which is true if any value is NaN."""
    parts = codec.parts(values, min(codec.lanes, GROUP))
    pairs = zip(parts[::2], parts[1::2] or parts, strict=True)
    return reduce(codec.builder.or_, [codec.builder.fcmp_unordered("uno", *pair) for pair in pairs])
