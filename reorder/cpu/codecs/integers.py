"""Integers and booleans: codes to values of a working type and back, in vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir

from reorder.cpu.codecs.vectors import GROUP, Known, code_bits
from reorder.cpu.codecs.x86 import narrow_integers, narrows_registers, rounded
from reorder.cpu.kernels.shuffle import LANE_BITS, concatenate
from reorder.cpu.target import BYTE_BITS, has_masks, is_arm, saturates_floats
from reorder.values.formats import FLOATS, INTEGERS, IntegerFormat

if TYPE_CHECKING:
    from reorder.cpu.codecs.vectors import Vectors
    from reorder.cpu.kernels.emit import Value
    from reorder.values.formats import BooleanFormat

__all__ = ["decode_boolean", "decode_integer", "encode_boolean", "encode_integer"]

# The type from which saturating instructions narrow registers.
_NARROWED = "s32"


def decode_integer(vectors: Vectors, codes: Value, form: IntegerFormat, work: str) -> Value:
    """Return the values of codes; as floats they are rounded to nearest, ties to even."""
    builder = vectors.builder
    if form.is_signed and form.bits < codes.type.element.width:
        sign = vectors.splat(codes.type, -form.low)
        codes = builder.sub(builder.xor(codes, sign), sign)
    bits = code_bits(work) if work in INTEGERS else 32
    if codes.type.element.width < bits:
        codes = (builder.sext if form.is_signed else builder.zext)(codes, vectors.integers(bits))
    if work in INTEGERS:
        return codes
    # zero-extended codes are also non-negative signed integers, whose conversion is faster
    is_unsigned = not form.is_signed and form.bits >= bits
    return (builder.uitofp if is_unsigned else builder.sitofp)(codes, vectors.values(work))


def encode_integer(
    vectors: Vectors, values: Value, work: str, form: IntegerFormat, known: Known
) -> Value:
    """Return the codes of values, saturated; floats are rounded, ties to even, and NaN is 0."""
    builder, vector_type = vectors.builder, vectors.integers(max(form.bits, BYTE_BITS))
    if work == _NARROWED and narrows_registers(vectors.lanes, form.bits):
        return narrow_integers(vectors, values, form)
    codes = (
        _clamp(vectors, values, INTEGERS[work], form)
        if work in INTEGERS
        else _round(vectors, values, work, form, known)
    )
    codes = builder.trunc(codes, vector_type) if codes.type != vector_type else codes
    if form.bits == vector_type.element.width:
        return codes
    return builder.and_(codes, vectors.splat(vector_type, (1 << form.bits) - 1))


def _clamp(vectors: Vectors, values: Value, work: IntegerFormat, form: IntegerFormat) -> Value:
    """Saturate integers; bounds outside the range of the working type have no effect."""
    builder, vector_type = vectors.builder, values.type
    low = vectors.splat(vector_type, max(form.low, work.low))
    high = vectors.splat(vector_type, min(form.high, work.high))
    compare = builder.icmp_signed if work.is_signed else builder.icmp_unsigned
    values = builder.select(compare("<", values, high), values, high)
    return builder.select(compare(">", values, low), values, low)


def _round(vectors: Vectors, values: Value, work: str, form: IntegerFormat, known: Known) -> Value:
    """Round floats to nearest, ties to even, and saturate; NaN becomes 0."""
    builder, vector_type = vectors.builder, values.type
    integers = vectors.integers(code_bits(work))
    if form.bits == code_bits(work):
        return _round_to_width(vectors, values, form, known)
    if saturates_floats() and vectors.lanes * code_bits(work) >= LANE_BITS:
        return _saturate(vectors, values, work, form)
    low, high = (vectors.splat(vector_type, float(limit)) for limit in form)
    if work == "f32" and narrows_registers(vectors.lanes, form.bits):
        return narrow_integers(vectors, _round_below(vectors, values, form, known), form)
    if work == "f32" and vectors.lanes == GROUP and has_masks() and form.is_signed:
        # LLVM finds the instruction that saturates a single register
        return _clamp(
            vectors, _round_below(vectors, values, form, known), INTEGERS[_NARROWED], form
        )
    # The first comparison makes NaN the least number, if that is 0. On ARM, LLVM makes it a
    # maximum, which keeps signalling NaN.
    if (form.low or is_arm()) and not known:
        is_number = builder.fcmp_ordered("ord", values, values)
        values = builder.select(is_number, values, vectors.splat(vector_type, 0.0))
    values = builder.select(builder.fcmp_ordered(">", values, low), values, low)
    values = builder.select(builder.fcmp_ordered("<", values, high), values, high)
    # the last mantissa bit of this number is worth 1: adding it rounds to an integer, which the
    # low bits of the sum hold
    magic = 1.5 * 2.0 ** FLOATS[work].mantissa
    return builder.bitcast(builder.fadd(values, vectors.splat(vector_type, magic)), integers)


def _round_to_width(vectors: Vectors, values: Value, form: IntegerFormat, known: Known) -> Value:
    """Round floats to integers as wide as they are, and saturate; NaN becomes 0."""
    builder, vector_type = vectors.builder, values.type
    integers, suffix = vectors.integers(form.bits), vectors.suffix(vector_type)
    values = vectors.call(f"llvm.rint.{suffix}", vector_type, values)
    if saturates_floats():
        name = f"llvm.fpto{'s' if form.is_signed else 'u'}i.sat"
        return vectors.call(f"{name}.{vectors.suffix(integers)}.{suffix}", integers, values)
    # elsewhere LLVM would saturate lane by lane; the first power of two beyond the limit is a
    # float, which the limit itself is not, and its lanes and those of NaN are replaced
    is_high = builder.fcmp_ordered(">=", values, vectors.splat(vector_type, float(form.high + 1)))
    low = vectors.splat(vector_type, float(form.low))
    bounded = builder.select(builder.fcmp_ordered(">", values, low), values, low)
    convert = builder.fptosi if form.is_signed else builder.fptoui
    codes = convert(bounded, integers)
    codes = builder.select(is_high, vectors.splat(integers, form.high), codes)
    if form.low and not known:
        is_number = builder.fcmp_ordered("ord", values, values)
        codes = builder.select(is_number, codes, vectors.splat(integers, 0))
    return codes


def _round_below(vectors: Vectors, values: Value, form: IntegerFormat, known: Known) -> Value:
    """Round f32 to s32; NaN becomes 0 or least, and what exceeds the limit becomes the limit."""
    builder, high = vectors.builder, vectors.splat(values.type, float(form.high))
    is_number = builder.fcmp_ordered("ord", values, values)
    # NaN is kept, and becomes the least number: 0 in an unsigned format
    values = builder.select(builder.fcmp_ordered("<", high, values), high, values)
    if form.is_signed and not known:
        values = builder.select(is_number, values, vectors.splat(values.type, 0.0))
    return rounded(vectors, values)


def _saturate(vectors: Vectors, values: Value, work: str, form: IntegerFormat) -> Value:
    """Round floats to integers of the same width, and halve that width down to the format's.

    Each step saturates, so that LLVM uses the saturating instructions; NaN becomes 0.
    """
    builder = vectors.builder
    bits, code_width = code_bits(work), max(form.bits, BYTE_BITS)
    lanes = LANE_BITS // bits
    kind = f"v{lanes}i{bits}.v{lanes}f{bits}"
    parts = [
        vectors.call(
            f"llvm.aarch64.neon.fcvtns.{kind}", ir.VectorType(ir.IntType(bits), lanes), part
        )
        for part in vectors.parts(values, lanes)
    ]
    codes = concatenate(builder, parts)
    while bits > code_width:
        wide = _signed(bits)
        bits //= 2
        limits = form if bits == code_width else _signed(bits)
        codes = builder.trunc(_clamp(vectors, codes, wide, limits), vectors.integers(bits))
    return codes


def _signed(bits: int) -> IntegerFormat:
    return IntegerFormat(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def decode_boolean(vectors: Vectors, codes: Value, work: str) -> Value:
    """Return 1 for every code but 0."""
    builder = vectors.builder
    is_true = builder.icmp_unsigned("!=", codes, vectors.splat(codes.type, 0))
    if work in INTEGERS:
        return builder.zext(is_true, vectors.values(work))
    return builder.uitofp(is_true, vectors.values(work))


def encode_boolean(vectors: Vectors, values: Value, work: str, form: BooleanFormat) -> Value:
    """Return true for every value but 0.0 and -0.0."""
    builder = vectors.builder
    numbers = vectors.integers(code_bits(work))
    if work not in INTEGERS:
        # bits are compared, since the processor may be set to treat denormal floats as zeros
        bits = builder.bitcast(values, numbers)
        values = builder.shl(bits, vectors.splat(numbers, 1))
    true = vectors.splat(vectors.integers(8), form.true)
    return vectors.select("!=", values, 0, true, vectors.splat(true.type, 0))
