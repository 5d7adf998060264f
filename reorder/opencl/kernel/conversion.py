"""The conversion of one element: what is computed, its numbers, and its functions in OpenCL C.

Kernel bodies call the functions for each element: `converted` takes and returns expressions of
bits, of `uint` or, for types of 64 bits, `ulong`. They equal `reorder.values.convert` bit for bit
on every device: codes are computed with integers (`codecs`), and nothing is contracted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memdesc import DATA_TYPES, MemdescError
from reorder.opencl.kernel.codecs import (
    WIDE,
    clamp_integer,
    decode_exponent,
    decode_float,
    decode_half,
    drop_payload,
    encode_exact,
    encode_exponent,
    encode_float,
    encode_half,
    float_of_integer,
    has_integers,
    has_nan,
    integer_value,
    is_half,
    native_integer,
    pixel_of_half,
    round_code,
    round_integer,
    rounds_code,
    saturate,
)
from reorder.values.convert import wide_dtype
from reorder.values.formats import (
    FORMATS,
    INTEGERS,
    BooleanFormat,
    ExponentFormat,
    FloatFormat,
    IntegerFormat,
    difference_type,
    largest_number,
    working_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from numpy.typing import NDArray

    from reorder.opencl.kernel.codecs import Wide
    from reorder.values.binding import BoundAttr

__all__ = [
    "BETA",
    "INVERSE",
    "PIXEL",
    "Conversion",
    "Floats",
    "buffers_of",
    "code_type",
    "conversion_lines",
    "conversion_of",
    "converted",
    "decoder_of",
    "numbers_of",
    "operand_type",
    "operand_value",
]

# name of the factor of what dst held, among the names of roles
BETA = "beta"


class Conversion(NamedTuple):
    """The data types of both sides, and the operations between them, by `reorder.values.convert`.

    Attributes
    ----------
    src, dst : str
        Names of data types.
    scalars : tuple of str
        Roles whose value is one number, a parameter of the kernel; `BETA` among them.
    varying : tuple of str
        Roles whose values differ along the dims: each is a buffer.
    work : str
        The working type: ``f32``, ``f64``, ``s64``, ``u64``; the type itself where bits move.
    difference : str
        The type in which zero points are subtracted; f64 beside f32 means exact integers.
    saturates, through_f16 : bool
        As in `BoundAttr`.
    multiplies : bool
        Whether quotients of f32 are computed from the inverse of dst_scale and two remainders,
        which rounds them correctly; the device then has fused operations.
    divides_in_f64 : bool
        Whether quotients of f32 are computed in f64, since the device does not round them
        correctly.
    writes_halves : bool
        Whether dst is an image of f16, which is written with floats.
    has_half_instructions : bool
        Whether f16 and f32 are converted by what a device has for it, instead of by integers.
    """

    src: str
    dst: str
    scalars: tuple[str, ...] = ()
    varying: tuple[str, ...] = ()
    work: str = "f32"
    difference: str = "f32"
    saturates: bool = False
    through_f16: bool = False
    multiplies: bool = False
    divides_in_f64: bool = False
    writes_halves: bool = False
    has_half_instructions: bool = False

    @property
    def roles(self) -> tuple[str, ...]:
        """All scales, zero points, and beta."""
        return (*self.scalars, *self.varying)

    @property
    def is_move(self) -> bool:
        """Whether bits move as they are."""
        return self.src == self.dst and not self.roles

    @property
    def widths(self) -> tuple[int, int]:
        """Bits of an element of src and of dst."""
        return DATA_TYPES[self.src].bits, DATA_TYPES[self.dst].bits

    @property
    def needs_wide_parameters(self) -> bool:
        """Whether a number has 64 bits, as all parameters of the kernel then have."""
        return self.work == "f64" and bool(self.scalars)


class Floats(NamedTuple):
    """The arithmetic of a device.

    Attributes
    ----------
    has_f64 : bool
        Whether it has doubles.
    rounds : bool
        Whether sums of f32 are rounded to the nearest.
    is_exact : bool
        Whether sums and products of f32 are those of IEEE 754, denormals included.
    divides : bool
        Whether quotients of f32 are as well.
    has_fma : bool
        Whether fused operations of f32 are instructions.
    """

    has_f64: bool = True
    rounds: bool = True
    is_exact: bool = True
    divides: bool = True
    has_fma: bool = False

    @property
    def multiplies(self) -> bool:
        """Whether quotients of f32 may be computed as products with an inverse."""
        return self.has_fma and self.divides


def conversion_of(src: str, dst: str, bound: BoundAttr, floats: Floats) -> Conversion:
    """Return the conversion of an element, from the names of the types.

    Raises
    ------
    MemdescError
        If the device cannot compute it to the bit.
    """
    work = working_type(src, dst, arithmetic=bound.is_arithmetic)
    varying = tuple(operand.role for operand in bound.varying)
    scalars = [operand.role for operand in bound.operands if operand.role not in varying]
    if bound.beta:
        scalars.append(BETA)
    points = dict(zip((one.role for one in bound.operands), bound.values, strict=True))
    made = Conversion(
        src,
        dst,
        tuple(scalars),
        varying,
        work,
        difference_type(src, work, points.get("src_zero_point")),
        bound.saturates,
        bound.through_f16,
        divides_in_f64="dst_scale" in points and work == "f32" and not floats.divides,
    )
    if not made.is_move:
        _check(made, floats)
    return made


def _check(made: Conversion, floats: Floats) -> None:
    """Refuse what the device cannot compute to the bit."""
    reason = ""
    if made.work == "f64" and not floats.has_f64:
        reason = "is computed in f64, which the device does not have"
    elif made.divides_in_f64 and not floats.has_f64:
        reason = "divides by dst_scale, and the device neither rounds quotients of f32 nor has f64"
    elif made.work == "f32" and not floats.rounds and (made.roles or made.dst in INTEGERS):
        reason = "is rounded, and the device does not round to nearest"
    elif made.roles and made.work == "f32" and not floats.is_exact:
        reason = "computes in f32, and the device flushes denormals, or has no NaN"
    if reason:
        msg = f"{made.src} to {made.dst} {reason}; reorder on the CPU"
        raise MemdescError(msg)


def numbers_of(conversion: Conversion, bound: BoundAttr) -> dict[str, int]:
    """Return the parameters that are one number, by name; of floats the bits."""
    values = {
        operand.role: array[0]
        for operand, array in zip(bound.operands, bound.values, strict=True)
        if operand.role in conversion.scalars
    } | {BETA: bound.beta}
    found = {}
    for role in conversion.scalars:
        number = values[role]
        if not role.endswith("point"):
            wide = wide_dtype(conversion.work)
            number = np.array([number], wide).view(f"i{wide.itemsize}")[0]
        found[f"{role}_value"] = int(number)
    return found


def buffers_of(conversion: Conversion, bound: BoundAttr) -> tuple[NDArray[Any], ...]:
    """Return the values of each role that differ along the dims, as the kernel reads them."""
    kinds = {
        role: np.dtype(np.int32) if role.endswith("point") else wide_dtype(conversion.work)
        for role in conversion.varying
    }
    return tuple(
        values.astype(kinds[operand.role]).reshape(-1)
        for operand, values in zip(bound.operands, bound.values, strict=True)
        if operand.role in kinds
    )


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
                if conversion.has_half_instructions and is_half(form, wide):
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
                if (
                    encode is encode_float
                    and conversion.has_half_instructions
                    and is_half(form, wide)
                ):
                    # a NaN of an image may have another payload
                    lines = encode_half(keeps_payload=not conversion.writes_halves)
        head = f"static {code_type(dtype)} encode_{dtype}({wide.real} value)"
        self.lines[head] = list(lines)
        return f"encode_{dtype}({value})"


# A quotient by what has an inverse: two corrections by the exact remainder round a product with the
# inverse correctly (Markstein, IBM J. Res. Dev. 34, 1990), provided that no step overflows or is
# denormal.
QUOTIENT = "static float quotient(float x, float y, float inverse)"

# Magnitudes of the divisors and dividends from which no step of a quotient overflows or loses bits.
_DIVISORS, _DIVIDENDS = (2.0**-40, 2.0**40), (2.0**-64, 2.0**64)


def quotient_lines(*, is_rounded: bool) -> Iterator[str]:
    """Return the body; with `is_rounded` the quotient is used only to be rounded to an integer."""
    (low, high), (least, most) = (
        [np.float32(limit).view(np.uint32) for limit in limits]
        for limits in (_DIVISORS, _DIVIDENDS)
    )
    dividends = f"dividend - {least:#x}u < {most - least:#x}u"
    if is_rounded:
        # small quotients become 0, whatever their last bit and the sign of a zero
        dividends = f"dividend < {most:#x}u"
    yield "const uint dividend = as_uint(x) & 0x7fffffffu, divisor = as_uint(y) & 0x7fffffffu;"
    yield "float q = x * inverse;"
    yield "q = fma(fma(-q, y, x), inverse, q);"
    yield "q = fma(fma(-q, y, x), inverse, q);"
    yield f"const int is_safe = {dividends};"
    yield f"return is_safe && divisor - {low:#x}u < {high - low:#x}u ? q : x / y;"
