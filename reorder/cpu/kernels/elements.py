"""Element access: loads and stores of elements of one width, singly and as vectors.

In a register an element is an integer of its width; a 4-bit one is the low half of a byte. In
memory two 4-bit elements share a byte, the one of even index in its low half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from llvmlite import ir
from numba.core import cgutils

from reorder.cpu.kernels.emit import BYTE, I64, Builder, Type, Value, int64, loop, prefetch
from reorder.cpu.kernels.shuffle import pick
from reorder.cpu.target import BYTE_BITS, LINE_BITS, LINE_NBYTES, register_bits

if TYPE_CHECKING:
    from reorder.cpu.schedule.select import Kernel

__all__ = ["Elements", "Location", "emit_clear"]

_NIBBLE_BITS, _NIBBLE = 4, 15
# Bits of the shortest vector of zeros: shorter tails are written element by element.
_LEAST_BITS = 64


class Location(NamedTuple):
    """An address, and an index in elements from there."""

    address: Value
    index: Value

    def plus(self, builder: Builder, count: Value) -> Location:
        """Return the location `count` elements further on."""
        return Location(self.address, builder.add(self.index, count))


class Elements:
    """Loads and stores of elements of one width; `store_lines` streams if the kernel does."""

    def __init__(self, builder: Builder, kernel: Kernel) -> None:
        self.builder = builder
        self.bits, self.streams = kernel
        self.is_nibble = kernel.is_packed
        self.type = BYTE if self.is_nibble else ir.IntType(self.bits)
        self.zero = ir.Constant(self.type, 0)

    def vector_type(self, lanes: int) -> Type:
        """Return the type of a vector of elements."""
        return ir.VectorType(self.type, lanes)

    def zeros(self, lanes: int) -> Value:
        """Return a vector of zeros."""
        return ir.Constant(self.vector_type(lanes), None)

    def moved(self, location: Location, offset: Value) -> Location:
        """Return a location moved by an offset of a table: in bytes, or in 4-bit elements."""
        if self.is_nibble:
            return location.plus(self.builder, offset)
        return Location(self.builder.add(location.address, offset), location.index)

    def nbytes(self, count: Value) -> Value:
        """Return the bytes of a number of elements; not of 4-bit ones."""
        return self.builder.mul(count, int64(self.bits // BYTE_BITS))

    def address_of(self, location: Location) -> Value:
        """Return the address of an element; not of a 4-bit one."""
        return self.builder.add(location.address, self.nbytes(location.index))

    def pointer(self, location: Location, of: Type = None) -> Value:
        """Return the typed pointer to an element, or to a value of type `of` that starts there.

        For a 4-bit element it points to its byte.
        """
        index = location.index
        if self.is_nibble:
            index = self.builder.lshr(index, int64(1))
        base = self.builder.inttoptr(location.address, self.type.as_pointer())
        pointer = self.builder.gep(base, [index])
        return pointer if of is None else self.builder.bitcast(pointer, of.as_pointer())

    def rebased(self, location: Location) -> Location:
        """Return the same location with index 0, so that a loop keeps one register for it.

        Spilled registers are reloaded from the stack in each step, and such a load waits for stores
        to addresses with the same low 12 bits (4K aliasing).
        """
        if self.is_nibble:
            return location
        return Location(self.address_of(location), int64(0))

    def _shift(self, location: Location) -> Value:
        """Return by how many bits a 4-bit element is shifted in its byte: 0 or 4."""
        is_odd = self.builder.and_(location.index, int64(1))
        return self.builder.shl(self.builder.trunc(is_odd, BYTE), BYTE(2))

    def load(self, location: Location) -> Value:
        """Return one element."""
        element = self.builder.load(self.pointer(location))
        if self.is_nibble:
            shifted = self.builder.lshr(element, self._shift(location))
            return self.builder.and_(shifted, BYTE(_NIBBLE))
        # elements packed into a wider one are aligned only to their former width
        element.align = 1
        return element

    def store(self, value: Value, location: Location) -> None:
        """Write one element; for a 4-bit one the other half of its byte is kept."""
        builder, pointer = self.builder, self.pointer(location)
        if not self.is_nibble:
            builder.store(value, pointer).align = 1
            return
        shift = self._shift(location)
        other_half = builder.not_(builder.shl(BYTE(_NIBBLE), shift))
        kept = builder.and_(builder.load(pointer), other_half)
        builder.store(builder.or_(kept, builder.shl(value, shift)), pointer)

    def load_vector(self, location: Location, lanes: int) -> Value:
        """Return a vector of contiguous elements; of 4-bit ones one, or from an even index on."""
        if not self.is_nibble:
            vector = self.builder.load(self.pointer(location, self.vector_type(lanes)))
            vector.align = 1
            return vector
        if lanes == 1:
            nothing = ir.Constant(self.vector_type(1), ir.Undefined)
            return self.builder.insert_element(nothing, self.load(location), ir.IntType(32)(0))
        pairs = self.vector_type(lanes // 2)
        both = self.builder.load(self.pointer(location, pairs))
        both.align = 1
        low = self.builder.and_(both, ir.Constant(pairs, [_NIBBLE] * (lanes // 2)))
        high = self.builder.lshr(both, ir.Constant(pairs, [_NIBBLE_BITS] * (lanes // 2)))
        picks = (k // 2 + lanes // 2 * (k % 2) for k in range(lanes))
        return pick(self.builder, low, picks, high)

    def lane_mask(self, count: Value, lanes: int) -> Value:
        """Return the mask of the first `count` of some lanes: none if negative, all if larger."""
        builder = self.builder
        left = builder.select(builder.icmp_signed("<", count, int64(lanes)), count, int64(lanes))
        ones = builder.lshr(int64(-1), builder.sub(int64(I64.width), left))
        bits = builder.select(builder.icmp_signed(">", left, int64(0)), ones, int64(0))
        narrow = bits if lanes == I64.width else builder.trunc(bits, ir.IntType(lanes))
        return builder.bitcast(narrow, ir.VectorType(ir.IntType(1), lanes))

    def load_masked(self, location: Location, mask: Value) -> Value:
        """Return a vector; lanes outside the mask are not read and become zeros."""
        kind = self.vector_type(mask.type.count)
        arguments = self._masked(location, kind, mask)
        return self._call_masked("load", kind, [*arguments, ir.Constant(kind, None)])

    def store_masked(self, value: Value, location: Location, mask: Value) -> None:
        """Write those lanes of a vector that are in a mask."""
        arguments = self._masked(location, value.type, mask)
        self._call_masked("store", ir.VoidType(), [value, *arguments])

    def _masked(self, location: Location, kind: Type, mask: Value) -> list[Value]:
        """Return the arguments that loads and stores share: pointer, alignment and mask."""
        return [self.pointer(location, kind), ir.IntType(32)(1), mask]

    def _call_masked(self, name: str, result: Type, arguments: list[Value]) -> Value:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        lanes = arguments[-1 if name == "load" else 0].type.count
        full_name = f"llvm.masked.{name}.v{lanes}i{self.bits}.p0"
        function = cgutils.get_or_insert_function(self.builder.module, kind, full_name)
        return self.builder.call(function, arguments)

    def store_vector(self, value: Value, location: Location, *, non_temporal: bool = False) -> None:
        """Write a vector of contiguous elements; of 4-bit ones one, or from an even index on.

        Non-temporal stores write whole, aligned cache lines; 4-bit elements have none.
        """
        builder, lanes = self.builder, value.type.count
        if self.is_nibble and lanes == 1:
            self.store(builder.extract_element(value, ir.IntType(32)(0)), location)
            return
        if self.is_nibble:
            low, high = (pick(builder, value, range(start, lanes, 2)) for start in (0, 1))
            shift = ir.Constant(high.type, [_NIBBLE_BITS] * (lanes // 2))
            value = builder.or_(low, builder.shl(high, shift))
        store = builder.store(value, self.pointer(location, value.type))
        store.align = LINE_NBYTES if non_temporal else 1
        if non_temporal:
            node = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
            store.set_metadata("nontemporal", node)

    def store_lines(self, value: Value, location: Location) -> None:
        """Write a vector: by non-temporal stores if it fills lines and the kernel streams."""
        is_whole = not value.type.count * self.bits % LINE_BITS
        self.store_vector(value, location, non_temporal=self.streams and is_whole)

    def fills_line(self, lanes: int) -> bool:
        """Whether a vector is a cache line or more."""
        return lanes * self.bits >= LINE_BITS

    def prefetch(self, location: Location, lanes: int, distance: Value) -> None:
        """Prefetch the cache lines `distance` bytes ahead of a vector."""
        first = self.builder.ptrtoint(self.pointer(location, BYTE), I64)
        first = self.builder.add(first, distance)
        for start in range(0, lanes * self.bits // BYTE_BITS, LINE_NBYTES):
            prefetch(self.builder, self.builder.add(first, int64(start)))


def emit_clear(elements: Elements, dst: Location, count: Value) -> None:
    """Write `count` zeros; often there are none to write, so that is tested first."""
    builder = elements.builder
    with builder.if_then(builder.icmp_signed(">", count, int64(0))):
        _clear_vectors(elements, dst, count)


def _clear_vectors(elements: Elements, dst: Location, count: Value) -> None:
    """Write zeros: whole registers first, then ever shorter vectors."""
    builder = elements.builder
    lanes = 1 if elements.is_nibble else register_bits() // elements.bits
    least = 1 if elements.is_nibble else max(1, _LEAST_BITS // elements.bits)
    whole = builder.and_(count, int64(-lanes))
    with loop(builder, int64(0), whole, lanes) as i:
        elements.store_vector(elements.zeros(lanes), dst.plus(builder, i))
    while lanes > least:
        lanes //= 2
        has_part = builder.icmp_signed("!=", builder.and_(count, int64(lanes)), int64(0))
        with builder.if_then(has_part):
            elements.store_vector(elements.zeros(lanes), dst.plus(builder, whole))
        whole = builder.and_(count, int64(-lanes))
    with loop(builder, whole, count) as i:
        elements.store(elements.zero, dst.plus(builder, i))
