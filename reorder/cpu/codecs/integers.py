"""Integers and booleans: codes to values of a working type and back, in vectors."""

from memdesc.dtypes import BYTE_BITS
from reorder.cpu.codecs.x86 import narrow_integers, narrows_registers, rounded
from reorder.cpu.llvm.emit import Value, maximum, minimum, where
from reorder.cpu.llvm.vectors import GROUP, Vectors, code_bits, greater, is_number, lesser
from reorder.cpu.target import has_masks, is_arm
from reorder.values.formats import FLOATS, INTEGERS, BooleanFormat, IntegerFormat

# The type that saturating instructions narrow registers from.
_NARROWED = "s32"


def decode_integer(vectors: Vectors, codes: Value, form: IntegerFormat, work: str) -> Value:
    """Return the values of codes; as floats they are rounded to nearest, ties to even."""
    width = codes.type.element.width
    if form.is_signed and form.bits < width:
        codes = (codes ^ -form.low) - -form.low
    bits = code_bits(work) if work in INTEGERS else 32
    if width < bits:
        wide = vectors.integers(bits)
        codes = codes.sext(wide) if form.is_signed else codes.zext(wide)
    if work in INTEGERS:
        return codes
    # zero-extended codes are also non-negative signed integers, whose conversion is faster
    is_unsigned = not form.is_signed and form.bits >= bits
    kind = vectors.values(work)
    return codes.uitofp(kind) if is_unsigned else codes.sitofp(kind)


def encode_integer(
    vectors: Vectors, values: Value, work: str, form: IntegerFormat, *, may_be_nan: bool
) -> Value:
    """Return the codes of values, saturated; floats are rounded, ties to even, and NaN is 0."""
    width = max(form.bits, BYTE_BITS)
    if work == _NARROWED and narrows_registers(vectors.lanes, form.bits):
        return narrow_integers(vectors, values, form)
    codes = (
        _clamp(values, INTEGERS[work], form)
        if work in INTEGERS
        else _round(vectors, values, work, form, may_be_nan=may_be_nan)
    )
    if codes.type.element.width != width:
        codes = codes.trunc(vectors.integers(width))
    return codes if form.bits == width else codes & ((1 << form.bits) - 1)


def _clamp(values: Value, work: IntegerFormat, form: IntegerFormat) -> Value:
    """Saturate integers; bounds outside the range of the working type have no effect."""
    low, high = (values.like(n) for n in (max(form.low, work.low), min(form.high, work.high)))
    if not work.is_signed:
        return greater(lesser(values, high), low)
    return maximum(minimum(values, high), low)


def _round(
    vectors: Vectors, values: Value, work: str, form: IntegerFormat, *, may_be_nan: bool
) -> Value:
    """Round floats to nearest, ties to even, and saturate; NaN becomes 0."""
    if form.bits == code_bits(work):
        return _round_to_width(vectors, values, form, may_be_nan=may_be_nan)
    if work == "f32" and narrows_registers(vectors.lanes, form.bits):
        return narrow_integers(
            vectors, _round_below(vectors, values, form, may_be_nan=may_be_nan), form
        )
    if work == "f32" and vectors.lanes == GROUP and has_masks() and form.is_signed:
        # LLVM finds the instruction that saturates a single register
        return _clamp(
            _round_below(vectors, values, form, may_be_nan=may_be_nan), INTEGERS[_NARROWED], form
        )
    # The first comparison makes NaN the least number, if that is 0. On ARM, LLVM makes it a
    # maximum, which keeps signalling NaN.
    if (form.low or is_arm()) and may_be_nan:
        values = where(is_number(values), values, 0.0)
    low, high = (values.like(float(limit)) for limit in form)
    values = minimum(maximum(values, low), high)
    # the last mantissa bit of this number is worth 1: adding it rounds to an integer, which the
    # low bits of the sum hold
    magic = 1.5 * 2.0 ** FLOATS[work].mantissa
    return (values + magic).bitcast(vectors.integers(code_bits(work)))


def _round_to_width(
    vectors: Vectors, values: Value, form: IntegerFormat, *, may_be_nan: bool
) -> Value:
    """Round floats to integers as wide as they are, and saturate; NaN becomes 0."""
    integers, suffix = vectors.integers(form.bits), vectors.suffix(values.type)
    values = vectors.call(f"llvm.rint.{suffix}", values.type, values)
    # LLVM would saturate lane by lane. The upper limit is not a float, but the power of
    # two above it is: lanes that reach that, and lanes with NaN, are replaced
    bounded = maximum(values, values.like(float(form.low)))
    codes = bounded.fptosi(integers) if form.is_signed else bounded.fptoui(integers)
    codes = where(values >= float(form.high + 1), form.high, codes)
    return where(is_number(values), codes, 0) if form.low and may_be_nan else codes


def _round_below(
    vectors: Vectors, values: Value, form: IntegerFormat, *, may_be_nan: bool
) -> Value:
    """Round f32 to s32, at most the format's upper limit; NaN becomes 0 or the least s32."""
    # NaN passes this comparison, and rounding makes it the least s32: 0 in an unsigned format
    high = values.like(float(form.high))
    bounded = where(high < values, high, values)
    if form.is_signed and may_be_nan:
        bounded = where(is_number(values), bounded, 0.0)
    return rounded(vectors, bounded)


def decode_boolean(vectors: Vectors, codes: Value, work: str) -> Value:
    """Return 1 for every code but 0."""
    is_true, kind = codes != 0, vectors.values(work)
    return is_true.zext(kind) if work in INTEGERS else is_true.uitofp(kind)


def encode_boolean(vectors: Vectors, values: Value, work: str, form: BooleanFormat) -> Value:
    """Return true for every value but 0.0 and -0.0."""
    if work not in INTEGERS:
        # bits are compared, since the processor may be set to treat denormal floats as zeros
        values = values.bitcast(vectors.integers(code_bits(work))) << 1
    return where(values != 0, vectors.splat(vectors.integers(BYTE_BITS), form.true), 0)
