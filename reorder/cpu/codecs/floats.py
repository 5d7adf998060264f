"""Floats and exponents: codes to values of f32 and back, in vectors.

f64 values become narrower floats in two steps: rounded to odd as f32, then to nearest. Together
these equal a single rounding.
"""

from llvmlite import ir

from reorder.cpu.codecs.expressions import emit_expression
from reorder.cpu.codecs.x86 import are_special, round_to_bfloat
from reorder.cpu.llvm.emit import Value, where
from reorder.cpu.llvm.vectors import GROUP, Vectors, any_nan, greater, lesser
from reorder.cpu.target import has_bfloat, has_half
from reorder.values.codecs import decode_exponent, decode_float
from reorder.values.expressions import name
from reorder.values.formats import FLOATS, ExponentFormat, FloatFormat, Format

_F32 = FLOATS["f32"]
_MAGNITUDE = _F32.sign - 1
# formats that have conversion instructions
_HALF, _BFLOAT = FLOATS["f16"], FLOATS["bf16"]


def decode(vectors: Vectors, codes: Value, form: FloatFormat | ExponentFormat) -> Value:
    """Return f32 values of f32 or a narrower format."""
    f32 = vectors.values("f32")
    if form == _F32:
        return codes.bitcast(f32)
    if form == _HALF and has_half():
        return codes.bitcast(vectors.vector(ir.HalfType())).fpext(f32)
    wide, code = codes.zext(vectors.integers(32)), name("code", "u32")
    if isinstance(form, ExponentFormat):
        return emit_expression(vectors, decode_exponent(code, form, _F32), wide)
    return emit_expression(vectors, decode_float(code, form, _F32, has_denormals=True), wide)


def encode_exponent(vectors: Vectors, values: Value) -> Value:
    """Return the exponents of f32 values, as i32; infinities and NaN have all bits set."""
    return (values.bitcast(vectors.integers(32)) << 1).lshr(_F32.mantissa + 1)


def as_f32(vectors: Vectors, values: Value, form: FloatFormat | None = None) -> Value:
    """Return values as f32: rounded to nearest if that is the target `form`, else to odd."""
    f32 = vectors.values("f32")
    if values.type == f32:
        return values
    return values.fptrunc(f32) if form == _F32 else _round_to_odd(vectors, values)


def _round_to_odd(vectors: Vectors, values: Value) -> Value:
    """Round f64 to f32 by round-to-odd: truncate, and set the last bit if inexact.

    A second rounding, to fewer bits, then gives the same result as a single rounding.
    """
    f32 = vectors.values("f32")
    nearest = values.fptrunc(f32)
    back = nearest.fpext(vectors.values("f64"))
    bits = nearest.bitcast(vectors.integers(32))
    magnitude = vectors.absolute(values)
    grew = (vectors.absolute(back) > magnitude) & (magnitude < 2.0**128)
    bits = where(grew, bits - 1, bits)
    inexact = (back != values) & (magnitude < 2.0**128)
    return where(inexact, bits | 1, bits).bitcast(f32)


def canonicalises_in_branch(form: Format, work: str) -> bool:
    """Whether `encode_float` itself makes NaN canonical, in a branch that rarely runs.

    It does so for formats with f32's exponent width, which it tests for NaN anyway.
    """
    is_cut = isinstance(form, FloatFormat) and form.exponent == _F32.exponent and form != _F32
    return is_cut and work == "f32"


def encode_float(
    vectors: Vectors,
    values: Value,
    form: FloatFormat,
    *,
    may_be_denormal: bool = True,
    canonical: bool = False,
) -> Value:
    """Return the codes of f32 values in f32 or a narrower format.

    They have the width of the format, or 32 bits where `truncated` is yet to narrow them. With
    `canonical` NaN has no payload, in formats for which `canonicalises_in_branch` holds.
    """
    if form == _HALF and has_half():
        return values.fptrunc(vectors.vector(ir.HalfType())).bitcast(vectors.integers(16))
    bits = values.bitcast(vectors.integers(32))
    if form == _F32:
        return bits
    if form == _BFLOAT and has_bfloat() and not may_be_denormal and vectors.lanes >= GROUP:
        return round_to_bfloat(vectors, values)
    if form.exponent == _F32.exponent:
        return _cut_mantissa(vectors, bits, form, canonical=canonical)
    return _rounded_codes(vectors, bits, form)


def _rounded_codes(vectors: Vectors, bits: Value, form: FloatFormat) -> Value:
    """Return the codes, as i32, of f32 bits in a format with fewer bits of exponent."""
    i32, f32 = bits.type, vectors.values("f32")
    cut = _F32.mantissa - form.mantissa
    bias = (_F32.bias - form.bias) << _F32.mantissa
    magnitude = bits & _MAGNITUDE
    # larger numbers and NaN become this one, whose code follows that of the largest number
    bounded = lesser(magnitude, magnitude.like(bias + (form.overflow << cut)))
    # the power of two below `bounded`, at least that of the least normal number
    least = bias + (1 << _F32.mantissa)
    power = greater(bounded & _F32.overflow, bounded.like(least))
    # adding this number rounds to the last mantissa bit of the format
    large = power + (cut << _F32.mantissa)
    total = bounded.bitcast(f32) + large.bitcast(f32)
    codes = power.lshr(cut) - (least >> cut) + (total.bitcast(i32) - large)
    if form.nan != form.overflow:
        nan = bits.like(form.nan)
        if form.has_inf:
            nan |= bits.lshr(cut) & ((1 << form.mantissa) - 1)
        codes = where(magnitude.above(_F32.overflow), nan, codes)
    sign = bits.lshr(_F32.bits - form.bits) & form.sign
    if not form.has_negative_zero:
        sign = where(codes == 0, 0, sign)
    return codes | sign


def _cut_mantissa(vectors: Vectors, bits: Value, form: FloatFormat, *, canonical: bool) -> Value:
    """Return the codes of f32 bits in a format of 16 bits with the same exponent."""
    cut = _F32.mantissa - form.mantissa
    half = 1 << (cut - 1)
    is_odd = (bits & (1 << cut)) != 0
    rounded = vectors.upper_halves(where(is_odd, bits + half, bits + (half - 1)))

    def quieten() -> Value:
        quiet = vectors.upper_halves(bits) | (1 << (form.mantissa - 1))
        quiet = rounded.like(form.nan) if canonical else quiet
        return where((bits << 1).above(2 * _F32.overflow), quiet, rounded)

    values = bits.bitcast(vectors.values("f32"))
    if vectors.lanes < GROUP:
        return quieten()
    if form == _BFLOAT and has_bfloat():
        made = round_to_bfloat(vectors, values)
        return vectors.rarely(are_special(vectors, values), quieten, made)
    # NaN is rare: one unordered comparison of the two halves tests all lanes
    return vectors.rarely(any_nan(*vectors.halves(values)), quieten, rounded)
