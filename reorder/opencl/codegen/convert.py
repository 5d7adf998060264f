"""The conversion of one element as functions in OpenCL C: from the bits of src to those of dst.

Kernel bodies call it for each element: `converted` takes and returns expressions of bits, of `uint`
or, for types of 64 bits, `ulong`. The functions are generated from the table of formats, and equal
`reorder.values.convert` bit for bit on every device: codes are computed with integers, and nothing
is contracted (`HEAD`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from memdesc import DATA_TYPES
from reorder.opencl.codegen.conversion import BETA, Conversion
from reorder.opencl.codegen.float_codec import (
    WIDE,
    decode_exponent,
    decode_float,
    drop_payload,
    encode_exact,
    encode_exponent,
    encode_float,
    has_integers,
    has_nan,
    round_code,
    rounds_code,
    saturate,
)
from reorder.opencl.codegen.half_codec import decode_half, encode_half, pixel_of_half, uses_halves
from reorder.opencl.codegen.integer_codec import (
    clamp_integer,
    float_of_integer,
    integer_value,
    native_integer,
    round_integer,
)
from reorder.opencl.codegen.quotient import QUOTIENT, quotient_lines
from reorder.values.formats import (
    FORMATS,
    BooleanFormat,
    ExponentFormat,
    FloatFormat,
    IntegerFormat,
    largest_number,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from reorder.opencl.codegen.float_codec import Wide

__all__ = [
    "PIXEL",
    "code_type",
    "conversion_lines",
    "converted",
    "decoder_of",
    "operand_type",
    "operand_value",
]

_PRAGMA = "#pragma OPENCL FP_CONTRACT OFF"
_FP64 = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable"
_WORD = 32
# the function that widens the bits of f16 to a float, with which images are written
PIXEL = "pixel_of_half"
# the name of 1 / dst_scale, which `converted` passes where a conversion multiplies
INVERSE = "dst_scale_inverse"


def code_type(dtype: str) -> str:
    """Return the type of the bits of an element in a register."""
    return "ulong" if DATA_TYPES[dtype].bits > _WORD else "uint"


def operand_type(conversion: Conversion, role: str) -> str:
    """Return the type of a scale, a zero point or beta: zero points are integers."""
    return "int" if role.endswith("point") else WIDE[conversion.work].real


def operand_value(conversion: Conversion, role: str, at: str) -> str:
    """Return the expression of the value of a role: at an offset, where it varies."""
    if role in conversion.varying:
        return f"{role}[{at}]"
    kind = operand_type(conversion, role)
    if kind == "int":
        return f"(int)p.{role}_value"
    return f"as_{kind}(({WIDE[conversion.work].bits})p.{role}_value)"


def converted(
    conversion: Conversion, code: str, operand: Callable[[str], str], old: str = ""
) -> str:
    """Return the expression of the bits of dst.

    Parameters
    ----------
    conversion : Conversion
        Whose `conversion_lines` are in the program.
    code : str
        The bits of the element of src.
    operand : callable
        Returns the expression of the value of a role.
    old : str, optional
        The bits that dst holds, for beta.
    """
    if conversion.is_move:
        return code
    arguments = [code, *map(operand, conversion.roles)]
    if conversion.multiplies:
        arguments.append(INVERSE)
    if BETA in conversion.roles:
        arguments.append(old)
    return f"convert_element({', '.join(arguments)})"


def conversion_lines(conversion: Conversion) -> Iterator[str]:
    """Return the functions of a conversion, before the kernel; none where bits move."""
    if conversion.writes_halves:
        yield f"static float {PIXEL}(uint code)"
        yield from _block(pixel_of_half(is_native=conversion.has_half_instructions))
    if conversion.is_move:
        return
    yield _PRAGMA
    if "f64" in (conversion.work, conversion.difference) or conversion.divides_in_f64:
        yield _FP64
    functions = _Functions(conversion)
    body = list(functions.body())
    for name, lines in functions.lines.items():
        yield name
        yield from _block(lines)
    taken = [f"{code_type(conversion.src)} code"]
    taken += [f"{operand_type(conversion, role)} {role}" for role in conversion.roles]
    taken += [f"float {INVERSE}"] if conversion.multiplies else []
    taken += [f"{code_type(conversion.dst)} old"] if BETA in conversion.roles else []
    yield f"static {code_type(conversion.dst)} convert_element({', '.join(taken)})"
    yield from _block(body)
    yield ""


def decoder_of(dtype: str, work: str) -> tuple[str, list[str]]:
    """Return the name of the function that decodes a float in a working type, and its lines."""
    functions = _Functions(Conversion(dtype, dtype, work=work))
    functions.decoded("code", dtype, work)
    ((head, lines),) = functions.lines.items()
    name = f"decode_{dtype}"
    pragma = [_FP64] if work == "f64" else []
    return name, [*pragma, head, *_block(lines)]


def _block(lines: Iterable[str]) -> Iterator[str]:
    yield from ("{", *(f"    {line}" for line in lines), "}")


class _Functions:
    """The decoders and encoders that a conversion needs, by their heads."""

    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion
        self.lines: dict[str, list[str]] = {}

    def body(self) -> Iterator[str]:
        """Return the statements of the conversion: the formula of `reorder.Attr`."""
        conversion = self._conversion
        work, roles = conversion.work, conversion.roles
        if work in {"s64", "u64"}:
            yield f"return {self._clamped(conversion.src, conversion.dst)};"
            return
        src, dst = FORMATS[conversion.src], FORMATS[conversion.dst]
        if not roles and isinstance(src, FloatFormat) and rounds_code(dst, src):
            yield from round_code(src, dst)
            return
        kind = WIDE[work].real
        yield f"{kind} x = {self._first(work)};"
        if "src_scale" in roles:
            yield "x = src_scale * x;"
        if BETA in roles:
            yield f"x = x + {BETA} * {self.decoded('old', conversion.dst, work)};"
        if "dst_scale" in roles:
            yield f"x = {self._quotient()};"
        if "dst_zero_point" in roles:
            yield f"x = x + convert_{kind}_rte(dst_zero_point);"
        if isinstance(src, IntegerFormat) and not roles and has_integers(dst, src, WIDE[work]):
            encode = partial(encode_exact, is_signed=src.is_signed)
            yield f"return {self._encoded('x', conversion.dst, work, encode)};"
            return
        limit = largest_number(conversion.dst) if conversion.saturates else None
        if limit is not None:
            yield from saturate(limit, WIDE[work], keeps_nan=not roles and has_nan(src))
        if roles and isinstance(dst, FloatFormat):
            yield from drop_payload(WIDE[work])
        if conversion.through_f16:
            yield f"x = {self.decoded(self._encoded('x', 'f16', work), 'f16', work)};"
        yield f"return {self._encoded('x', conversion.dst, work)};"

    def _first(self, work: str) -> str:
        """Return the value of src, less its zero point."""
        conversion = self._conversion
        if "src_zero_point" not in conversion.roles:
            return self.decoded("code", conversion.src, work)
        if work == "f64":
            # exact, or both rounded: as the definition says
            return f"{self.decoded('code', conversion.src, work)} - (double)src_zero_point"
        form = FORMATS[conversion.src]
        assert isinstance(form, IntegerFormat)  # noqa: S101 - zero points belong to integers
        value = integer_value("code", form)
        if conversion.difference == "f64":
            # the difference of the integers, rounded once
            return f"convert_float_rte((long){value} - (long)src_zero_point)"
        # both are exact, and so is the difference
        return f"{self.decoded('code', conversion.src, work)} - (float)src_zero_point"

    def _quotient(self) -> str:
        """Return the expression of x / dst_scale, correctly rounded."""
        if self._conversion.divides_in_f64:
            return "(float)((double)x / (double)dst_scale)"
        if not self._conversion.multiplies:
            return "x / dst_scale"
        is_rounded = isinstance(FORMATS[self._conversion.dst], IntegerFormat)
        self.lines[QUOTIENT] = list(quotient_lines(is_rounded=is_rounded))
        return f"quotient(x, dst_scale, {INVERSE})"

    def _clamped(self, src: str, dst: str) -> str:
        """Return the code of an integer or boolean of src in one of dst."""
        form, wanted = FORMATS[src], FORMATS[dst]
        value, native = "(int)(code != 0)", "int"
        if isinstance(form, IntegerFormat):
            value, native = integer_value("code", form), native_integer(form)
        if isinstance(wanted, BooleanFormat):
            return f"{value} != 0 ? {wanted.true}u : 0u"
        assert isinstance(wanted, IntegerFormat)  # noqa: S101 - the working type says so
        head = f"static {code_type(dst)} encode_{dst}({native} value)"
        self.lines[head] = list(clamp_integer(wanted, native))
        return f"encode_{dst}({value})"

    def decoded(self, code: str, dtype: str, work: str) -> str:
        """Return the expression of a value in a working type, from that of a code."""
        wide, conversion = WIDE[work], self._conversion
        match FORMATS[dtype]:
            case IntegerFormat() as form:
                return float_of_integer(code, form, wide)
            case BooleanFormat():
                return f"({wide.real})({code} != 0)"
            case ExponentFormat() as form:
                lines = decode_exponent(form, wide)
            case FloatFormat() as form:
                is_rounded = (
                    isinstance(FORMATS[conversion.dst], IntegerFormat) and not conversion.roles
                )
                lines = decode_float(form, wide, is_rounded=is_rounded)
                if uses_halves(conversion, form, wide):
                    lines = decode_half()
        bits = code_type(dtype) if DATA_TYPES[dtype].bits >= _WORD else wide.bits
        self.lines[f"static {wide.real} decode_{dtype}({bits} code)"] = list(lines)
        return f"decode_{dtype}({code})"

    def _encoded(
        self,
        value: str,
        dtype: str,
        work: str,
        encode: Callable[[FloatFormat, Wide], Iterator[str]] = encode_float,
    ) -> str:
        """Return the expression of a code, from that of a value in a working type."""
        wide, conversion = WIDE[work], self._conversion
        match FORMATS[dtype]:
            case BooleanFormat(true):
                # bits are compared: a device may take denormals for zeros
                return f"as_{wide.bits}({value}) << 1 != 0 ? {true}u : 0u"
            case IntegerFormat() as form:
                lines = round_integer(form, wide)
            case ExponentFormat() as form:
                lines = encode_exponent(form, wide)
            case FloatFormat() as form:
                lines = encode(form, wide)
                if encode is encode_float and uses_halves(conversion, form, wide):
                    # a NaN of an image may have another payload
                    lines = encode_half(keeps_payload=not conversion.writes_halves)
        head = f"static {code_type(dtype)} encode_{dtype}({wide.real} value)"
        self.lines[head] = list(lines)
        return f"encode_{dtype}({value})"
