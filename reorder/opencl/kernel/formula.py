"""The conversion of one element in OpenCL C: its functions, its numbers, and the calls.

Kernel bodies call the functions for each element: `KernelFormula.converted` takes and returns
expressions of bits, of `uint` or, for types of 64 bits, `ulong`. They equal
`reorder.values.convert` bit for bit on every device: codes are computed with integers and sums of
normal numbers (`reorder.values.codecs`), and nothing is contracted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeGuard

from memdesc import MemdescError
from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.source import LANGUAGES
from memdesc.tuples import NamedTuple
from reorder.values.binding import BETA, BoundAttr
from reorder.values.codecs import Formula, integer_of
from reorder.values.expressions import Dialect, Expr, Function, name, number, select
from reorder.values.formats import FLOATS, INTEGERS, FloatFormat, Format, IntegerFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray


# the bits of integers, by the conversions of devices; a maximum of NaN and a number is the number
CONVERSIONS = {
    f"{letter}{bits}": f"(u{ctype})convert_{prefix}{ctype}_sat_rte(value)"
    for letter, prefix in (("s", ""), ("u", "u"))
    for bits, ctype in ((8, "char"), (16, "short"), (32, "int"))
} | {"u4": "as_uint(fmin(fmax(value, 0.0f), 15.0f) + 0x1.8p23f) & 15"}
_PRAGMA = "#pragma OPENCL FP_CONTRACT OFF"
_FP64 = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable"
WORD_BITS = 32
# the numbers that are tried: the upper 18 bits of f32, 9 of them of the mantissa
TRIED = 1 << 18
# the function that widens the bits of f16 to a float, with which images are written
PIXEL = "pixel_of_half"


class Floats(NamedTuple):
    """The arithmetic of a device."""

    has_f64: bool = True
    # sums of f32 are rounded to the nearest
    rounds: bool = True
    # sums and products of f32 are those of IEEE 754, denormals included
    is_exact: bool = True
    # so are quotients
    divides: bool = True
    # conversions to integers that saturate are those of elements: OpenCL C only recommends that
    # NaN becomes 0, and `conversion_trial` finds out
    has_conversions: bool = False


@dataclass(frozen=True)
class KernelFormula(Formula):
    """A formula, and how a device computes it."""

    # quotients of f32 are computed in f64, since the device does not round them correctly
    divides_in_f64: bool = False
    # dst is an image of f16, which is written with floats
    writes_halves: bool = False
    # halves of an image keep their bits, so that they are loaded and stored as vectors of halves
    moves_halves: bool = False
    # the device's conversions to integers do all that those of elements do
    has_conversions: bool = False

    @classmethod
    def on_device(cls, src: str, dst: str, bound: BoundAttr, floats: Floats) -> Self:
        """Return the conversion of an element, which the device must compute to the bit."""
        made = replace(cls.of(src, dst, bound), has_conversions=floats.has_conversions)
        if "dst_scale" in made.roles and made.work == "f32" and not floats.divides:
            made = replace(made, divides_in_f64=True)
        if not made.is_move:
            made.check(floats)
        return made

    def of_dst(self) -> Self:
        """Return the move of elements of dst, such as zeros."""
        return type(self)(self.dst, self.dst, writes_halves=self.writes_halves)

    def check(self, floats: Floats) -> None:
        """Refuse what a device cannot compute to the bit."""
        is_f32, reason = self.work == "f32", ""
        # values become integers, or floats of 8 bits or fewer
        is_narrow = self.dst in FLOATS and DATA_TYPES[self.dst].bits <= BYTE_BITS
        by_sums = self.dst in INTEGERS or is_narrow
        if self.work == "f64" and not floats.has_f64:
            reason = "is computed in f64, which the device does not have"
        elif self.divides_in_f64 and not floats.has_f64:
            reason = (
                "divides by dst_scale, and the device neither rounds quotients of f32 nor has f64"
            )
        elif is_f32 and not floats.rounds and (self.roles or by_sums):
            reason = "is rounded, and the device does not round to nearest"
        elif is_f32 and not floats.is_exact and self.roles:
            reason = "computes in f32, and the device flushes denormals, or has no NaN"
        if reason:
            raise MemdescError(f"{self.src} to {self.dst} {reason}; reorder on the CPU")

    def code_dtype(self, dtype: str) -> str:
        """Return the type of the bits of an element in a register."""
        return "u64" if DATA_TYPES[dtype].bits > WORD_BITS else "u32"

    def decode(self, code: Expr, dtype: str, work: str) -> Expr:
        """Return the value of an element, of halves by what a device has for them."""
        if (dtype, work) == ("f16", "f32"):
            # any NaN becomes the same integer
            body = _decode_half("bits" if self.dst in INTEGERS else _PAYLOAD)
            return Function("decode_f16", (name("code", "u32"),), "f32", body)(code)
        return super().decode(code, dtype, work)

    def encode(self, value: Expr, dtype: str) -> Expr:
        """Return the element nearest to a value, of halves by what a device has for them."""
        if (value.dtype, dtype) == ("f32", "f16"):
            # a NaN of an image may have another payload
            body = _encode_half(keeps_payload=not self.writes_halves)
            return Function("encode_f16", (name("value", "f32"),), "u32", body)(value)
        text = CONVERSIONS.get(dtype)
        if self.has_conversions and value.dtype == "f32" and text is not None:
            body = (f"return {text};",)
            return Function(f"encode_{dtype}", (name("value", "f32"),), "u32", body)(value)
        return super().encode(value, dtype)

    def rounds_code(self, dst: Format, src: FloatFormat) -> TypeGuard[IntegerFormat]:
        """Whether the code of a float is rounded without its value."""
        return not self.has_conversions and super().rounds_code(dst, src)

    def divide(self, x: Expr, y: Expr) -> Expr:
        """Return a correctly rounded quotient."""
        if self.divides_in_f64:
            return (x.cast("f64") / y.cast("f64")).cast("f32")
        return x / y

    def numbers(self, bound: BoundAttr) -> dict[str, int]:
        """Return the parameters that are one number, by name; floats as their bits."""
        values, parameters = bound.by_role, {}
        for role in self.scalars:
            wide = DATA_TYPES[self.operand_dtype(role)].numpy
            parameters[f"{role}_value"] = int(
                values[role].astype(wide).view(f"i{wide.itemsize}")[0]
            )
        return parameters

    def buffers(self, bound: BoundAttr) -> tuple[NDArray[Any], ...]:
        """Return the values of each role that differ along the dims, as the kernel reads them."""
        return tuple(
            bound.by_role[role].astype(DATA_TYPES[self.operand_dtype(role)].numpy)
            for role in self.varying
        )

    @property
    def src_type(self) -> str:
        """The type of the bits of an element of src in a register."""
        return DIALECT.types[self.code_dtype(self.src)]

    @property
    def dst_type(self) -> str:
        """The type of the bits of an element of dst in a register."""
        return DIALECT.types[self.code_dtype(self.dst)]

    def operand_type(self, role: str) -> str:
        """Return the type of a scale, a zero point or beta."""
        return DIALECT.types[self.operand_dtype(role)]

    def operand_value(self, role: str, at: str) -> str:
        """Return the expression of the value of a role: at an offset, where it varies."""
        if role in self.varying:
            return f"{role}[{at}]"
        dtype = self.operand_dtype(role)
        bits = f"({DIALECT.types[dtype.replace('f', 'u')]})p.{role}_value"
        return f"as_{DIALECT.types[dtype]}({bits})" if dtype in FLOATS else bits

    def converted(
        self, code: str, at: Callable[[str], str] = str, of: Mapping[str, str] = {}, old: str = ""
    ) -> str:
        """Return the bits of dst: `at` is where a role varies, `of` has values read before."""
        if self.is_move:
            return code
        operands = (of.get(role) or self.operand_value(role, at(role)) for role in self.roles)
        arguments = [code, *operands]
        arguments += [old] if BETA in self.roles else []
        return f"convert_element({', '.join(arguments)})"

    def lines(self) -> Iterator[str]:
        """Return the functions of a conversion, before the kernel; none where bits move."""
        if self.writes_halves:
            body = _decode_half("(bits & 0x7fffffff) | sign")
            yield from _lines(Function(PIXEL, (name("code", "u32"),), "f32", body))
        if self.is_move:
            return
        yield _PRAGMA
        if "f64" in (self.work, self.difference) or self.divides_in_f64:
            yield _FP64
        yield from _lines(self.function("convert_element", ("code", "old")))
        yield ""


DIALECT = Dialect(
    {dtype: LANGUAGES["opencl"].type_of(DATA_TYPES[dtype]) for dtype in INTEGERS}
    | {"f32": "float", "f64": "double"},
    {"u32": "u", "s64": "L", "u64": "UL", "f32": "f"},
    # a conversion that does not say how to round is rounded as the device likes
    {
        "as": "as_{type}({0})",
        "nearest": "convert_{type}_rte({0})",
        "rint": "rint({0})",
        "min": "fmin({0}, {1})",
        "max": "fmax({0}, {1})",
    },
)


def conversion_trial() -> str:
    """Return a program whose work items write 1 if a device converts a number in another way."""
    value, code = name("value", "f32"), number(0, "u32")
    for dtype, text in CONVERSIONS.items():
        exact = KernelFormula("f32", dtype).encode(value, dtype).cast("u32")
        code = code | select(exact.differs(name(f"({text})", "u32")), number(1, "u32"), 0)
    head = "__kernel void trial(__global int *out)"
    body = "{ out[get_global_id(0)] = differs(as_float((uint)get_global_id(0) << 14)); }"
    return "\n".join([_PRAGMA, *_lines(Function("differs", (value,), "u32", code)), head, body, ""])


def integer_value(code: str, form: IntegerFormat) -> str:
    """Return the expression of a number, in a native type, from that of its code."""
    return f"({DIALECT.text(integer_of(name(code, 'u32'), form))})"


def _lines(function: Function) -> Iterator[str]:
    for lines in DIALECT.functions(function):
        yield from lines


# the bits of a half as f32, of a NaN with its sign and payload
_PAYLOAD = "magnitude > 0x7c00 ? nan : bits"


# `vload_half` and `vstore_half_rte` exist on every device, round to the nearest, ties to even, and
# do not flush denormal halves (OpenCL C 1.2, 6.1.1.1 and 6.12.7). They leave NaNs to the device, so
# these functions set a NaN's sign, and its payload where it is kept. GPUs have instructions for
# them; on processors the runtime's functions are slower than integers.
def _decode_half(bits: str) -> tuple[str, ...]:
    """Return the body of a decoder of `code`, given the bits of its result."""
    return (
        "const ushort half_code = (ushort)code;",
        "const uint bits = as_uint(vload_half(0, (const half *)&half_code));",
        "const uint magnitude = code & 0x7fff, sign = (code & 0x8000) << 16;",
        "const uint nan = 0x7fc00000 | magnitude << 13 | sign;",
        f"return as_float({bits});",
    )


def _encode_half(*, keeps_payload: bool = True) -> tuple[str, ...]:
    """Return the body of an encoder of `value`; without its payload a NaN keeps its sign."""
    return (
        "ushort half_code;",
        "vstore_half_rte(value, 0, (half *)&half_code);",
        "const uint bits = as_uint(value), sign = bits >> 16 & 0x8000;",
        "const uint magnitude = bits & 0x7fffffff;",
        "const uint nan = 0x7e00 | (magnitude >> 13 & 0x3ff) | sign;",
        "return magnitude > 0x7f800000 ? nan : (uint)half_code;"
        if keeps_payload
        else "return (half_code & 0x7fff) | sign;",
    )
