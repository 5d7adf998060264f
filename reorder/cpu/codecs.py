"""Elements to values and back, in vectors: the rules of `reorder.values.convert` in LLVM.

A value is of a working type: f32, f64, s64 or u64. Codes are the bits of elements, as vectors of
integers of their width; here a 4-bit code is the low half of a byte. A type's row in
`reorder.values.formats` decides which instructions convert it.
"""

import operator
from collections.abc import Callable
from functools import reduce

from llvmlite import ir

from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from reorder.cpu.llvm.emit import (
    Builder,
    IRValue,
    Type,
    Value,
    call,
    constant,
    maximum,
    minimum,
    phi,
    where,
)
from reorder.cpu.llvm.shuffle import concatenate, pick
from reorder.cpu.machine import LANE_BITS, LINE_BITS
from reorder.cpu.target import has_bfloat, has_half, has_masks
from reorder.system import is_arm
from reorder.values.codecs import decode_exponent, decode_float, encode_exponent, encode_float
from reorder.values.expressions import Expr, name
from reorder.values.formats import (
    FLOATS,
    FORMATS,
    INTEGERS,
    BooleanFormat,
    ExponentFormat,
    FloatFormat,
    IntegerFormat,
)

_I32, _FLOAT, _DOUBLE = ir.IntType(32), ir.FloatType(), ir.DoubleType()
_F32 = FLOATS["f32"]
_VALUES = {work: name("value", work) for work in FLOATS}
# formats that have conversion instructions
_HALF, _BFLOAT = FLOATS["f16"], FLOATS["bf16"]
# The type that saturating instructions narrow registers from.
_NARROWED = "s32"


class _BfloatType(ir.HalfType):  # type: ignore[misc] # llvmlite ships no types
    """LLVM's `bfloat`, which llvmlite lacks."""

    def __str__(self) -> str:
        return "bfloat"


_BfloatType._create_instance()  # noqa: SLF001 - llvmlite creates its types this way
_BFLOAT_TYPE = _BfloatType()

# Fewest lanes for which a branch around rare numbers pays off: a 512-bit register of f32.
GROUP = 16


def code_bits(name: str) -> int:
    """Return the width of the integers that hold codes of a type: at least a byte."""
    return max(DATA_TYPES[name].bits, BYTE_BITS)


class Codec:
    """Vectors of `lanes` elements, their conversion to values and back, and their instructions."""

    def __init__(self, builder: Builder, lanes: int) -> None:
        self.builder = builder
        self.lanes = lanes

    def vector(self, element: Type) -> Type:
        """Return the vector type of an element type."""
        return ir.VectorType(element, self.lanes)

    def integers(self, bits: int) -> Type:
        """Return the type of codes."""
        return self.vector(ir.IntType(bits))

    def values(self, work: str) -> Type:
        """Return the type of values of a working type."""
        if work in FLOATS:
            return self.vector(_DOUBLE if work == "f64" else _FLOAT)
        return self.integers(code_bits(work))

    def splat(self, vector_type: Type, value: float) -> Value:
        """Return a constant in every lane."""
        return IRValue(self.builder, constant(vector_type, value))

    def call(self, name: str, result: Type, *arguments: Value) -> Value:
        """Call an LLVM intrinsic by its full name."""
        return call(self.builder, name, result, *arguments)

    def floats(self, name: str, *operands: Value) -> Value:
        """Call an LLVM intrinsic of floats, like fma, which has their type."""
        vector = operands[0].type
        letter = "f64" if vector.element == _DOUBLE else "f32"
        return self.call(f"llvm.{name}.v{self.lanes}{letter}", vector, *operands)

    def parts(self, vector: Value, count: int) -> list[Value]:
        """Return the parts of a vector that have `count` lanes each."""
        starts = range(0, self.lanes, count)
        return [pick(vector, range(start, start + count)) for start in starts]

    def rarely(self, tests: Value, emit: Callable[[], Value], otherwise: Value) -> Value:
        """Return what `emit` returns, for all lanes, if any of the tests holds, else `otherwise`.

        The code that `emit` emits is in a branch marked as unlikely.
        """
        builder = self.builder
        is_any = tests.bitcast(ir.IntType(tests.type.count)) != 0
        before = builder.block
        with builder.if_then(is_any, likely=False):
            made = emit()
            after = builder.block
        return phi((otherwise, before), (made, after))

    def decode(self, codes: Value, name: str, work: str) -> Value:
        """Return the values of codes of a type, in a working type."""
        target = self.values(work)
        if name == work:
            return codes.bitcast(target)
        match FORMATS[name]:
            case IntegerFormat() as form:
                return _decode_integer(self, codes, form, work)
            case BooleanFormat():
                is_true = codes != 0
                return is_true.zext(target) if work in INTEGERS else is_true.uitofp(target)
            case ExponentFormat() | FloatFormat() as form:
                values = _decode_float(self, codes, form)
        return values.fpext(target)

    def canonical(self, values: Value, work: str) -> Value:
        """Return floats in which every NaN is the positive quiet NaN without payload."""
        nan = self.splat(self.integers(code_bits(work)), FLOATS[work].nan)
        return where(is_number(values), values, nan.bitcast(values.type))

    def encode(
        self,
        values: Value,
        work: str,
        name: str,
        *,
        may_be_nan: bool = True,
        may_be_denormal: bool = True,
        canonical: bool = False,
    ) -> Value:
        """Return the codes, in the type `name`, of values of the working type `work`.

        Floats that cannot be NaN or denormal may be encoded faster. With `canonical=True` every
        NaN becomes the one that the method `canonical` returns.
        """
        form = FORMATS[name]
        # formats with f32's exponent width are tested for NaN anyway: in a branch that rarely runs
        is_cut = isinstance(form, FloatFormat) and form.exponent == _F32.exponent and form != _F32
        if canonical and name not in INTEGERS and not (is_cut and work == "f32"):
            values = self.canonical(values, work)
        if name == work:
            return values.bitcast(self.integers(code_bits(name)))
        match form:
            case IntegerFormat():
                return _encode_integer(self, values, work, form, may_be_nan=may_be_nan)
            case BooleanFormat():
                return _encode_boolean(self, values, work, form)
            case ExponentFormat():
                codes = _emit_expression(self, encode_exponent(_VALUES[work], form), values)
            case FloatFormat():
                codes = _encode_float(
                    self, values, form, may_be_denormal=may_be_denormal, canonical=canonical
                )
        bits = code_bits(name)
        if codes.type.element == _I32 and _narrows_registers(self, bits):
            return _narrow_integers(self, codes, IntegerFormat(0, (1 << bits) - 1))
        return codes.trunc(self.integers(bits))


def is_number(values: Value) -> Value:
    """Whether floats are not NaN."""
    return IRValue(values.builder, values.builder.fcmp_ordered("ord", values, values))


def any_nan(left: Value, right: Value) -> Value:
    """Whether a float or the one in the same lane of another vector is NaN."""
    return IRValue(left.builder, left.builder.fcmp_unordered("uno", left, right))


def lesser(left: Value, right: Value) -> Value:
    """Return the lesser of two unsigned numbers."""
    return where(left.below(right), left, right)


def _decode_integer(codec: Codec, codes: Value, form: IntegerFormat, work: str) -> Value:
    """Return the values of codes; as floats they are rounded to nearest, ties to even."""
    width = codes.type.element.width
    if form.is_signed and form.bits < width:
        codes = (codes ^ -form.low) - -form.low
    bits = code_bits(work) if work in INTEGERS else 32
    if width < bits:
        wide = codec.integers(bits)
        codes = codes.sext(wide) if form.is_signed else codes.zext(wide)
    if work in INTEGERS:
        return codes
    # zero-extended codes are also non-negative signed integers, whose conversion is faster
    is_unsigned = not form.is_signed and form.bits >= bits
    floats = codec.values(work)
    return codes.uitofp(floats) if is_unsigned else codes.sitofp(floats)


def _decode_float(codec: Codec, codes: Value, form: FloatFormat | ExponentFormat) -> Value:
    """Return f32 values of f32 or a narrower format."""
    f32 = codec.values("f32")
    if form == _F32:
        return codes.bitcast(f32)
    if form == _HALF and has_half():
        return codes.bitcast(codec.vector(ir.HalfType())).fpext(f32)
    wide, code = codes.zext(codec.integers(32)), name("code", "u32")
    if isinstance(form, ExponentFormat):
        return _emit_expression(codec, decode_exponent(code, form, _F32), wide)
    return _emit_expression(codec, decode_float(code, form, _F32, has_denormals=True), wide)


# The operators of `reorder.values.expressions`. Codes have fewer bits than the numbers they are
# computed in, so signed comparisons will do.
_OPERATORS: dict[str, Callable[..., Value]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "&": operator.and_,
    "|": operator.or_,
    "<<": operator.lshift,
    ">>": lambda number, count: number.lshr(count),
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    "==": operator.eq,
    "?": where,
    "let": lambda value: value,
}


def _emit_expression(codec: Codec, root: Expr, given: Value) -> Value:
    """Return an expression of floats and unsigned numbers, in which a name stands for `given`."""
    emitted: dict[int, Value] = {}

    def emit(node: Expr) -> Value:
        if id(node) not in emitted:
            emitted[id(node)] = emit_new(node)
        return emitted[id(node)]

    def emit_new(node: Expr) -> Value:
        match node.op:
            case "number":
                return codec.splat(codec.values(node.dtype), node.value)
            case "name":
                return given
            case "as":
                return emit(node.args[0]).bitcast(codec.values(node.dtype))
            case "cast":
                return emit(node.args[0]).sitofp(codec.values(node.dtype))
            case "<<" | ">>":
                number, count = node.args
                return _OPERATORS[node.op](emit(number), count.value)
        return _OPERATORS[node.op](*map(emit, node.args))

    return emit(root)


def _encode_integer(
    codec: Codec, values: Value, work: str, form: IntegerFormat, *, may_be_nan: bool
) -> Value:
    """Return the codes of values, saturated; floats are rounded, ties to even, and NaN is 0."""
    width, narrows = max(form.bits, BYTE_BITS), _narrows_registers(codec, form.bits)
    # LLVM finds the instruction that saturates a single register
    is_single = codec.lanes == GROUP and has_masks() and form.is_signed and form.bits < _I32.width
    if work == "f32" and (narrows or is_single):
        values = _round_registers(codec, values, form, may_be_nan=may_be_nan)
        work = _NARROWED
    if work == _NARROWED and narrows:
        return _narrow_integers(codec, values, form)
    codes = (
        _clamp(values, INTEGERS[work], form)
        if work in INTEGERS
        else _round(codec, values, work, form, may_be_nan=may_be_nan)
    )
    codes = codes.trunc(codec.integers(width))
    return codes if form.bits == width else codes & ((1 << form.bits) - 1)


def _clamp(values: Value, work: IntegerFormat, form: IntegerFormat) -> Value:
    """Saturate integers; bounds outside the range of the working type have no effect."""
    high = values.like(min(form.high, work.high))
    if not work.is_signed:
        # no type starts above 0
        return lesser(values, high)
    return maximum(minimum(values, high), max(form.low, work.low))


def _round(
    codec: Codec, values: Value, work: str, form: IntegerFormat, *, may_be_nan: bool
) -> Value:
    """Round floats to nearest, ties to even, and saturate; NaN becomes 0."""
    if form.bits == code_bits(work):
        return _round_to_width(codec, values, form, may_be_nan=may_be_nan)
    # The first comparison turns NaN into the least number, if that is 0. On ARM, LLVM turns the
    # comparison into a maximum, which keeps signalling NaN.
    if (form.low or is_arm()) and may_be_nan:
        values = where(is_number(values), values, 0.0)
    low, high = (values.like(float(limit)) for limit in form)
    values = minimum(maximum(values, low), high)
    # the last mantissa bit of this number is worth 1: adding it rounds to an integer, which the
    # low bits of the sum hold
    magic = 1.5 * 2.0 ** FLOATS[work].mantissa
    return (values + magic).bitcast(codec.integers(code_bits(work)))


def _round_to_width(codec: Codec, values: Value, form: IntegerFormat, *, may_be_nan: bool) -> Value:
    """Round floats to integers as wide as they are, and saturate; NaN becomes 0."""
    integers = codec.integers(form.bits)
    values = codec.floats("rint", values)
    # LLVM would saturate lane by lane. The upper limit is not a float, but the power of two above
    # it is: lanes that reach this power, and lanes with NaN, are replaced
    bounded = maximum(values, values.like(float(form.low)))
    codes = bounded.fptosi(integers) if form.is_signed else bounded.fptoui(integers)
    codes = where(values >= float(form.high + 1), form.high, codes)
    return where(is_number(values), codes, 0) if form.low and may_be_nan else codes


def _encode_boolean(codec: Codec, values: Value, work: str, form: BooleanFormat) -> Value:
    """Return true for every value but 0.0 and -0.0."""
    if work not in INTEGERS:
        # bits are compared, since the processor may be set to treat denormal floats as zeros
        values = values.bitcast(codec.integers(code_bits(work))) << 1
    return where(values != 0, codec.splat(codec.integers(BYTE_BITS), form.true), 0)


def _encode_float(
    codec: Codec, values: Value, form: FloatFormat, *, may_be_denormal: bool, canonical: bool
) -> Value:
    """Return the codes of values in another format, perhaps in wider integers.

    With `canonical` NaN has no payload, in formats with f32's exponent width.
    """
    values = _as_f32(codec, values, form)
    if form == _F32:
        return values.bitcast(codec.integers(32))
    if form == _HALF and has_half():
        return values.fptrunc(codec.vector(ir.HalfType())).bitcast(codec.integers(16))
    if form.exponent == _F32.exponent:
        if form == _BFLOAT and has_bfloat() and not may_be_denormal and codec.lanes >= GROUP:
            return _round_to_bfloat(codec, values)
        return _cut_mantissa(codec, values.bitcast(codec.integers(32)), form, canonical=canonical)
    return _emit_expression(codec, encode_float(_VALUES["f32"], form), values)


def _as_f32(codec: Codec, values: Value, form: FloatFormat) -> Value:
    """Return values as f32; for a narrower format rounded to odd, two bits longer than that.

    Rounding these to nearest equals a single rounding.
    """
    f32 = codec.values("f32")
    if values.type != f32 and form != _F32:
        low = (1 << (FLOATS["f64"].mantissa - form.mantissa - 2)) - 1
        bits = values.bitcast(codec.integers(64))
        # the sum sets the last bit that stays if any lower one is set
        values = (((bits & low) + low | bits) & ~low).bitcast(values.type)
    return values.fptrunc(f32)


def _cut_mantissa(codec: Codec, bits: Value, form: FloatFormat, *, canonical: bool) -> Value:
    """Return the codes of f32 bits in a format of 16 bits with the same exponent."""
    cut = _F32.mantissa - form.mantissa
    half = 1 << (cut - 1)
    is_odd = (bits & (1 << cut)) != 0

    def upper_halves(numbers: Value) -> Value:
        parts = numbers.bitcast(ir.VectorType(ir.IntType(16), 2 * codec.lanes))
        return pick(parts, range(1, 2 * codec.lanes, 2))

    rounded = upper_halves(where(is_odd, bits + half, bits + (half - 1)))

    def quieten() -> Value:
        quiet = upper_halves(bits) | (1 << (form.mantissa - 1))
        quiet = rounded.like(form.nan) if canonical else quiet
        return where((bits << 1).above(2 * _F32.overflow), quiet, rounded)

    values = bits.bitcast(codec.values("f32"))
    if codec.lanes < GROUP:
        return quieten()
    if form == _BFLOAT and has_bfloat():
        made = _round_to_bfloat(codec, values)
        return codec.rarely(_are_special(codec, values), quieten, made)
    # NaN is rare: one unordered comparison of the two halves tests all lanes
    return codec.rarely(any_nan(*codec.parts(values, codec.lanes // 2)), quieten, rounded)


# Instructions of AVX-512 that LLVM does not choose by itself, for registers of f32 and s32.

# classes of numbers that the instruction vfpclassps tests: quiet NaN, denormal, signalling NaN
_NAN_OR_DENORMAL = 0x01 | 0x20 | 0x80
# rounding operand of an instruction: to nearest, no exceptions
_TO_NEAREST = 8


def _are_special(codec: Codec, values: Value) -> Value:
    """Return a flag for each lane of 512 bits: whether any 512-bit part has a NaN or denormal."""
    flag = ir.VectorType(ir.IntType(1), GROUP)
    what = ir.Constant(_I32, _NAN_OR_DENORMAL)
    parts = codec.parts(values, GROUP)
    flags = [codec.call("llvm.x86.avx512.fpclass.ps.512", flag, part, what) for part in parts]
    return reduce(operator.or_, flags)


def _round_to_bfloat(codec: Codec, values: Value) -> Value:
    """Return the codes of f32 values in bf16; denormals become zeros."""
    if codec.lanes % (2 * GROUP):
        return values.fptrunc(codec.vector(_BFLOAT_TYPE)).bitcast(codec.integers(16))
    # LLVM by itself would convert each register, and join two by a third instruction
    name = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
    pair = ir.VectorType(_BFLOAT_TYPE, 2 * GROUP)
    parts = codec.parts(values, GROUP)
    joined = [codec.call(name, pair, *of[::-1]) for of in zip(parts[::2], parts[1::2], strict=True)]
    codes = ir.VectorType(ir.IntType(16), 2 * GROUP)
    return concatenate([part.bitcast(codes) for part in joined])


def _round_registers(
    codec: Codec, values: Value, form: IntegerFormat, *, may_be_nan: bool
) -> Value:
    """Round f32 to s32, at most the format's upper limit; NaN becomes 0 or the least s32."""
    # NaN passes this comparison, and rounding makes it the least s32: 0 in an unsigned format
    high = values.like(float(form.high))
    bounded = where(high < values, high, values)
    if form.is_signed and may_be_nan:
        bounded = where(is_number(values), bounded, 0.0)
    vector = ir.VectorType(_I32, GROUP)
    # zeros for lanes outside the mask, which has all lanes
    options = (
        *(ir.Constant(vector, None), ir.Constant(ir.IntType(GROUP), -1)),
        ir.Constant(_I32, _TO_NEAREST),
    )
    parts = codec.parts(bounded, GROUP)
    name = "llvm.x86.avx512.mask.cvtps2dq.512"
    return concatenate([codec.call(name, vector, part, *options) for part in parts])


def _narrows_registers(codec: Codec, bits: int) -> bool:
    """Whether integers of `bits` bits fill whole registers, as `_narrow_integers` needs."""
    is_narrow = bits in {BYTE_BITS, 2 * BYTE_BITS}
    return has_masks() and is_narrow and codec.lanes * bits % LINE_BITS == 0


def _narrow_integers(codec: Codec, codes: Value, form: IntegerFormat) -> Value:
    """Saturate integers of s32 to a format of 8 or 16 bits, two registers by one instruction."""
    parts, bits = codec.parts(codes, GROUP), _I32.width
    while bits > form.bits:
        bits //= 2
        # integers that are narrowed again keep their sign
        sign = "s" if form.is_signed or bits > form.bits else "u"
        name = f"llvm.x86.avx512.pack{sign}s{'dw' if bits > BYTE_BITS else 'wb'}.512"
        vector = ir.VectorType(ir.IntType(bits), LINE_BITS // bits)
        parts = [codec.call(name, vector, *of) for of in zip(parts[::2], parts[1::2], strict=True)]
    # each 128-bit lane has some of each of the registers
    registers = _I32.width // form.bits
    size = LANE_BITS // registers
    count, lanes = LINE_BITS // size, LINE_BITS // LANE_BITS
    order = [lane * registers + k for k in range(registers) for lane in range(lanes)]
    chunks = ir.VectorType(ir.IntType(size), count)
    return concatenate([pick(part.bitcast(chunks), order).bitcast(part.type) for part in parts])
