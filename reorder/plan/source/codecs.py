"""Functions in C that decode and encode the elements of a type, written from its row in the table.

They equal `reorder.values.convert` bit for bit. Floats of at most 16 bits are decoded into doubles
and encoded from them with integers; casts of C do the rest. The text is C11 and C++17.

`reorder.opencl.kernel.codecs` writes the same codecs from the same rows in another way: devices may
have no doubles and flush denormals, and each instruction counts there; this text is read by people,
and trusts IEEE 754. A test compares both on all codes of 8 and 16 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.values.formats import (
    FLOATS,
    FORMATS,
    BooleanFormat,
    ExponentFormat,
    FloatFormat,
    IntegerFormat,
)

if TYPE_CHECKING:
    from memdesc import DataType
    from memdesc.source import Language

__all__ = ["WORKING", "Codecs"]

# working type -> its name in C
WORKING = {"f32": "float", "f64": "double", "s64": "int64_t", "u64": "uint64_t"}
_WIDE = FLOATS["f64"]
# doubles from here on are integers
_WHOLE = "4503599627370496.0"
_INT64_MIN = "(-9223372036854775807 - 1)"


class Codecs:
    """The decoders and encoders that a conversion needs, each written once.

    Parameters
    ----------
    language : Language
        C or C++.
    name : str
        What names of functions start with.
    """

    def __init__(self, language: Language, name: str) -> None:
        self._language = language
        self._name = name
        self.functions: dict[str, list[str]] = {}

    def decoded(self, code: str, dtype: DataType, work: str) -> str:
        """Return the expression of a value in a working type, from that of an element."""
        match FORMATS[dtype.name]:
            case IntegerFormat() as form if dtype.is_packed and form.is_signed:
                sign = 1 << (form.bits - 1)
                return f"({WORKING[work]})(({code} ^ {sign}) - {sign})"
            case IntegerFormat():
                return f"({WORKING[work]}){code}"
            case BooleanFormat():
                return f"({WORKING[work]})({code} != 0)"
            case FloatFormat() if dtype.bits in self._language.floats:
                return f"({WORKING[work]}){code}"
            case FloatFormat() as form:
                body = _decode_float(form)
            case ExponentFormat() as form:
                body = _decode_exponent(form)
        name = self._function("decode", dtype, "double", "uint64_t code", body)
        return f"({WORKING[work]}){name}({code})"

    def encoded(self, value: str, dtype: DataType, work: str) -> str:
        """Return the expression of an element, from that of a value in a working type."""
        kind = self._language.type_of(dtype)
        match FORMATS[dtype.name]:
            case FloatFormat() if dtype.bits in self._language.floats:
                return f"({kind}){value}"
            case BooleanFormat(true):
                return f"({kind})({value} != 0 ? {true} : 0)"
            case IntegerFormat() as form if work in {"s64", "u64"}:
                body = _clamp_integer(form, kind, work)
            case IntegerFormat() as form:
                body = _round_integer(form, kind)
            case FloatFormat() as form:
                body = _encode_float(form, kind)
            case ExponentFormat() as form:
                body = _encode_exponent(form, kind)
        taken = WORKING[work] if work in {"s64", "u64"} else "double"
        return f"{self._function('encode', dtype, kind, f'{taken} value', body)}({value})"

    def _function(self, what: str, dtype: DataType, result: str, taken: str, body: str) -> str:
        name = f"{self._name}_{what}_{dtype.name}"
        lines = [line for line in body.splitlines() if line.strip()]
        self.functions[name] = [f"static {result} {name}({taken})", "{", *lines, "}"]
        return name


def _bits(value: int) -> str:
    return f"UINT64_C({value:#x})"


def _decode_float(form: FloatFormat) -> str:
    """Return the body of a decoder: exact, a NaN keeps its sign and payload and becomes quiet."""
    up = _WIDE.mantissa - form.mantissa
    low = (1 << (form.exponent + form.mantissa)) - 1
    step = float(2.0 ** (1 - form.bias - form.mantissa))
    special = ""
    if form.has_inf:
        special = f"""
    if (code > {form.largest:#x}) {{
        bits = {_bits(_WIDE.overflow)};
    }}
    if (code > {form.overflow:#x}) {{
        bits = {_bits(_WIDE.nan)} | code << {up};
    }}"""
    elif form.has_nan and form.has_negative_zero:
        special = f"""
    if (code == {form.nan:#x}) {{
        bits = {_bits(_WIDE.nan)};
    }}"""
    elif form.has_nan:
        special = f"""
    if (sign != 0 && code == 0) {{
        bits = {_bits(_WIDE.nan)};
    }}"""
    return f"""
    const uint64_t sign = code >> {form.bits - 1};
    double value = 0;
    uint64_t bits = 0;
    code &= {low:#x};
    if (code < {1 << form.mantissa:#x}) {{
        value = (double)code * {step!r};
        memcpy(&bits, &value, sizeof bits);
    }} else {{
        bits = (code + {(_WIDE.bias - form.bias) << form.mantissa:#x}) << {up};
    }}{special}
    bits |= sign << 63;
    memcpy(&value, &bits, sizeof value);
    return value;"""


def _decode_exponent(form: ExponentFormat) -> str:
    return f"""
    uint64_t bits = (code + {_WIDE.bias - form.bias}) << {_WIDE.mantissa};
    double value = 0;
    if (code == {form.nan:#x}) {{
        bits = {_bits(_WIDE.nan)};
    }}
    memcpy(&value, &bits, sizeof value);
    return value;"""


def _encode_float(form: FloatFormat, kind: str) -> str:
    """Return the body of an encoder: the nearest number, ties to even, denormals included."""
    down = _WIDE.mantissa - form.mantissa
    bias = _WIDE.bias - form.bias
    payload = f" | (code >> {down} & {(1 << form.mantissa) - 1:#x})" if form.has_inf else ""
    signed = f"code | bits >> 63 << {form.bits - 1}"
    if not form.has_negative_zero:
        signed = f"code == 0 ? 0 : {signed}"
    return f"""
    uint64_t bits = 0, code = 0, shift = {down};
    memcpy(&bits, &value, sizeof bits);
    code = bits & {_bits((1 << 63) - 1)};
    if (code > {_bits(_WIDE.overflow)}) {{
        code = {form.nan:#x}{payload};
    }} else {{
        const uint64_t exponent = code >> {_WIDE.mantissa};
        if (exponent > {bias}) {{
            code -= {_bits(bias << _WIDE.mantissa)};
        }} else {{
            code = (code & {_bits((1 << _WIDE.mantissa) - 1)}) | {_bits(1 << _WIDE.mantissa)};
            shift += {bias + 1} - exponent;
            shift = shift > {_WIDE.mantissa + 2} ? {_WIDE.mantissa + 2} : shift;
        }}
        code = (code + ((UINT64_C(1) << (shift - 1)) - 1) + (code >> shift & 1)) >> shift;
        if (code > {form.largest:#x}) {{
            code = {form.overflow:#x};
        }}
    }}
    return ({kind})({signed});"""


def _encode_exponent(form: ExponentFormat, kind: str) -> str:
    """Return the body of an encoder: the exponent of the magnitude, rounded down."""
    return f"""
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    bits = bits << 1 >> {_WIDE.mantissa + 1};
    if (bits <= {_WIDE.bias - form.bias}) {{
        return 0;
    }}
    bits -= {_WIDE.bias - form.bias};
    return ({kind})(bits > {form.nan} ? {form.nan} : bits);"""


def _round_integer(form: IntegerFormat, kind: str) -> str:
    """Return the body of an encoder: to the nearest, ties to even; it saturates, and NaN is 0."""
    low, high = (f"({kind})({_code(number, form)})" for number in (form.low, form.high))
    whole = "int64_t" if form.is_signed else "uint64_t"
    code = f"({whole})rounded"
    code = f"{code} & 15" if form.bits < 8 else code  # noqa: PLR2004 - two in a byte
    return f"""
    const double magnitude = value < 0 ? -value : value;
    double rounded = magnitude;
    if (magnitude < {_WHOLE}) {{
        rounded = (magnitude + {_WHOLE}) - {_WHOLE};
    }}
    rounded = value < 0 ? -rounded : rounded;
    if (value != value) {{
        return 0;
    }}
    if (rounded <= {float(form.low)!r}) {{
        return {low};
    }}
    if (rounded >= {float(form.high)!r}) {{
        return {high};
    }}
    return ({kind})({code});"""


def _clamp_integer(form: IntegerFormat, kind: str, work: str) -> str:
    """Return the body of an encoder: an integer that saturates."""
    wide = FORMATS[work]
    assert isinstance(wide, IntegerFormat)  # noqa: S101 - for the type checker
    text = ""
    for compare, number, limit in (("<", form.low, wide.low), (">", form.high, wide.high)):
        if number > limit if compare == "<" else number < limit:
            text += f"""
    if (value {compare} {number}) {{
        return ({kind})({_code(number, form)});
    }}"""
    code = "value & 15" if form.bits < 8 else "value"  # noqa: PLR2004 - two in a byte
    return f"""{text}
    return ({kind})({code});"""


def _code(number: int, form: IntegerFormat) -> str:
    """Return the literal of an integer that a type holds; of 4 bits, of its code."""
    if form.bits < 8:  # noqa: PLR2004 - two in a byte
        return str(number & 15)
    if number == FORMATS["s64"].low:  # type: ignore[union-attr] # s64 is an integer
        return _INT64_MIN
    return f"UINT64_C({number})" if number > FORMATS["s64"].high else str(number)  # type: ignore[union-attr] # likewise
