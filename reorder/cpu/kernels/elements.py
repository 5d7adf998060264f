"""Element access: loads and stores of elements of one width, singly and as vectors.

In a register an element is an integer of its width; a 4-bit one is the low half of a byte. In
memory two 4-bit elements share a byte, the one of even index in its low half.
"""

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from memdesc.dtypes import BYTE_BITS
from reorder.cpu.llvm.emit import (
    BYTE,
    I64,
    Builder,
    IRValue,
    Type,
    Value,
    call,
    either,
    loop,
    mark_non_temporal,
    maximum,
    minimum,
    when,
    where,
)
from reorder.cpu.llvm.shuffle import pick
from reorder.cpu.machine import LINE_BITS, LINE_NBYTES
from reorder.cpu.schedule.select import Kernel
from reorder.cpu.target import register_bits

_NIBBLE_BITS, _NIBBLE = 4, 15

# Rows of at least this many vectors are worth one vector more, so that the others do not cross
# lines.
LONG_ROW = 8


@dataclass(frozen=True, slots=True)
class Location:
    """An address, and an index in elements from there."""

    address: Value
    index: Value

    def __add__(self, count: Value) -> "Location":
        """Return the location `count` elements further on."""
        return Location(self.address, self.index + count)


class Elements:
    """Loads and stores of elements of one width; `store_lines` streams if the kernel does."""

    def __init__(self, builder: Builder, kernel: Kernel) -> None:
        self.builder = builder
        self.bits, self.streams, self.parts = kernel
        self.is_nibble = kernel.is_packed
        self.type = BYTE if self.is_nibble else ir.IntType(self.bits)
        self._pointer_type = self.type.as_pointer()
        self.zero = IRValue(builder, ir.Constant(self.type, 0))
        # lanes of the vectors that cover a run: of a register, of half of it, and so on
        lanes = 1 if self.is_nibble else register_bits() // self.bits
        self.sizes = tuple(lanes >> k for k in range(lanes.bit_length()))

    def vector_type(self, lanes: int) -> Type:
        """Return the type of a vector of elements."""
        return ir.VectorType(self.type, lanes)

    def zeros(self, lanes: int) -> Value:
        """Return a vector of zeros."""
        return IRValue(self.builder, ir.Constant(self.vector_type(lanes), None))

    def moved(self, location: Location, offset: Value) -> Location:
        """Return a location moved by an offset of a table: in bytes, or in 4-bit elements."""
        if self.is_nibble:
            return Location(location.address, location.index + offset)
        return Location(location.address + offset, location.index)

    def nbytes(self, count: Value) -> Value:
        """Return how many bytes `count` elements take; not for 4-bit elements."""
        return count * (self.bits // BYTE_BITS)

    def address_of(self, location: Location) -> Value:
        """Return the address of an element; not for 4-bit elements."""
        return location.address + self.nbytes(location.index)

    def pointer(self, location: Location, of: Type = None) -> Value:
        """Return the typed pointer to an element, or to a value of type `of` that starts there.

        For a 4-bit element it points to its byte.
        """
        address, index = location.address, location.index
        if isinstance(index, int) and index == 0:
            return address.inttoptr((of or self.type).as_pointer())
        index = address.like(index)
        if self.is_nibble:
            index = index.lshr(1)
        base = address.inttoptr(self._pointer_type)
        pointer = IRValue(self.builder, self.builder.gep(base, [index]))
        return pointer if of is None else pointer.bitcast(of.as_pointer())

    def rebased(self, location: Location) -> Location:
        """Return the same location with index 0, so that a loop keeps one register for it.

        Spilled registers are reloaded from the stack in each step, and such a load waits for stores
        to addresses with the same low 12 bits (4K aliasing).
        """
        return location if self.is_nibble else Location(self.address_of(location), 0)

    def _shift(self, location: Location) -> Value:
        """Return by how many bits a 4-bit element is shifted in its byte: 0 or 4."""
        index = location.address.like(location.index)
        return (index & 1).trunc(BYTE) << 2

    def load(self, location: Location) -> Value:
        """Return one element."""
        element = self.pointer(location).load()
        if self.is_nibble:
            return element.lshr(self._shift(location)) & _NIBBLE
        # elements packed into a wider one are aligned only to their former width
        element.raw.align = 1
        return element

    def store(self, value: Value, location: Location) -> None:
        """Write one element; for a 4-bit one the other half of its byte is kept."""
        pointer = self.pointer(location)
        if not self.is_nibble:
            self.builder.store(value, pointer).align = 1
            return
        shift = self._shift(location)
        other_half = ~(shift.like(_NIBBLE) << shift)
        kept = pointer.load() & other_half
        self.builder.store(kept | value << shift, pointer)

    def load_vector(self, location: Location, lanes: int) -> Value:
        """Return a vector of contiguous elements.

        A vector of 4-bit elements has one lane, or starts at an even index.
        """
        if self.is_nibble and lanes == 1:
            return self.load(location).bitcast(self.vector_type(1))
        stored = self.vector_type(lanes // 2 if self.is_nibble else lanes)
        vector = self.pointer(location, stored).load()
        vector.raw.align = 1
        if not self.is_nibble:
            return vector
        picks = (k // 2 + lanes // 2 * (k % 2) for k in range(lanes))
        return pick(vector & _NIBBLE, picks, vector.lshr(_NIBBLE_BITS))

    def lane_mask(self, count: Value, lanes: int) -> Value:
        """Return the mask of the first `count` of `lanes`: none if negative, all if larger."""
        left = where(count < lanes, count, lanes)
        bits = where(left > 0, left.like(-1).lshr(I64.width - left), 0)
        narrow = bits if lanes == I64.width else bits.trunc(ir.IntType(lanes))
        return narrow.bitcast(ir.VectorType(ir.IntType(1), lanes))

    def load_masked(self, location: Location, mask: Value) -> Value:
        """Return a vector; lanes outside the mask are zeros, and not read."""
        others = self.zeros(mask.type.count)
        return self._call_masked("load", others.type, (), location, mask, others)

    def store_masked(self, value: Value, location: Location, mask: Value) -> None:
        """Write those lanes of a vector that are in a mask."""
        self._call_masked("store", ir.VoidType(), (value,), location, mask)

    def _call_masked(
        self, name: str, result: Type, first: tuple[Value, ...], at: Location, *rest: Value
    ) -> Value:
        lanes = rest[0].type.count
        pointer, unaligned = self.pointer(at, self.vector_type(lanes)), ir.IntType(32)(1)
        full_name = f"llvm.masked.{name}.v{lanes}i{self.bits}.p0"
        return call(self.builder, full_name, result, *first, pointer, unaligned, *rest)

    def store_vector(self, value: Value, location: Location, *, non_temporal: bool = False) -> None:
        """Write a vector of contiguous elements; as for `load_vector` if they have 4 bits.

        Non-temporal stores write whole, aligned cache lines; 4-bit elements have none.
        """
        builder, lanes = self.builder, value.type.count
        if self.is_nibble and lanes == 1:
            self.store(value.bitcast(self.type), location)
            return
        if self.is_nibble:
            low, high = (pick(value, range(start, lanes, 2)) for start in (0, 1))
            value = low | high << _NIBBLE_BITS
        store = builder.store(value, self.pointer(location, value.type))
        store.align = LINE_NBYTES if non_temporal else 1
        if non_temporal:
            mark_non_temporal(builder, store)

    def store_lines(self, value: Value, location: Location) -> None:
        """Write a vector: by non-temporal stores if it fills lines and the kernel streams."""
        is_whole = not value.type.count * self.bits % LINE_BITS
        self.store_vector(value, location, non_temporal=self.streams and is_whole)


def first_vector(
    elements: Elements, dst: Location, lanes: int, count: Value, width: int = 1
) -> Value:
    """Return where vectors begin so that all but the first one start cache lines: 0 or below.

    The first one is then moved to 0. Short rows, with few of `count` steps, start at 0. Each step
    writes `width` elements.
    """
    size = elements.bits // BYTE_BITS * width
    grain = min(LINE_NBYTES, lanes * size)
    skipped = (-elements.address_of(dst) & (grain - 1)) // size
    return where((count >= LONG_ROW * lanes) & (skipped > 0), skipped - lanes, 0)


def cover(
    span: tuple[Value, Value],
    sizes: tuple[int, ...],
    emit: Callable[[Value, int], None],
    *,
    overlaps: bool = True,
    dst: tuple[Elements, Location] | None = None,
    below: int = 0,
) -> None:
    """Emit vectors that cover a span: of the widest size that fits, the tail by narrower ones.

    `emit` takes the first element of a vector, and its lanes. With `overlaps` the last vector may
    overlap the one before it, so the emitted code must give the same result when it runs twice on
    an element. `dst` is where element 0 is written, if the second vector may overlap the first one
    too, so that it starts a cache line. The span is known to be shorter than `below`, if it is not
    0.
    """
    first, last = span
    lanes, *narrower = sizes
    if not narrower:
        with loop(first, last, lanes) as i:
            emit(i, lanes)
        return
    count = last - first
    if overlaps:
        end, start = last - lanes, first
        with either(count >= lanes) as (enough, few):
            with enough:
                if below == 2 * lanes:
                    emit(start, lanes)
                    emit(end, lanes)
                else:
                    if dst is not None:
                        elements, place = dst
                        start = first_vector(elements, place + first, lanes, count) + first
                    with loop(start, last, lanes) as i:
                        emit(maximum(minimum(i, end), first), lanes)
            with few:
                cover(span, tuple(narrower), emit, below=lanes)
        return
    middle = first + (count & -lanes)
    with loop(first, middle, lanes) as i:
        emit(i, lanes)
    cover((middle, last), tuple(narrower), emit, overlaps=False)


def emit_clear(elements: Elements, dst: Location, count: Value) -> None:
    """Write `count` zeros; often there are none, which is tested first."""

    def clear(i: Value, lanes: int) -> None:
        elements.store_vector(elements.zeros(lanes), dst + i)

    with when(count > 0):
        # most are whole vectors, and clamping where each starts would take up to a third longer
        cover((0, count), elements.sizes, clear, overlaps=False)
