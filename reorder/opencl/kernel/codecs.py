"""OpenCL C between the codes of an element and values of a working type.

Devices may flush denormals, change NaNs, or lack halves: so bits are computed as
`reorder.values.convert` says, by integers alone, from the row of a type in
`reorder.values.formats`. The codecs in C of `reorder.plan.source.codecs` come from the same rows,
but may use doubles and casts; a test compares both on all codes of 8 and 16 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reorder.values.formats import FLOATS, INTEGERS, ExponentFormat, FloatFormat, IntegerFormat

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeGuard

    from reorder.values.formats import Format

__all__ = [
    "WIDE",
    "Wide",
    "clamp_integer",
    "decode_exponent",
    "decode_float",
    "decode_half",
    "drop_payload",
    "encode_exact",
    "encode_exponent",
    "encode_float",
    "encode_half",
    "float_of_integer",
    "has_integers",
    "has_nan",
    "integer_value",
    "is_half",
    "native_integer",
    "pixel_of_half",
    "round_code",
    "round_integer",
    "rounds_code",
    "saturate",
]


class Wide(NamedTuple):
    """A working type: its format, its name in OpenCL C, the integers of its bits."""

    form: FloatFormat
    real: str
    bits: str
    suffix: str

    def number(self, value: int) -> str:
        """Return the literal of bits."""
        return f"{value:#x}{self.suffix}"

    @property
    def magnitude(self) -> str:
        """Return the expression of the bits of x without its sign."""
        return f"(as_{self.bits}(x) & {self.number(self.form.sign - 1)})"


WIDE = {
    "f32": Wide(FLOATS["f32"], "float", "uint", "u"),
    "f64": Wide(FLOATS["f64"], "double", "ulong", "ul"),
}

_NARROW = 16

# A denormal that is not decoded is read as a number below 2^(1 - bias). With a bias above this one
# it is less than a quarter, so it rounds to 0, as the denormal does.
_SMALL = 2


def decode_float(form: FloatFormat, wide: Wide, *, is_rounded: bool = False) -> Iterator[str]:
    """Return the body of a decoder of `code`; a NaN keeps its sign and payload.

    With `is_rounded` the value is used only to be rounded to an integer: denormals that become 0
    need not be decoded.
    """
    if form == wide.form:
        yield f"return as_{wide.real}(code);"
        return
    up = wide.form.mantissa - form.mantissa
    low = (1 << (form.bits - 1)) - 1
    yield f"const {wide.bits} magnitude = code & {low:#x};"
    yield f"const {wide.bits} sign = ({wide.bits})(code >> {form.bits - 1});"
    bias = wide.number((wide.form.bias - form.bias) << form.mantissa)
    yield f"{wide.bits} bits = (magnitude + {bias}) << {up};"
    if form.bias != wide.form.bias and not (is_rounded and form.bias > _SMALL):
        # the lowest bit is worth 2^(1 - bias - mantissa)
        step = f"0x1p{1 - form.bias - form.mantissa}{'f' if wide.real == 'float' else ''}"
        yield f"if (magnitude < {1 << form.mantissa:#x})"
        yield f"    bits = as_{wide.bits}(({wide.real})magnitude * {step});"
    if form.has_inf:
        yield f"if (magnitude > {form.largest:#x}) bits = {wide.number(wide.form.overflow)};"
        nan = wide.number(wide.form.nan)
        yield f"if (magnitude > {form.overflow:#x}) bits = {nan} | magnitude << {up};"
    elif form.has_nan:
        code = "magnitude" if form.has_negative_zero else "code"
        yield f"if ({code} == {form.nan:#x}) bits = {wide.number(wide.form.nan)};"
    yield f"return as_{wide.real}(bits | sign << {wide.form.bits - 1});"


def decode_exponent(form: ExponentFormat, wide: Wide) -> Iterator[str]:
    """Return the body of a decoder of `code`."""
    bias = wide.form.bias - form.bias
    yield f"{wide.bits} bits = ({wide.bits})(code + {bias}) << {wide.form.mantissa};"
    if not bias:
        # code 0 is a denormal: the highest bit of its mantissa
        yield f"if (code == 0) bits = {wide.number(1 << (wide.form.mantissa - 1))};"
    yield f"if (code == {form.nan:#x}) bits = {wide.number(wide.form.nan)};"
    yield f"return as_{wide.real}(bits);"


def encode_float(form: FloatFormat, wide: Wide) -> Iterator[str]:
    """Return the body of an encoder of `value`: to the nearest, ties to even, and NaN is quiet."""
    one, mantissa = wide.number(1), wide.form.mantissa
    infinity = wide.number(wide.form.overflow)
    yield f"const {wide.bits} bits = as_{wide.bits}(value);"
    yield f"{wide.bits} code = bits & {wide.number(wide.form.sign - 1)};"
    if form == wide.form:
        yield f"return code > {infinity} ? bits | {wide.number(1 << (mantissa - 1))} : bits;"
        return
    down, bias = mantissa - form.mantissa, wide.form.bias - form.bias
    payload = f" | (code >> {down} & {(1 << form.mantissa) - 1:#x})" if form.has_inf else ""
    yield f"if (code > {infinity}) {{"
    yield f"    code = {form.nan:#x}{payload};"
    yield "} else {"
    yield f"    {wide.bits} shift = {down};"
    if bias:
        yield f"    const {wide.bits} exponent = code >> {mantissa};"
        yield f"    if (exponent > {bias}) {{"
        yield f"        code -= {wide.number(bias << mantissa)};"
        yield "    } else {"
        implicit = wide.number(1 << mantissa)
        yield f"        code = (code & {wide.number((1 << mantissa) - 1)}) | {implicit};"
        yield f"        shift = min(shift + {bias + 1} - exponent, ({wide.bits}){mantissa + 2});"
        yield "    }"
    odd = f"(code >> shift & {one})"
    yield f"    code = (code + (({one} << (shift - 1)) - 1) + {odd}) >> shift;"
    yield f"    if (code > {form.largest:#x}) code = {form.overflow:#x};"
    yield "}"
    sign = f"bits >> {wide.form.bits - 1} << {form.bits - 1}"
    if not form.has_negative_zero:
        sign = f"(code == 0 ? 0 : {sign})"
    yield f"return (uint)(code | {sign});"


def encode_exact(form: FloatFormat, wide: Wide, *, is_signed: bool = True) -> Iterator[str]:
    """Return the body of an encoder of `value`, which is 0 or a normal number of the format."""
    down, bias = wide.form.mantissa - form.mantissa, wide.form.bias - form.bias
    # the exponent of the product is that of the code
    scale = f" * 0x1p-{bias}{'f' if wide.real == 'float' else ''}" if bias else ""
    yield f"const {wide.bits} bits = as_{wide.bits}(value{scale});"
    if not is_signed:
        yield f"return (uint)(bits >> {down});"
        return
    magnitude = f"(bits & {wide.number(wide.form.sign - 1)})"
    sign = f"bits >> {wide.form.bits - 1} << {form.bits - 1}"
    yield f"return (uint)({magnitude} >> {down} | {sign});"


def has_integers(form: Format, src: IntegerFormat, wide: Wide) -> TypeGuard[FloatFormat]:
    """Whether a float narrower than the working type has all numbers of an integer type."""
    if not isinstance(form, FloatFormat) or form == wide.form:
        return False
    return max(-src.low, src.high) <= min(form.max, 2 << form.mantissa)


def rounds_code(wanted: Format, form: FloatFormat) -> TypeGuard[IntegerFormat]:
    """Whether `round_code` suits two types.

    Denormals must become 0, and the code of an infinity, read as a number, must be out of range.
    """
    single = WIDE["f32"].form
    if not isinstance(wanted, IntegerFormat) or wanted.bits > _NARROW:
        return False
    if form.bits > _NARROW or form.bias <= _SMALL:
        return False
    beyond = 2.0 ** ((form.overflow >> form.mantissa) - form.bias)
    return not form.has_inf or form.bias == single.bias or beyond >= max(wanted.high, -wanted.low)


def round_code(form: FloatFormat, wanted: IntegerFormat) -> Iterator[str]:
    """Return the body of a function from the code of a float to that of the nearest integer.

    It saturates, and NaN is 0.
    """
    wide = WIDE["f32"]
    up, bias = wide.form.mantissa - form.mantissa, wide.form.bias - form.bias
    scale = f" * 0x1p{bias}f" if bias else ""
    last = form.overflow if form.has_inf else min(form.nan, form.sign) - 1
    low, high = (f"{float(limit)!r}f" for limit in wanted)
    yield f"const uint magnitude = code & {form.sign - 1:#x};"
    if wanted.is_signed:
        sign = f"code >> {form.bits - 1} << {wide.form.bits - 1}"
        yield f"const float value = as_float(magnitude << {up} | {sign}){scale};"
        yield f"const float inside = fmin(fmax(value, {low}), {high});"
    else:
        yield f"const float inside = fmin(as_float(magnitude << {up}){scale}, {high});"
    # adding 1.5 * 2^23 rounds to an integer, which the low bits of the sum hold
    magic = 1.5 * 2.0**wide.form.mantissa
    yield f"const uint rounded = as_uint(inside + {magic!r}f) & {(1 << wanted.bits) - 1:#x}u;"
    # the codes of negative numbers are above those of NaN
    yield f"return {'magnitude' if wanted.is_signed else 'code'} > {last:#x} ? 0u : rounded;"


def encode_exponent(form: ExponentFormat, wide: Wide) -> Iterator[str]:
    """Return the body of an encoder of `value`: the exponent of the magnitude, rounded down."""
    bias = wide.form.bias - form.bias
    yield f"const uint exponent = (uint)(as_{wide.bits}(value) << 1 >> {wide.form.mantissa + 1});"
    yield f"return exponent <= {bias} ? 0 : min(exponent - {bias}, {form.nan}u);"


def has_nan(form: Format) -> bool:
    """Whether numbers of a format may be NaN."""
    return isinstance(form, ExponentFormat) or (isinstance(form, FloatFormat) and form.has_nan)


def saturate(limit: float, wide: Wide, *, keeps_nan: bool) -> Iterator[str]:
    """Return the statements that bring x to the largest numbers; a NaN stays one.

    With `keeps_nan` its sign and payload stay too. Of comparisons of floats NVIDIA's compiler makes
    minima and maxima, which lose both.
    """
    if not keeps_nan:
        high = f"{float(limit).hex()}{'f' if wide.real == 'float' else ''}"
        yield f"x = x > {high} ? {high} : x;"
        yield f"x = x < -{high} ? -{high} : x;"
        return
    kinds = (np.float32, np.uint32) if wide.real == "float" else (np.float64, np.uint64)
    high = wide.number(int(kinds[0](limit).view(kinds[1])))
    yield f"if ({wide.magnitude} > {high} && {wide.magnitude} <= {wide.number(wide.form.overflow)})"
    yield f"    x = as_{wide.real}({high} | (as_{wide.bits}(x) & {wide.number(wide.form.sign)}));"


def drop_payload(wide: Wide) -> Iterator[str]:
    """Return the statement that makes a NaN the one that comes out of arithmetic."""
    nan = f"as_{wide.real}({wide.number(wide.form.nan)})"
    yield f"x = {wide.magnitude} > {wide.number(wide.form.overflow)} ? {nan} : x;"


def is_half(form: Format, wide: Wide) -> bool:
    """Whether a format and a working type are f16 and f32."""
    return form == FLOATS["f16"] and wide.form == FLOATS["f32"]


def pixel_of_half(*, is_native: bool) -> Iterator[str]:
    """Return the body of a function from a code to the number with which an image is written."""
    if is_native:
        return decode_half(keeps_payload=False)
    return decode_float(FLOATS["f16"], WIDE["f32"])


# `vload_half` and `vstore_half_rte` exist on every device, round to the nearest, ties to even, and
# flush no denormal half (OpenCL C 1.2, 6.1.1.1 and 6.12.7). They leave NaNs to the device, so these
# functions set a NaN's sign, and its payload where it is kept. GPUs have instructions for them; on
# processors the functions of runtimes are slower than integers.
def decode_half(*, keeps_payload: bool = True) -> Iterator[str]:
    """Return the body of a decoder of `code`; without its payload a NaN keeps its sign."""
    yield "const ushort half_code = (ushort)code;"
    yield "const uint bits = as_uint(vload_half(0, (const half *)&half_code));"
    sign = "(code & 0x8000) << 16"
    if keeps_payload:
        yield "const uint magnitude = code & 0x7fff;"
        yield f"const uint nan = 0x7fc00000 | magnitude << 13 | {sign};"
        yield "return as_float(magnitude > 0x7c00 ? nan : bits);"
    else:
        yield f"return as_float((bits & 0x7fffffff) | {sign});"


def encode_half(*, keeps_payload: bool = True) -> Iterator[str]:
    """Return the body of an encoder of `value`; without its payload a NaN keeps its sign."""
    yield "ushort half_code;"
    yield "vstore_half_rte(value, 0, (half *)&half_code);"
    yield "const uint bits = as_uint(value), sign = bits >> 16 & 0x8000;"
    if keeps_payload:
        yield "const uint magnitude = bits & 0x7fffffff;"
        yield "const uint nan = 0x7e00 | (magnitude >> 13 & 0x3ff) | sign;"
        yield "return magnitude > 0x7f800000 ? nan : (uint)half_code;"
    else:
        yield "return (half_code & 0x7fff) | sign;"


_WORD = 32
_INT, _UINT, _LONG = INTEGERS["s32"], INTEGERS["u32"], INTEGERS["s64"]

# type in OpenCL C -> its range
_NATIVE = {"int": _INT, "uint": _UINT, "long": _LONG, "ulong": INTEGERS["u64"]}


def native_integer(form: IntegerFormat) -> str:
    """Return the first type in OpenCL C that holds all numbers of a format."""
    return next(
        name
        for name, native in _NATIVE.items()
        if native.low <= form.low and form.high <= native.high
    )


def integer_value(code: str, form: IntegerFormat) -> str:
    """Return the expression of a number, in its native type, from that of its code."""
    native = native_integer(form)
    if form.is_signed and form.bits < _WORD:
        unused = _WORD - form.bits
        return f"((int)({code} << {unused}) >> {unused})"
    return f"(({native}){code})"


def float_of_integer(code: str, form: IntegerFormat, wide: Wide) -> str:
    """Return the expression of a number in a working type, rounded to the nearest."""
    if wide.real != "float" or form.bits > _NARROW:
        return f"convert_{wide.real}_rte({integer_value(code, form)})"
    # the bits of 2^23 + number are those of 2^23 and the number: an addition is faster than a
    # conversion on many devices
    one = wide.form.bias + wide.form.mantissa << wide.form.mantissa
    bits = f"({code} ^ {-form.low:#x}u)" if form.is_signed else code
    return f"(as_float({one:#x}u | {bits}) - {float((1 << wide.form.mantissa) - form.low)!r}f)"


def clamp_integer(form: IntegerFormat, native: str) -> Iterator[str]:
    """Return the body of an encoder of `value`, of a native type: it saturates."""
    wide = _NATIVE[native]
    if form.low > wide.low:
        yield f"if (value < {integer_literal(form.low)}) return {_code(form.low, form)};"
    if form.high < wide.high:
        yield f"if (value > {integer_literal(form.high)}) return {_code(form.high, form)};"
    yield f"return {_masked('value', form)};"


def round_integer(form: IntegerFormat, wide: Wide) -> Iterator[str]:
    """Return the body of an encoder of `value`, a float: ties to even; NaN is 0; it saturates."""
    suffix = "f" if wide.real == "float" else ""
    if suffix and form.bits <= _NARROW:
        yield from _round_narrow(form, wide)
        return
    magnitude = f"(as_{wide.bits}(value) & {wide.number(wide.form.sign - 1)})"
    yield f"const {wide.real} rounded = rint(value);"
    yield f"if ({magnitude} > {wide.number(wide.form.overflow)}) return 0;"
    yield f"if (rounded <= {float(form.low)!r}{suffix}) return {_code(form.low, form)};"
    yield f"if (rounded >= {float(form.high)!r}{suffix}) return {_code(form.high, form)};"
    yield f"return {_masked(f'({native_integer(form)})rounded', form)};"


def _round_narrow(form: IntegerFormat, wide: Wide) -> Iterator[str]:
    """Return the body for at most 16 bits: adding 1.5 * 2^23 rounds to an integer.

    The low bits of the sum hold it.
    """
    magic = 1.5 * 2.0**wide.form.mantissa
    yield f"const float inside = fmin(fmax(value, {float(form.low)!r}f), {float(form.high)!r}f);"
    yield f"const uint code = as_uint(inside + {magic!r}f) & {(1 << form.bits) - 1:#x}u;"
    yield f"return (as_uint(value) & 0x7fffffffu) > {wide.number(wide.form.overflow)} ? 0u : code;"


def integer_literal(number: int) -> str:
    """Return an integer as OpenCL C writes it."""
    if number == _LONG.low:
        return f"(-{_LONG.high}L - 1)"
    if number == _INT.low:
        return f"(-{_INT.high} - 1)"
    if _INT.low <= number <= _INT.high:
        return str(number)
    if number <= _UINT.high and number > 0:
        return f"{number}u"
    return f"{number}L" if number <= _LONG.high else f"{number}UL"


def _code(number: int, form: IntegerFormat) -> str:
    """Return the literal of the code of a number."""
    code = number & ((1 << form.bits) - 1)
    return f"{code:#x}{'UL' if form.bits > _WORD else 'u'}"


def _masked(value: str, form: IntegerFormat) -> str:
    if form.bits >= _WORD:
        return f"({'uint' if form.bits == _WORD else 'ulong'})({value})"
    return f"(uint)({value}) & {(1 << form.bits) - 1:#x}u"
