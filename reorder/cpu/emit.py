"""What the micro-kernels are written in: LLVM instructions over elements at addresses.

An element is an integer of its width; a 4-bit one is the low half of a byte here.
Addresses, indices and strides are LLVM's i64, the latter two in elements.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["I64", "Elements", "Loop", "int64", "loop"]

I64 = ir.IntType(64)
_BYTE = ir.IntType(8)


def int64(value: int) -> Any:
    """Return a constant."""
    return ir.Constant(I64, value)


class Loop(NamedTuple):
    """A node as LLVM values."""

    extent: Any
    valid: Any
    src_stride: Any
    dst_stride: Any


class Elements:
    """Loads and stores of one element width.

    Parameters
    ----------
    builder : llvmlite.ir.IRBuilder
        Where the instructions go.
    unit : numba type
        uint8 to uint64; boolean stands for 4 bits, since numba has no such type.
    """

    def __init__(self, builder: Any, unit: Any) -> None:
        self.builder = builder
        self.is_nibble = unit == types.boolean
        self.bits = 4 if self.is_nibble else unit.bitwidth
        self.type = _BYTE if self.is_nibble else ir.IntType(unit.bitwidth)
        self.zero = ir.Constant(self.type, 0)

    def pointer(self, address: Any, index: Any, of: Any = None) -> Any:
        """Return the typed place of an element, or of a vector that starts there."""
        place = self.builder.gep(self.builder.inttoptr(address, self.type.as_pointer()), [index])
        return place if of is None else self.builder.bitcast(place, of.as_pointer())

    def _half(self, address: Any, index: Any) -> tuple[Any, Any]:
        """Return the byte of a 4-bit element, and how far up in it the element lies."""
        byte = self.pointer(address, self.builder.lshr(index, int64(1)))
        shift = self.builder.shl(self.builder.trunc(self.builder.and_(index, int64(1)), _BYTE), _BYTE(2))
        return byte, shift

    def load(self, address: Any, index: Any) -> Any:
        """Return one element."""
        if self.is_nibble:
            byte, shift = self._half(address, index)
            return self.builder.and_(self.builder.lshr(self.builder.load(byte), shift), _BYTE(15))
        return self.builder.load(self.pointer(address, index))

    def store(self, value: Any, address: Any, index: Any) -> None:
        """Write one element; a 4-bit one leaves the other half of its byte."""
        if self.is_nibble:
            byte, shift = self._half(address, index)
            kept = self.builder.and_(self.builder.load(byte), self.builder.not_(self.builder.shl(_BYTE(15), shift)))
            self.builder.store(self.builder.or_(kept, self.builder.shl(value, shift)), byte)
        else:
            self.builder.store(value, self.pointer(address, index))

    def load_vector(self, address: Any, index: Any, of: Any) -> Any:
        """Return neighbouring elements as one vector."""
        vector = self.builder.load(self.pointer(address, index, of))
        vector.align = self.bits // 8
        return vector

    def store_vector(self, value: Any, address: Any, index: Any) -> None:
        """Write neighbouring elements from one vector."""
        self.builder.store(value, self.pointer(address, index, value.type)).align = self.bits // 8


@contextmanager
def loop(builder: Any, start: Any, stop: Any, step: int = 1) -> Iterator[Any]:
    """Emit `for i in range(start, stop, step)`; gives i."""
    with cgutils.for_range_slice(builder, start, stop, int64(step), inc=True) as (i, _):
        yield i
