"""Elements to values and back, in vectors: the rule of `reorder.values.convert` as LLVM instructions.

A value is f32, f64 or s64, the working types. Codes are the bits of elements, as vectors of
integers of their width; 4-bit ones lie in the low half of a byte here.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba.core import cgutils

from reorder.cpu.target import has_bfloat, has_half
from reorder.values.formats import FLOATS, INTEGERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from reorder.values.formats import FloatFormat

__all__ = ["Codec", "code_bits"]

_F32, _F64 = ir.FloatType(), ir.DoubleType()
_BITS = {"f64": 64, "s64": 64, "f32": 32, "s32": 32, "f16": 16, "bf16": 16}
_F32_FORM, _F64_FORM = FLOATS["f32"], FLOATS["f64"]
_SIGN, _MAGNITUDE, _QUIET_NAN = 1 << 31, (1 << 31) - 1, _F32_FORM.nan
_BYTE = 8
# lanes from which on one test for all of them is worth its branch
_GROUP = 16
# what the instruction that classifies numbers calls these
_NAN_OR_DENORMAL = 0x01 | 0x20 | 0x80


class _Bfloat(ir.HalfType):  # type: ignore[misc] # llvmlite ships no types
    """LLVM's type, which llvmlite does not name."""

    def __str__(self) -> str:
        return "bfloat"


_Bfloat._create_instance()  # noqa: SLF001 - as llvmlite makes its own


def code_bits(name: str) -> int:
    """Return the width of the integers that codes are held in."""
    return _BITS.get(name, _BYTE)


class Codec:
    """Vectors of `lanes` elements, and what turns them into values and back."""

    def __init__(self, builder: Any, lanes: int) -> None:
        self.builder = builder
        self.lanes = lanes

    def vector(self, of: Any) -> Any:
        """Return a type of so many lanes."""
        return ir.VectorType(of, self.lanes)

    def integers(self, bits: int) -> Any:
        """Return the type of codes."""
        return self.vector(ir.IntType(bits))

    def values(self, work: str) -> Any:
        """Return the type of values."""
        return {"f32": self.vector(_F32), "f64": self.vector(_F64), "s64": self.integers(64)}[work]

    def splat(self, of: Any, value: float) -> Any:
        """Return a constant in every lane."""
        return ir.Constant(of, [value] * self.lanes)

    def call(self, name: str, result: Any, *arguments: Any) -> Any:
        """Call an intrinsic of LLVM on vectors; `name` ends before the types."""
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, kind, name), arguments
        )

    def suffix(self, of: Any) -> str:
        """Return how LLVM spells a vector type in the name of an intrinsic."""
        element = of.element
        letter = {_F32: "f32", _F64: "f64"}.get(element) or f"i{element.width}"
        return f"v{self.lanes}{letter}"

    # codes to values

    def decode(self, codes: Any, name: str, work: str) -> Any:
        """Return the values of codes."""
        builder = self.builder
        if name in INTEGERS:
            return self._decode_integer(codes, name, work)
        if name == work:
            return builder.bitcast(codes, self.values(work))
        if work == "f64":
            return builder.fpext(self._decode_float(codes, name), self.values("f64"))
        return self._decode_float(codes, name)

    def _decode_integer(self, codes: Any, name: str, work: str) -> Any:
        builder = self.builder
        signed = INTEGERS[name][0] < 0
        if name == "s4":
            eight = self.splat(codes.type, 8)
            codes = builder.sub(builder.xor(codes, eight), eight)
        bits = 64 if work == "s64" else 32
        if codes.type.element.width < bits:
            codes = (builder.sext if signed else builder.zext)(codes, self.integers(bits))
        return codes if work == "s64" else builder.sitofp(codes, self.values(work))

    def _decode_float(self, codes: Any, name: str) -> Any:
        """Return f32 values of f32 or a narrower type."""
        builder, i32 = self.builder, self.integers(32)
        if name == "f32":
            return builder.bitcast(codes, self.values("f32"))
        if name == "f16" and has_half():
            return builder.fpext(
                builder.bitcast(codes, self.vector(ir.HalfType())), self.values("f32")
            )
        wide = builder.zext(codes, i32)
        if name == "e8m0":
            bits = builder.shl(wide, self.splat(i32, 23))
            bits = self._select("==", wide, 0, self.splat(i32, 1 << 22), bits)
            bits = self._select("==", wide, 255, self.splat(i32, _QUIET_NAN), bits)
        elif name == "bf16":
            bits = builder.shl(wide, self.splat(i32, 16))
            quiet = builder.or_(bits, self.splat(i32, 1 << 22))
            bits = self._select(
                ">",
                builder.and_(bits, self.splat(i32, _MAGNITUDE)),
                _F32_FORM.overflow,
                quiet,
                bits,
            )
        else:
            bits = self._decode_small(wide, FLOATS[name])
        return builder.bitcast(bits, self.values("f32"))

    def _decode_small(self, codes: Any, form: FloatFormat) -> Any:
        """Return the bits of f32 of a format with fewer bits of exponent."""
        builder, i32 = self.builder, self.integers(32)
        shift = self.splat(i32, _F32_FORM.mantissa - form.mantissa)
        magnitude = builder.and_(codes, self.splat(i32, (1 << (form.exponent + form.mantissa)) - 1))
        moved = builder.shl(magnitude, shift)
        normal = builder.add(
            moved, self.splat(i32, (_F32_FORM.bias - form.bias) << _F32_FORM.mantissa)
        )
        step = self.splat(self.values("f32"), 2.0 ** (1 - form.bias - form.mantissa))
        denormal = builder.bitcast(
            builder.fmul(builder.sitofp(magnitude, self.values("f32")), step), i32
        )
        bits = self._select("<", magnitude, 1 << form.mantissa, denormal, normal)
        if form.has_inf:
            special = builder.or_(moved, self.splat(i32, _F32_FORM.overflow))
            quiet = builder.or_(special, self.splat(i32, 1 << (_F32_FORM.mantissa - 1)))
            special = self._select(">", magnitude, form.overflow, quiet, special)
            bits = self._select(">", magnitude, form.largest, special, bits)
        elif form.nan > form.largest:
            bits = self._select("==", magnitude, form.nan, self.splat(i32, _QUIET_NAN), bits)
        sign = builder.shl(
            builder.lshr(codes, self.splat(i32, form.exponent + form.mantissa)), self.splat(i32, 31)
        )
        return builder.or_(bits, sign)

    def _select(self, comparison: str, left: Any, right: int, then: Any, otherwise: Any) -> Any:
        test = self.builder.icmp_unsigned(comparison, left, self.splat(left.type, right))
        return self.builder.select(test, then, otherwise)

    # values to codes

    def encode(self, values: Any, work: str, name: str) -> Any:
        """Return the codes of values."""
        builder = self.builder
        own = self.integers(code_bits(name))
        if name == work:
            return builder.bitcast(values, own)
        if name in INTEGERS:
            codes = (
                self._clamp(values, name)
                if work == "s64"
                else self._encode_integer(values, work, name)
            )
            codes = builder.trunc(codes, own) if codes.type != own else codes
            return (
                builder.and_(codes, self.splat(own, 15))
                if name.endswith("4") and name != "s64"
                else codes
            )
        if work == "f64":
            if name == "f32":
                return builder.bitcast(builder.fptrunc(values, self.values("f32")), own)
            values = self._to_odd(values)
        codes = self._encode_float(values, name)
        return builder.trunc(codes, own) if codes.type != own else codes

    def _clamp(self, values: Any, name: str) -> Any:
        low, high = (self.splat(values.type, limit) for limit in INTEGERS[name])
        values = self.builder.select(self.builder.icmp_signed("<", values, high), values, high)
        return self.builder.select(self.builder.icmp_signed(">", values, low), values, low)

    def _encode_integer(self, values: Any, work: str, name: str) -> Any:
        """Round to even and saturate; NaN becomes 0."""
        builder, of = self.builder, values.type
        bits = 64 if work == "f64" else 32
        integers = self.integers(bits)
        if code_bits(name) == bits:
            rounded = self.call(f"llvm.rint.{self.suffix(of)}", of, values)
            return self.call(
                f"llvm.fptosi.sat.{self.suffix(integers)}.{self.suffix(of)}", integers, rounded
            )
        low, high = (self.splat(of, float(limit)) for limit in INTEGERS[name])
        values = builder.select(
            builder.fcmp_ordered("ord", values, values), values, self.splat(of, 0.0)
        )
        values = builder.select(builder.fcmp_ordered("<", values, high), values, high)
        values = builder.select(builder.fcmp_ordered(">", values, low), values, low)
        # so large a number has its unit in its last bit: the sum rounds, and its low bits are the integer
        magic = 1.5 * 2.0 ** (_F64_FORM if work == "f64" else _F32_FORM).mantissa
        return builder.bitcast(builder.fadd(values, self.splat(of, magic)), integers)

    def _to_odd(self, values: Any) -> Any:
        """Return f32 that a second rounding, to fewer bits, takes where a single one would lead.

        What is inexact is cut, and its last bit set.
        """
        builder, f32, f64, i32 = (
            self.builder,
            self.values("f32"),
            self.values("f64"),
            self.integers(32),
        )
        near = builder.fptrunc(values, f32)
        back = builder.fpext(near, f64)
        bits = builder.bitcast(near, i32)
        far = self.call(f"llvm.fabs.{self.suffix(f64)}", f64, values)
        grew = builder.fcmp_ordered(">", self.call(f"llvm.fabs.{self.suffix(f64)}", f64, back), far)
        grew = builder.and_(grew, builder.fcmp_ordered("<", far, self.splat(f64, 2.0**128)))
        bits = builder.select(grew, builder.sub(bits, self.splat(i32, 1)), bits)
        inexact = builder.fcmp_ordered("!=", back, values)
        inexact = builder.and_(inexact, builder.fcmp_ordered("<", far, self.splat(f64, 2.0**128)))
        bits = builder.select(inexact, builder.or_(bits, self.splat(i32, 1)), bits)
        return builder.bitcast(bits, f32)

    def _encode_float(self, values: Any, name: str) -> Any:
        """Return the codes of f32 values in a narrower type, some as i32."""
        builder, i32 = self.builder, self.integers(32)
        if name == "f16" and has_half():
            return builder.bitcast(
                builder.fptrunc(values, self.vector(ir.HalfType())), self.integers(16)
            )
        bits = builder.bitcast(values, i32)
        if name == "e8m0":
            return builder.lshr(
                builder.shl(bits, self.splat(i32, 1)), self.splat(i32, _F32_FORM.mantissa + 1)
            )
        form = FLOATS[name]
        if form.exponent == _F32_FORM.exponent:
            return self._cut_mantissa(bits, form)
        magnitude = builder.and_(bits, self.splat(i32, _MAGNITUDE))
        shift = self.splat(i32, _F32_FORM.mantissa - form.mantissa)
        # half a step less one, and one more where the last bit kept is odd
        odd = builder.and_(builder.lshr(magnitude, shift), self.splat(i32, 1))
        half = self.splat(i32, (1 << (_F32_FORM.mantissa - form.mantissa - 1)) - 1)
        codes = builder.lshr(builder.add(builder.add(magnitude, half), odd), shift)
        codes = builder.sub(codes, self.splat(i32, (_F32_FORM.bias - form.bias) << form.mantissa))
        # the sum with so large a number rounds to the steps of the denormals
        large = 2.0 ** (1 - form.bias - form.mantissa + _F32_FORM.mantissa)
        total = builder.fadd(
            builder.bitcast(magnitude, self.values("f32")), self.splat(self.values("f32"), large)
        )
        base = (
            1 - form.bias - form.mantissa + _F32_FORM.mantissa + _F32_FORM.bias
        ) << _F32_FORM.mantissa
        denormal = builder.sub(builder.bitcast(total, i32), self.splat(i32, base))
        least = (1 - form.bias + _F32_FORM.bias) << _F32_FORM.mantissa
        codes = self._select("<", magnitude, least, denormal, codes)
        codes = self._select(">", codes, form.largest, self.splat(i32, form.overflow), codes)
        nan = self.splat(i32, form.nan)
        if form.has_inf:
            payload = builder.and_(
                builder.lshr(bits, shift), self.splat(i32, (1 << form.mantissa) - 1)
            )
            nan = builder.or_(nan, payload)
        codes = self._select(">", magnitude, _F32_FORM.overflow, nan, codes)
        sign = builder.shl(
            builder.lshr(bits, self.splat(i32, 31)), self.splat(i32, form.exponent + form.mantissa)
        )
        return builder.or_(codes, sign)

    def _cut_mantissa(self, bits: Any, form: FloatFormat) -> Any:
        """Return the codes of f32 bits in a format with the same exponent; the sign comes along."""
        builder, i32 = self.builder, self.integers(32)
        cut = _F32_FORM.mantissa - form.mantissa
        is_odd = builder.icmp_unsigned(
            "!=", builder.and_(bits, self.splat(i32, 1 << cut)), self.splat(i32, 0)
        )
        half = self.splat(i32, 1 << (cut - 1))
        less = self.splat(i32, (1 << (cut - 1)) - 1)
        rounded = self._upper(
            builder.select(is_odd, builder.add(bits, half), builder.add(bits, less))
        )

        def quieten() -> Any:
            quiet = builder.or_(
                self._upper(bits), self.splat(rounded.type, 1 << (form.mantissa - 1))
            )
            is_nan = builder.icmp_unsigned(
                ">", builder.shl(bits, self.splat(i32, 1)), self.splat(i32, 2 * _F32_FORM.overflow)
            )
            return builder.select(is_nan, quiet, rounded)

        if self.lanes < _GROUP:
            return quieten()
        values = builder.bitcast(bits, self.values("f32"))
        if has_bfloat():
            made = builder.bitcast(builder.fptrunc(values, self.vector(_Bfloat())), rounded.type)
            return self.rarely(self._are_special(values), quieten, made)
        # a NaN is rare: one test of pairs of vectors for all
        return self.rarely(builder.fcmp_unordered("uno", *self.halves(values)), quieten, rounded)

    def _are_special(self, values: Any) -> Any:
        """Return which vectors of a register's size hold a NaN or a denormal, in lanes that say where."""
        parts = [
            self._pick(values, range(start, start + _GROUP))
            for start in range(0, self.lanes, _GROUP)
        ]
        flag = ir.VectorType(ir.IntType(1), _GROUP)
        kind = ir.FunctionType(flag, [parts[0].type, ir.IntType(32)])
        ask = cgutils.get_or_insert_function(
            self.builder.module, kind, "llvm.x86.avx512.fpclass.ps.512"
        )
        flags = [self.builder.call(ask, [part, ir.IntType(32)(_NAN_OR_DENORMAL)]) for part in parts]
        return reduce(self.builder.or_, flags)

    def any_bit(self, numbers: Any, bit: int) -> Any:
        """Return, in lanes that say no more where, whether any number has a bit."""
        count = min(self.lanes, _GROUP)
        parts = [
            self._pick(numbers, range(start, start + count))
            for start in range(0, self.lanes, count)
        ]
        joined = reduce(self.builder.or_, parts)
        kept = self.builder.and_(joined, ir.Constant(joined.type, [bit] * count))
        return self.builder.icmp_unsigned("!=", kept, ir.Constant(joined.type, None))

    def halves(self, vector: Any) -> tuple[Any, Any]:
        """Return the two halves of a vector."""
        half = self.lanes // 2
        low, high = (self._pick(vector, range(start, start + half)) for start in (0, half))
        return low, high

    def rarely(self, tests: Any, emit: Callable[[], Any], otherwise: Any) -> Any:
        """Return what `emit` makes where any of the tests holds, for all lanes alike."""
        builder = self.builder
        number = ir.IntType(tests.type.count)
        is_any = builder.icmp_unsigned("!=", builder.bitcast(tests, number), number(0))
        before = builder.block
        with builder.if_then(is_any, likely=False):
            made = emit()
            after = builder.block
        found = builder.phi(otherwise.type)
        found.add_incoming(otherwise, before)
        found.add_incoming(made, after)
        return found

    def _upper(self, bits: Any) -> Any:
        """Return the upper halves of 32-bit numbers."""
        parts = self.builder.bitcast(bits, ir.VectorType(ir.IntType(16), 2 * self.lanes))
        return self._pick(parts, range(1, 2 * self.lanes, 2))

    def _pick(self, vector: Any, lanes: range) -> Any:
        picks = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
        return self.builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), picks)
