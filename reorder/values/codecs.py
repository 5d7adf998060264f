"""The conversion of one element as expressions: its codecs, and the formula of `reorder.Attr`.

A codec decodes an element's bits, its *code*, into a value, and encodes values. Results equal those
of `reorder.values.convert` bit for bit, even on devices that flush denormals or change NaNs: bits
are computed with integers and rounded by sums of normal numbers, from a type's row in
`reorder.values.formats`. C, OpenCL and LLVM (`reorder.cpu.codecs`) share the codecs of floats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, TypeGuard

from memdesc.dtypes import DATA_TYPES
from reorder.values.binding import BETA, BoundAttr
from reorder.values.expressions import Expr, Function, let, name, number, select
from reorder.values.formats import (
    FLOATS,
    FORMATS,
    INTEGERS,
    BooleanFormat,
    ExponentFormat,
    FloatFormat,
    Format,
    IntegerFormat,
    difference_type,
    largest_number,
    working_type,
)

_F32 = FLOATS["f32"]
# the types that integers are computed in, the narrowest first
_NATIVE = ("s32", "u32", "s64", "u64")
# integers of at most this many bits fit into the low bits of a sum with 1.5 * 2^23
_NARROW = 16
# Without a special case, a denormal is read as a number below 2^(1 - bias). If the bias is above
# this one, that number is less than a quarter, so it rounds to 0 as the denormal does.
_SMALL_BIAS = 2


@dataclass(frozen=True)
class Formula(ABC):
    """The data types of both sides, and the operations between them, as `values.convert` defines.

    A subclass for each language overrides what that language computes differently.
    """

    # names of data types
    src: str
    dst: str
    # roles whose value is one number, including `BETA`
    scalars: tuple[str, ...] = ()
    # roles whose values differ along the dims
    varying: tuple[str, ...] = ()
    # the working type: ``f32``, ``f64``, ``s64`` or ``u64``
    work: str = "f32"
    # The type in which zero points are subtracted. If it is f64 and `work` is f32, integers are
    # subtracted exactly.
    difference: str = "f32"
    # as in `BoundAttr`
    saturates: bool = False
    through_f16: bool = False

    @classmethod
    def of(cls, src: str, dst: str, bound: BoundAttr) -> Self:
        """Return the formula between two types, with the parameters of a reorder."""
        work = working_type(src, dst, arithmetic=bound.is_arithmetic)
        values = bound.by_role
        varying = tuple(operand.role for operand in bound.varying)
        scalars = tuple(role for role in values if role not in varying)
        difference = difference_type(src, work, values.get("src_zero_point"))
        rounding = bound.saturates, bound.through_f16
        return cls(src, dst, scalars, varying, work, difference, *rounding)

    @property
    def roles(self) -> tuple[str, ...]:
        """All scales, zero points, and beta."""
        return (*self.scalars, *self.varying)

    @property
    def is_move(self) -> bool:
        """Whether bits are only moved."""
        return self.src == self.dst and not self.roles

    @property
    def widths(self) -> tuple[int, int]:
        """Bits of an element of src and of dst."""
        return DATA_TYPES[self.src].bits, DATA_TYPES[self.dst].bits

    def operand_dtype(self, role: str) -> str:
        """Return the type of a scale, a zero point or beta; zero points are integers."""
        return "s32" if role.endswith("point") else self.work

    def function(
        self, called: str, names: tuple[str, str], constants: Mapping[str, float] = {}
    ) -> Function:
        """Return the function that converts an element; `names` are those of src's and dst's.

        It takes that of src, the roles that are not `constants` and, with beta, that of dst.
        """
        code, old = map(name, names, map(self.code_dtype, (self.src, self.dst)))
        types = {role: self.operand_dtype(role) for role in self.roles}
        params = {role: name(role, dtype) for role, dtype in types.items() if role not in constants}
        operands = params | {role: number(value, types[role]) for role, value in constants.items()}
        arguments = (code, *params.values(), *([old] if BETA in types else []))
        return Function(called, arguments, old.dtype, self._converted(code, operands, old))

    def _converted(self, code: Expr, operands: Mapping[str, Expr], old: Expr) -> Expr:
        """Return the element of dst."""
        roles, work, src, dst = self.roles, self.work, FORMATS[self.src], FORMATS[self.dst]
        if work in INTEGERS:
            x = code.differs(0).cast("s32")
            return self.encode(
                integer_of(code, src) if isinstance(src, IntegerFormat) else x, self.dst
            )
        if not roles and isinstance(src, FloatFormat) and self.rounds_code(dst, src):
            return _masked(_round_code(code.cast("u32"), src, dst), dst, self.code_dtype(self.dst))
        x = let("x", self._difference(code, operands))
        if "src_scale" in roles:
            x = let("scaled", operands["src_scale"] * x)
        if BETA in roles:
            x = let("total", x + let("added", operands[BETA] * self.decode(old, self.dst, work)))
        if "dst_scale" in roles:
            x = let("quotient", self.divide(x, operands["dst_scale"]))
        if "dst_zero_point" in roles:
            x = let("shifted", x + operands["dst_zero_point"].nearest(work))
        if isinstance(src, IntegerFormat) and not roles and _has_integers(dst, src, work):
            return _encode_exact(x, dst, self.code_dtype(self.dst), is_signed=src.is_signed)
        limit = largest_number(self.dst)
        if self.saturates and limit is not None:
            x = _saturate(x, limit, keeps_nan=not roles and self.src not in INTEGERS)
        if roles and isinstance(dst, FloatFormat):
            # every NaN becomes the quiet NaN without sign and payload
            nan = number(FLOATS[work].nan, f"u{work[1:]}").value_of_bits()
            x = let("quiet", select(_is_nan(x), nan, x))
        if self.through_f16:
            x = let("rounded", self.decode(self.encode(x, "f16"), "f16", work))
        return self.encode(x, self.dst)

    def _difference(self, code: Expr, operands: Mapping[str, Expr]) -> Expr:
        """Return the value of src minus its zero point."""
        x, form = self.decode(code, self.src, self.work), FORMATS[self.src]
        if "src_zero_point" not in self.roles or not isinstance(form, IntegerFormat):
            return x
        point = operands["src_zero_point"]
        if self.difference == self.work:
            # in f32 both are exact, and so is the difference
            return x - point.cast(self.work)
        # the difference of the integers, rounded once
        return (integer_of(code, form).cast("s64") - point.cast("s64")).nearest("f32")

    @abstractmethod
    def code_dtype(self, dtype: str) -> str:
        """Return the type of an element: a float, a number, or unsigned bits."""

    def decode(self, code: Expr, dtype: str, work: str) -> Expr:
        """Return the value of an element in a working type."""
        form = FORMATS[dtype]
        if isinstance(form, BooleanFormat):
            return code.differs(0).cast(work)
        if isinstance(form, IntegerFormat):
            return self.float_of_integer(code, form, work)
        if dtype == work:
            return code.value_of_bits()
        bits = name("code", f"u{work[1:]}")
        if isinstance(form, ExponentFormat):
            body = decode_exponent(bits, form, FLOATS[work])
        else:
            # denormals need not be decoded if they round to 0
            skips = not self.roles and self.dst in INTEGERS and form.bias > _SMALL_BIAS
            body = decode_float(bits, form, FLOATS[work], has_denormals=not skips)
        return Function(f"decode_{dtype}", (bits,), work, body)(code)

    def encode(self, value: Expr, dtype: str) -> Expr:
        """Return the element that is nearest to a value of a working type or of integers."""
        wanted, form, argument = self.code_dtype(dtype), FORMATS[dtype], name("value", value.dtype)
        if isinstance(form, BooleanFormat):
            # bits are compared, since a device may treat denormals as zeros
            tested = value if value.dtype in INTEGERS else value.bits() << 1
            return select(tested.differs(0), number(form.true, wanted), 0)
        if isinstance(form, FloatFormat):
            body = encode_float(argument, form)
        elif isinstance(form, ExponentFormat):
            body = encode_exponent(argument, form)
        elif value.dtype in INTEGERS:
            body = _masked(_clamp(argument, form), form, wanted)
        else:
            is_narrow = value.dtype == "f32" and form.bits <= _NARROW
            body = _masked((_round_narrow if is_narrow else _round)(argument, form), form, wanted)
        return Function(f"encode_{dtype}", (argument,), wanted, body.cast(wanted))(value)

    def float_of_integer(self, code: Expr, form: IntegerFormat, work: str) -> Expr:
        """Return the nearest float to an integer element."""
        return integer_of(code, form).nearest(work)

    def rounds_code(self, dst: Format, src: FloatFormat) -> TypeGuard[IntegerFormat]:
        """Whether the code of a float can be rounded as `_round_code` does.

        Denormals must become 0, and the code of infinity, read as a number, must be out of range.
        """
        if not isinstance(dst, IntegerFormat) or dst.bits > _NARROW:
            return False
        if src.bits > _NARROW or src.bias <= _SMALL_BIAS:
            return False
        beyond = 2.0 ** ((src.overflow >> src.mantissa) - src.bias)
        return not src.has_inf or src.bias == _F32.bias or beyond >= max(dst.high, -dst.low)

    def divide(self, x: Expr, y: Expr) -> Expr:
        """Return a correctly rounded quotient of floats."""
        return x / y


def magnitude_of(value: Expr) -> Expr:
    """Return the bits of a float without its sign."""
    return value.bits() & FLOATS[value.dtype].sign - 1


def _is_nan(value: Expr) -> Expr:
    """Whether a float is NaN: tested by its bits, since compilers may assume that none is."""
    return magnitude_of(value) > FLOATS[value.dtype].overflow


def decode_float(code: Expr, form: FloatFormat, wide: FloatFormat, *, has_denormals: bool) -> Expr:
    """Return a float exactly; a NaN keeps its sign and payload, and becomes quiet."""
    up, bias = wide.mantissa - form.mantissa, wide.bias - form.bias
    magnitude = let("magnitude", code & form.sign - 1)
    if not bias:
        bits = let("bits", code << up)
        return select(magnitude > form.overflow, bits | wide.nan, bits).value_of_bits()
    bits = magnitude + (bias << form.mantissa) << up
    if has_denormals:
        dtype = f"f{wide.bits}"
        step = number(2.0 ** (1 - form.bias - form.mantissa), dtype)
        denormal = let("denormal", (magnitude.cast(dtype) * step).bits())
        bits = select(magnitude < 1 << form.mantissa, denormal, let("normal", bits))
    if form.has_inf:
        nan = let("nan", magnitude << up | wide.nan)
        special = let("special", select(magnitude > form.overflow, nan, wide.overflow))
        bits = select(magnitude <= form.largest, let("finite", bits), special)
    elif form.has_nan:
        tested = magnitude if form.has_negative_zero else code
        bits = select(tested.equals(form.nan), wide.nan, let("finite", bits))
    return (let("bits", bits) | code >> form.bits - 1 << wide.bits - 1).value_of_bits()


def decode_exponent(code: Expr, form: ExponentFormat, wide: FloatFormat) -> Expr:
    """Return a power of two, or NaN."""
    bias = wide.bias - form.bias
    bits = (code + bias if bias else code) << wide.mantissa
    if not bias:
        # code 0 is a denormal: the highest bit of its mantissa
        bits = select(code.equals(0), 1 << wide.mantissa - 1, bits)
    return let("bits", select(code.equals(form.nan), wide.nan, bits)).value_of_bits()


def encode_float(value: Expr, form: FloatFormat) -> Expr:
    """Return the code of the nearest number, ties to even; a NaN becomes quiet."""
    wide = FLOATS[value.dtype]
    bits = let("bits", value.bits())
    magnitude = let("magnitude", bits & wide.sign - 1)
    if form == wide:
        return select(magnitude > wide.overflow, bits | 1 << wide.mantissa - 1, bits)
    down, bias = wide.mantissa - form.mantissa, wide.bias - form.bias
    if not bias:
        # what is rounded up from the largest number is infinite
        upper, half = let("upper", bits >> down), (1 << down - 1) - 1
        rounded = let("rounded", bits + half + (upper & 1) >> down)
        return select(magnitude > wide.overflow, upper | form.nan, rounded)
    # larger numbers and NaN become this one, whose code follows that of the largest number
    limit = (bias << wide.mantissa) + (form.overflow << down)
    bounded = let("bounded", select(magnitude < limit, magnitude, limit))
    # the power of two below it, at least that of the least normal number
    least = bias + 1 << wide.mantissa
    power = let("power", bounded & wide.overflow)
    power = let("raised", select(power > least, power, least))
    # adding this number rounds to the last mantissa bit of the format
    large = let("large", power + (down << wide.mantissa))
    total = let("total", bounded.value_of_bits() + large.value_of_bits())
    code = let("finite", (power >> down) - (least >> down) + (total.bits() - large))
    if form.nan != form.overflow:
        nan: Expr | int = form.nan
        if form.has_inf:
            nan = let("nan", magnitude >> down & (1 << form.mantissa) - 1 | form.nan)
        code = let("code", select(magnitude > wide.overflow, nan, code))
    sign = bits >> wide.bits - 1 << form.bits - 1
    return code | (sign if form.has_negative_zero else select(code.equals(0), 0, sign))


def encode_exponent(value: Expr, form: ExponentFormat) -> Expr:
    """Return the exponent of the magnitude, rounded down."""
    wide = FLOATS[value.dtype]
    bias = wide.bias - form.bias
    exponent = let("exponent", value.bits() << 1 >> wide.mantissa + 1)
    code = let("code", exponent - bias if bias else exponent)
    return select(exponent <= bias, 0, select(code > form.nan, form.nan, code))


def _has_integers(form: Format, src: IntegerFormat, work: str) -> TypeGuard[FloatFormat]:
    """Whether a float format is narrower than the working type and exact for an integer type."""
    if not isinstance(form, FloatFormat) or form == FLOATS[work]:
        return False
    return max(-src.low, src.high) <= min(form.max, 2 << form.mantissa)


def _encode_exact(value: Expr, form: FloatFormat, dtype: str, *, is_signed: bool) -> Expr:
    """Return the code of a value that is 0 or a normal number of a format."""
    wide = FLOATS[value.dtype]
    down, bias = wide.mantissa - form.mantissa, wide.bias - form.bias
    # the exponent bits of the product are those of the code
    bits = let("bits", (value * number(2.0**-bias, value.dtype) if bias else value).bits())
    if is_signed:
        sign = bits >> wide.bits - 1 << form.bits - 1
        return ((bits & wide.sign - 1) >> down | sign).cast(dtype)
    return (bits >> down).cast(dtype)


def _round_code(code: Expr, form: FloatFormat, wanted: IntegerFormat) -> Expr:
    """Return the code of the nearest integer from that of a float; it saturates, and NaN is 0."""
    up, bias = _F32.mantissa - form.mantissa, _F32.bias - form.bias
    last = form.overflow if form.has_inf else min(form.nan, form.sign) - 1
    magnitude = let("magnitude", code & form.sign - 1)
    bits = magnitude << up
    if wanted.is_signed:
        bits = bits | code >> form.bits - 1 << _F32.bits - 1
    value = bits.value_of_bits()
    value = let("value", value * number(2.0**bias, "f32") if bias else value)
    if wanted.is_signed:
        value = let("raised", value.at_least(number(wanted.low, "f32")))
    # the codes of negative numbers are above those of NaN
    tested = magnitude if wanted.is_signed else code
    return select(tested > last, 0, _low_bits(value, wanted))


def _round_narrow(value: Expr, form: IntegerFormat) -> Expr:
    """Return the code of the nearest integer of at most 16 bits, ties to even; NaN is 0."""
    raised = let("raised", value.at_least(number(form.low, "f32")))
    return select(_is_nan(value), 0, _low_bits(raised, form))


def _low_bits(value: Expr, form: IntegerFormat) -> Expr:
    """Return the bits of value + 1.5 * 2^23, whose lowest are the nearest integer, up to `high`."""
    inside = let("inside", value.at_most(number(form.high, "f32")))
    return let("rounded", (inside + 1.5 * 2.0**_F32.mantissa).bits())


def _round(value: Expr, form: IntegerFormat) -> Expr:
    """Return the nearest integer, ties to even; it saturates, and NaN is 0."""
    native = _native_dtype(form)
    low, high = (number(limit, native) for limit in form)
    whole = let("rounded", select(_is_nan(value), number(0, value.dtype), value.rint()))
    inside = select(whole >= float(form.high), high, whole.cast(native))
    return let("inside", select(whole <= float(form.low), low, inside))


def _clamp(value: Expr, form: IntegerFormat) -> Expr:
    """Return an integer, saturated."""
    wide = INTEGERS[value.dtype]
    if form.low > wide.low:
        value = let("raised", select(value < form.low, form.low, value))
    if form.high < wide.high:
        value = let("inside", select(value > form.high, form.high, value))
    return value


def _masked(value: Expr, form: IntegerFormat, dtype: str) -> Expr:
    """Return the lowest bits of an integer, as an element."""
    has_more = int(dtype[1:]) > form.bits
    return (value & (1 << form.bits) - 1 if has_more else value).cast(dtype)


def _native_dtype(form: IntegerFormat) -> str:
    return next(
        dtype
        for dtype in _NATIVE
        if INTEGERS[dtype].low <= form.low and form.high <= INTEGERS[dtype].high
    )


def integer_of(code: Expr, form: IntegerFormat) -> Expr:
    """Return the value of an integer element, in the narrowest native type that holds its type."""
    native = _native_dtype(form)
    if form.is_signed and not INTEGERS[code.dtype].is_signed and form.bits < int(native[1:]):
        # the sign is extended
        return (code ^ -form.low).cast(native) - -form.low
    # languages promote narrower integers themselves
    return code.cast(native) if code.dtype in _NATIVE else code


def _saturate(x: Expr, limit: float, *, keeps_nan: bool) -> Expr:
    """Return a float clamped to plus and minus the limit; a NaN stays NaN.

    With `keeps_nan`, its bits stay too: NVIDIA's compiler makes minima of comparisons of floats.
    """
    high, low = number(limit, x.dtype), number(-limit, x.dtype)
    if not keeps_nan:
        x = let("lowered", select(x > high, high, x))
        return let("saturated", select(x < low, low, x))
    magnitude, wide = let("magnitude", magnitude_of(x)), FLOATS[x.dtype]
    is_beyond = (magnitude > high.bits()).also(magnitude <= wide.overflow)
    at_limit = (x.bits() & wide.sign | high.bits()).value_of_bits()
    return let("saturated", select(is_beyond, at_limit, x))
