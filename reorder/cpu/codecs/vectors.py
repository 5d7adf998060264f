"""Vectors of values and of codes, and the LLVM instructions that conversions are made of."""

from __future__ import annotations

from enum import IntEnum
from functools import reduce
from typing import TYPE_CHECKING

from llvmlite import ir
from numba.core import cgutils

from memdesc import DATA_TYPES
from reorder.cpu.kernels.shuffle import pick
from reorder.cpu.target import BYTE_BITS
from reorder.values.formats import FLOATS

if TYPE_CHECKING:
    from collections.abc import Callable

    from reorder.cpu.kernels.emit import Builder, Type, Value

__all__ = ["BFLOAT", "GROUP", "Known", "Vectors", "code_bits"]

_F32, _F64 = ir.FloatType(), ir.DoubleType()


class _BfloatType(ir.HalfType):  # type: ignore[misc] # llvmlite ships no types
    """LLVM's `bfloat`, which llvmlite lacks."""

    def __str__(self) -> str:
        return "bfloat"


_BfloatType._create_instance()  # noqa: SLF001 - llvmlite creates its types this way
BFLOAT = _BfloatType()

# Fewest lanes for which a branch around rare numbers pays off: a 512-bit register of f32.
GROUP = 16


class Known(IntEnum):
    """What is known of floats to encode; each value implies those before it."""

    NOTHING = 0
    # none is NaN
    NUMBERS = 1
    # none is denormal
    NORMAL = 2


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
        return ir.Constant(vector_type, [value] * self.lanes)

    def call(self, name: str, result: Type, *arguments: Value) -> Value:
        """Call an intrinsic of LLVM by its full name."""
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, kind, name), arguments
        )

    def suffix(self, vector_type: Type) -> str:
        """Return the suffix for a vector type in the name of an LLVM intrinsic, like v16f32."""
        element = vector_type.element
        letter = {_F32: "f32", _F64: "f64"}.get(element) or f"i{element.width}"
        return f"v{self.lanes}{letter}"

    def absolute(self, values: Value) -> Value:
        """Return the magnitudes of floats."""
        return self.call(f"llvm.fabs.{self.suffix(values.type)}", values.type, values)

    def select(
        self, comparison: str, left: Value, right: int, then: Value, otherwise: Value
    ) -> Value:
        """Return lanes of `then` where an unsigned comparison with a constant holds."""
        test = self.builder.icmp_unsigned(comparison, left, self.splat(left.type, right))
        return self.builder.select(test, then, otherwise)

    def at_most(self, numbers: Value, limit: int) -> Value:
        """Return the lesser of unsigned numbers and a constant."""
        return self.lesser(numbers, self.splat(numbers.type, limit))

    def lesser(self, left: Value, right: Value) -> Value:
        """Return the lesser of two unsigned numbers."""
        return self.builder.select(self.builder.icmp_unsigned("<", left, right), left, right)

    def at_least(self, numbers: Value, limit: int) -> Value:
        """Return the greater of unsigned numbers and a constant."""
        return self.select(">", numbers, limit, numbers, self.splat(numbers.type, limit))

    def any_bit(self, numbers: Value, bit: int) -> Value:
        """Return at most `GROUP` flags, one of which is true if any number has a bit set."""
        count = min(self.lanes, GROUP)
        joined = reduce(self.builder.or_, self.parts(numbers, count))
        kept = self.builder.and_(joined, ir.Constant(joined.type, [bit] * count))
        return self.builder.icmp_unsigned("!=", kept, ir.Constant(joined.type, None))

    def parts(self, vector: Value, count: int) -> list[Value]:
        """Return the parts of a vector that have `count` lanes each."""
        return [
            pick(self.builder, vector, range(start, start + count))
            for start in range(0, self.lanes, count)
        ]

    def halves(self, vector: Value) -> tuple[Value, Value]:
        """Return the two halves of a vector."""
        low, high = self.parts(vector, self.lanes // 2)
        return low, high

    def upper_halves(self, numbers: Value) -> Value:
        """Return the upper 16 bits of 32-bit numbers."""
        parts = self.builder.bitcast(numbers, ir.VectorType(ir.IntType(16), 2 * self.lanes))
        return pick(self.builder, parts, range(1, 2 * self.lanes, 2))

    def rarely(self, tests: Value, emit: Callable[[], Value], otherwise: Value) -> Value:
        """Return what `emit` returns, for all lanes, if any of the tests holds, else `otherwise`.

        What `emit` emits is in a branch marked as unlikely.
        """
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
