"""OpenCL C between the codes of integers and booleans, and values of a working type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.values.formats import INTEGERS, IntegerFormat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.float_codec import Wide

__all__ = [
    "clamp_integer",
    "float_of_integer",
    "integer_literal",
    "integer_value",
    "native_integer",
    "round_integer",
]

_INT, _UINT, _LONG = INTEGERS["s32"], INTEGERS["u32"], INTEGERS["s64"]
# type in OpenCL C -> its range
_NATIVE = {"int": _INT, "uint": _UINT, "long": _LONG, "ulong": INTEGERS["u64"]}
_NARROW, _WORD = 16, 32


def native_integer(form: IntegerFormat) -> str:
    """Return the first type in OpenCL C that has all numbers of a format."""
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
