"""Floats and exponents: codes to values of f32 and back, in vectors.

f64 values become narrower floats in two steps: rounded to odd as f32, then to nearest. Together
these equal a single rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir

from reorder.cpu.codecs.vectors import BFLOAT, GROUP, Known
from reorder.cpu.codecs.x86 import (
    are_special,
    narrows_registers,
    round_to_bfloat,
    small_codes,
    truncated,
)
from reorder.cpu.target import BYTE_BITS, has_bfloat, has_exact_bfloat, has_half, quietens_in_one
from reorder.values.formats import FLOATS, FloatFormat

if TYPE_CHECKING:
    from reorder.cpu.codecs.vectors import Vectors
    from reorder.cpu.kernels.emit import Value
    from reorder.values.formats import ExponentFormat, Format

__all__ = [
    "as_f32",
    "decode_exponent",
    "decode_float",
    "encode_exponent",
    "encode_float",
    "quietens_rarely",
]

_F32 = FLOATS["f32"]
_MAGNITUDE = _F32.sign - 1
_QUIET_BIT = 1 << (_F32.mantissa - 1)
# formats that instructions convert
_HALF, _BFLOAT = FLOATS["f16"], FLOATS["bf16"]


def decode_float(vectors: Vectors, codes: Value, form: FloatFormat) -> Value:
    """Return f32 values of f32 or a narrower format."""
    builder, f32 = vectors.builder, vectors.values("f32")
    if form == _F32:
        return builder.bitcast(codes, f32)
    if form == _HALF and has_half():
        return builder.fpext(builder.bitcast(codes, vectors.vector(ir.HalfType())), f32)
    wide = builder.zext(codes, vectors.integers(32))
    decode = _pad_mantissa if form.exponent == _F32.exponent else _decode_small
    return builder.bitcast(decode(vectors, wide, form), f32)


def _pad_mantissa(vectors: Vectors, codes: Value, form: FloatFormat) -> Value:
    """Return the bits of f32 of a format with the same exponent."""
    builder, i32 = vectors.builder, codes.type
    bits = builder.shl(codes, vectors.splat(i32, _F32.mantissa - form.mantissa))
    if quietens_in_one():
        f32 = vectors.values("f32")
        name = f"llvm.canonicalize.{vectors.suffix(f32)}"
        return vectors.call(name, f32, builder.bitcast(bits, f32))
    quiet = builder.or_(bits, vectors.splat(i32, _QUIET_BIT))
    magnitude = builder.and_(bits, vectors.splat(i32, _MAGNITUDE))
    return vectors.select(">", magnitude, _F32.overflow, quiet, bits)


def _decode_small(vectors: Vectors, codes: Value, form: FloatFormat) -> Value:
    """Return the bits of f32 of a format with fewer bits of exponent."""
    builder, i32, f32 = vectors.builder, codes.type, vectors.values("f32")
    shift = vectors.splat(i32, _F32.mantissa - form.mantissa)
    magnitude = builder.and_(codes, vectors.splat(i32, form.sign - 1))
    moved = builder.shl(magnitude, shift)
    normal = builder.add(moved, vectors.splat(i32, (_F32.bias - form.bias) << _F32.mantissa))
    step = vectors.splat(f32, 2.0 ** (1 - form.bias - form.mantissa))
    denormal = builder.bitcast(builder.fmul(builder.sitofp(magnitude, f32), step), i32)
    bits = vectors.select("<", magnitude, 1 << form.mantissa, denormal, normal)
    if form.has_inf:
        special = builder.or_(moved, vectors.splat(i32, _F32.overflow))
        quiet = builder.or_(special, vectors.splat(i32, _QUIET_BIT))
        special = vectors.select(">", magnitude, form.overflow, quiet, special)
        bits = vectors.select(">", magnitude, form.largest, special, bits)
    elif form.has_nan:
        # without -0.0 its code is the NaN, so the sign is compared too
        tested = magnitude if form.has_negative_zero else codes
        bits = vectors.select("==", tested, form.nan, vectors.splat(i32, _F32.nan), bits)
    sign = builder.lshr(codes, vectors.splat(i32, form.bits - 1))
    return builder.or_(bits, builder.shl(sign, vectors.splat(i32, _F32.bits - 1)))


def decode_exponent(vectors: Vectors, codes: Value, form: ExponentFormat) -> Value:
    """Return f32 values of exponents; their bias is that of f32."""
    builder, i32 = vectors.builder, vectors.integers(32)
    wide = builder.zext(codes, i32)
    bits = builder.shl(wide, vectors.splat(i32, _F32.mantissa))
    # code 0 is 2**-127, a denormal of f32: only the highest bit of its mantissa is set
    bits = vectors.select("==", wide, 0, vectors.splat(i32, _QUIET_BIT), bits)
    bits = vectors.select("==", wide, form.nan, vectors.splat(i32, _F32.nan), bits)
    return builder.bitcast(bits, vectors.values("f32"))


def encode_exponent(vectors: Vectors, values: Value) -> Value:
    """Return the exponents of f32 values, as i32; infinities and NaN have all bits set."""
    builder, i32 = vectors.builder, vectors.integers(32)
    magnitude = builder.shl(builder.bitcast(values, i32), vectors.splat(i32, 1))
    return builder.lshr(magnitude, vectors.splat(i32, _F32.mantissa + 1))


def as_f32(vectors: Vectors, values: Value, form: FloatFormat | None = None) -> Value:
    """Return values as f32: rounded to nearest for the format f32, to odd for narrower ones."""
    f32 = vectors.values("f32")
    if values.type == f32:
        return values
    return vectors.builder.fptrunc(values, f32) if form == _F32 else _round_to_odd(vectors, values)


def _round_to_odd(vectors: Vectors, values: Value) -> Value:
    """Round f64 to f32 by round-to-odd: truncate, and set the last bit if inexact.

    A second rounding, to fewer bits, then gives the same result as a single rounding.
    """
    builder, i32 = vectors.builder, vectors.integers(32)
    f32, f64 = vectors.values("f32"), vectors.values("f64")
    nearest = builder.fptrunc(values, f32)
    back = builder.fpext(nearest, f64)
    bits = builder.bitcast(nearest, i32)
    magnitude = vectors.absolute(values)
    limit = vectors.splat(f64, 2.0**128)
    grew = builder.fcmp_ordered(">", vectors.absolute(back), magnitude)
    grew = builder.and_(grew, builder.fcmp_ordered("<", magnitude, limit))
    bits = builder.select(grew, builder.sub(bits, vectors.splat(i32, 1)), bits)
    inexact = builder.fcmp_ordered("!=", back, values)
    inexact = builder.and_(inexact, builder.fcmp_ordered("<", magnitude, limit))
    bits = builder.select(inexact, builder.or_(bits, vectors.splat(i32, 1)), bits)
    return builder.bitcast(bits, f32)


def quietens_rarely(form: Format, work: str) -> bool:
    """Whether `encode_float` makes NaN canonical: for formats with f32's exponent width.

    It tests these for NaN anyway.
    """
    is_cut = isinstance(form, FloatFormat) and form.exponent == _F32.exponent and form != _F32
    return is_cut and work == "f32" and not has_exact_bfloat()


def encode_float(
    vectors: Vectors,
    values: Value,
    form: FloatFormat,
    *,
    known: Known = Known.NOTHING,
    canonical: bool = False,
) -> Value:
    """Return the codes of f32 values in f32 or a narrower format, some as i32.

    With `canonical` NaN has no payload where `quietens_rarely`.
    """
    builder = vectors.builder
    if form == _F32:
        return builder.bitcast(values, vectors.integers(32))
    if form == _HALF and has_half():
        half = builder.fptrunc(values, vectors.vector(ir.HalfType()))
        return builder.bitcast(half, vectors.integers(16))
    bits = builder.bitcast(values, vectors.integers(32))
    if form == _BFLOAT and has_bfloat() and known is Known.NORMAL and vectors.lanes >= GROUP:
        return round_to_bfloat(vectors, values)
    if form.exponent == _F32.exponent:
        return _cut_mantissa(vectors, bits, form, canonical=canonical)
    return _encode_small(vectors, bits, form)


def _encode_small(vectors: Vectors, bits: Value, form: FloatFormat) -> Value:
    """Return the codes, some as i32, of f32 bits in a format with fewer bits of exponent."""
    if form.bits != BYTE_BITS or not narrows_registers(vectors.lanes, BYTE_BITS):
        return _rounded_codes(vectors, bits, form)
    codes = small_codes(vectors, bits, form)
    if form.nan == form.overflow:
        return codes
    values = vectors.builder.bitcast(bits, vectors.values("f32"))
    is_nan = vectors.builder.fcmp_unordered("uno", *vectors.halves(values))

    def with_nan() -> Value:
        return truncated(vectors, _rounded_codes(vectors, bits, form), BYTE_BITS)

    return vectors.rarely(is_nan, with_nan, codes)


def _rounded_codes(vectors: Vectors, bits: Value, form: FloatFormat) -> Value:
    """Return the codes, as i32, of f32 bits in a format with fewer bits of exponent."""
    builder, i32, f32 = vectors.builder, bits.type, vectors.values("f32")
    cut = _F32.mantissa - form.mantissa
    shift = vectors.splat(i32, cut)
    bias = (_F32.bias - form.bias) << _F32.mantissa
    magnitude = builder.and_(bits, vectors.splat(i32, _MAGNITUDE))
    # larger numbers and NaN become this one, whose code follows that of the largest number
    bounded = vectors.at_most(magnitude, bias + (form.overflow << cut))
    # its power of two, at least that of the least normal number
    least = bias + (1 << _F32.mantissa)
    power = builder.and_(bounded, vectors.splat(i32, _F32.overflow))
    power = vectors.at_least(power, least)
    # the last mantissa bit of this number is worth one of the format: adding it rounds to that
    large = builder.add(power, vectors.splat(i32, cut << _F32.mantissa))
    total = builder.fadd(builder.bitcast(bounded, f32), builder.bitcast(large, f32))
    steps = builder.sub(builder.bitcast(total, i32), large)
    first = builder.sub(builder.lshr(power, shift), vectors.splat(i32, least >> cut))
    codes = builder.add(first, steps)
    if form.nan != form.overflow:
        nan = vectors.splat(i32, form.nan)
        if form.has_inf:
            mask = vectors.splat(i32, (1 << form.mantissa) - 1)
            nan = builder.or_(nan, builder.and_(builder.lshr(bits, shift), mask))
        codes = vectors.select(">", magnitude, _F32.overflow, nan, codes)
    sign = builder.lshr(bits, vectors.splat(i32, _F32.bits - form.bits))
    sign = builder.and_(sign, vectors.splat(i32, form.sign))
    if not form.has_negative_zero:
        sign = vectors.select("==", codes, 0, vectors.splat(i32, 0), sign)
    return builder.or_(codes, sign)


def _cut_mantissa(vectors: Vectors, bits: Value, form: FloatFormat, *, canonical: bool) -> Value:
    """Return the codes of f32 bits in a format of 16 bits with the same exponent."""
    builder, i32 = vectors.builder, bits.type
    cut = _F32.mantissa - form.mantissa
    is_odd = builder.icmp_unsigned(
        "!=", builder.and_(bits, vectors.splat(i32, 1 << cut)), vectors.splat(i32, 0)
    )
    half = vectors.splat(i32, 1 << (cut - 1))
    less = vectors.splat(i32, (1 << (cut - 1)) - 1)
    rounded = vectors.upper_halves(
        builder.select(is_odd, builder.add(bits, half), builder.add(bits, less))
    )

    def quieten() -> Value:
        bit = vectors.splat(rounded.type, 1 << (form.mantissa - 1))
        quiet = builder.or_(vectors.upper_halves(bits), bit)
        quiet = vectors.splat(rounded.type, form.nan) if canonical else quiet
        twice = builder.shl(bits, vectors.splat(i32, 1))
        return vectors.select(">", twice, 2 * _F32.overflow, quiet, rounded)

    values, bfloats = builder.bitcast(bits, vectors.values("f32")), vectors.vector(BFLOAT)
    if form == _BFLOAT and has_exact_bfloat():
        return builder.bitcast(builder.fptrunc(values, bfloats), vectors.integers(16))
    if vectors.lanes < GROUP:
        return quieten()
    if form == _BFLOAT and has_bfloat():
        made = round_to_bfloat(vectors, values)
        return vectors.rarely(are_special(vectors, values), quieten, made)
    # NaN is rare: one unordered comparison of the two halves tests all lanes
    return vectors.rarely(builder.fcmp_unordered("uno", *vectors.halves(values)), quieten, rounded)
