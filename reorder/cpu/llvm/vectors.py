"""Vectors of values and of codes, and the LLVM instructions that conversions are made of."""

from collections.abc import Callable

from llvmlite import ir

from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from reorder.cpu.llvm.emit import Builder, Number, Type, Value, call, constant, phi, where
from reorder.cpu.llvm.shuffle import pick
from reorder.values.formats import FLOATS

_F32, _F64 = ir.FloatType(), ir.DoubleType()


class _BfloatType(ir.HalfType):  # type: ignore[misc] # llvmlite ships no types
    """LLVM's `bfloat`, which llvmlite lacks."""

    def __str__(self) -> str:
        return "bfloat"


_BfloatType._create_instance()  # noqa: SLF001 - llvmlite creates its types this way
BFLOAT = _BfloatType()

# Fewest lanes for which a branch around rare numbers pays off: a 512-bit register of f32.
GROUP = 16


def code_bits(name: str) -> int:
    """Return the width of the integers that hold codes of a type: at least a byte."""
    return max(DATA_TYPES[name].bits, BYTE_BITS)


class Vectors:
    """Types and instructions for vectors of `lanes` elements."""

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
            return self.vector(_F64 if code_bits(work) == 64 else _F32)  # noqa: PLR2004 - f64 or f32
        return self.integers(code_bits(work))

    def splat(self, vector_type: Type, value: float) -> Value:
        """Return a constant in every lane."""
        return Number(self.builder, constant(vector_type, value))

    def call(self, name: str, result: Type, *arguments: Value) -> Value:
        """Call an LLVM intrinsic by its full name."""
        return call(self.builder, name, result, *arguments)

    def suffix(self, vector_type: Type) -> str:
        """Return the suffix for a vector type in the name of an LLVM intrinsic, like v16f32."""
        element = vector_type.element
        letter = {_F32: "f32", _F64: "f64"}.get(element) or f"i{element.width}"
        return f"v{self.lanes}{letter}"

    def absolute(self, values: Value) -> Value:
        """Return the magnitudes of floats."""
        return self.call(f"llvm.fabs.{self.suffix(values.type)}", values.type, values)

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """Return x * y + z, rounded once."""
        return self.call(f"llvm.fma.{self.suffix(x.type)}", x.type, x, y, z)

    def parts(self, vector: Value, count: int) -> list[Value]:
        """Return the parts of a vector that have `count` lanes each."""
        starts = range(0, self.lanes, count)
        return [pick(vector, range(start, start + count)) for start in starts]

    def halves(self, vector: Value) -> tuple[Value, Value]:
        """Return the two halves of a vector."""
        low, high = self.parts(vector, self.lanes // 2)
        return low, high

    def upper_halves(self, numbers: Value) -> Value:
        """Return the upper 16 bits of 32-bit numbers."""
        parts = numbers.bitcast(ir.VectorType(ir.IntType(16), 2 * self.lanes))
        return pick(parts, range(1, 2 * self.lanes, 2))

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


def is_number(values: Value) -> Value:
    """Whether floats are not NaN."""
    return Number(values.builder, values.builder.fcmp_ordered("ord", values, values))


def any_nan(left: Value, right: Value) -> Value:
    """Whether a float or the one in the same lane of another vector is NaN."""
    return Number(left.builder, left.builder.fcmp_unordered("uno", left, right))


def lesser(left: Value, right: Value) -> Value:
    """Return the lesser of two unsigned numbers."""
    return where(left.below(right), left, right)


def greater(left: Value, right: Value) -> Value:
    """Return the greater of two unsigned numbers."""
    return where(left.above(right), left, right)
