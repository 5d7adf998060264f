"""What the stages share: rows of elements of one type, and loops over their vectors.

A stage is what a step of a tile runs to convert rows or to do arithmetic on them (see
`schedule.tile_program`).
"""

from collections.abc import Callable
from typing import Protocol

from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.tuples import NamedTuple
from reorder.cpu.kernels.elements import Elements, Location, first_vector
from reorder.cpu.llvm.emit import (
    Builder,
    Value,
    either,
    loop,
    maximum,
    minimum,
    when,
)
from reorder.cpu.llvm.vectors import Vectors
from reorder.cpu.schedule.select import Kernel
from reorder.cpu.schedule.tile_program import MASKED_LANES
from reorder.cpu.target import LINE_BITS, LINE_NBYTES, has_masks, register_bits

# Lanes of the narrowest vectors: shorter tails are converted element by element.
_MIN_LANES = 8


class Row(NamedTuple):
    """Neighbouring elements of one type, starting at a location."""

    dtype: str
    elements: Elements
    start: Location

    @classmethod
    def at(cls, builder: Builder, dtype: str, start: Location, *, streams: bool = False) -> "Row":
        """Return the row at a location; with `streams` it may be written by `each_line`."""
        bits = DATA_TYPES[dtype].bits
        return cls(dtype, Elements(builder, Kernel(bits, streams)), start)

    def load(self, i: Value, lanes: int) -> Value:
        """Return the codes of a vector starting at element i."""
        return self.elements.load_vector(self.start + i, lanes)

    def store(self, codes: Value, i: Value, *, non_temporal: bool = False) -> None:
        """Write a vector of codes starting at element i."""
        self.elements.store_vector(codes, self.start + i, non_temporal=non_temporal)

    def load_first(self, count: Value, i: Value) -> Value:
        """Return a vector of `MASKED_LANES`: `count` elements starting at element i, then zeros."""
        mask = self.elements.lane_mask(count, MASKED_LANES)
        return self.elements.load_masked(self.start + i, mask)

    def store_first(self, codes: Value, i: Value, count: Value) -> None:
        """Write the first `count` codes of a vector starting at element i."""
        mask = self.elements.lane_mask(count, codes.type.count)
        self.elements.store_masked(codes, self.start + i, mask)

    def load_one(self) -> Value:
        """Return the first value of a row of a working type, in a vector of one lane."""
        kind = Vectors(self.elements.builder, 1).values(self.dtype)
        return self.load(0, 1).bitcast(kind)


class EmitVector(Protocol):
    """Emits the code for one vector, which starts at the i-th element of each row."""

    def __call__(self, i: Value, lanes: int, *, non_temporal: bool = False) -> None:
        """Emit the instructions; with `non_temporal` dst is written as whole cache lines."""


def masks_elements(*dtypes: str) -> bool:
    """Whether there are masked loads and stores of elements of these types."""
    return has_masks() and not any(DATA_TYPES[dtype].is_packed for dtype in dtypes)


def vector_lanes(work: str, registers: int) -> tuple[int, ...]:
    """Return the lanes of vectors of a working type, or of codes, widest first.

    The widest fill `registers` registers, the last are single elements.
    """
    bits = DATA_TYPES[work].bits if work else BYTE_BITS
    lanes = register_bits() // bits
    return (*sorted({registers * lanes, lanes, _MIN_LANES}, reverse=True), 1)


def each_vector(
    span: tuple[Value, Value],
    sizes: tuple[int, ...],
    emit: EmitVector,
    *,
    overlaps: bool,
    dst: Row | None = None,
) -> None:
    """Emit vectors that cover a span: of the widest size that fits, the tail by narrower ones.

    With `overlaps` the last vector may overlap the one before it, so the emitted code must give the
    same result when it runs twice on an element. `dst` is the row that they write, if the second
    vector may overlap the first one too, so that it starts a cache line.
    """
    first, last = span
    lanes, *narrower = sizes
    if not narrower:
        with loop(first, last, lanes) as i:
            emit(i, lanes)
        return
    count = last - first
    if overlaps:
        with either(count >= lanes) as (enough, few):
            with enough:
                end, start = last - lanes, first
                if dst is not None:
                    start = first_vector(dst.elements, dst.start + first, lanes, count) + first
                with loop(start, last, lanes) as i:
                    emit(maximum(minimum(i, end), first), lanes)
            with few:
                each_vector(span, tuple(narrower), emit, overlaps=True)
        return
    middle = first + (count & -lanes)
    with loop(first, middle, lanes) as i:
        emit(i, lanes)
    each_vector((middle, last), tuple(narrower), emit, overlaps=False)


class Neighbours(NamedTuple):
    """Rows with which a row shares lines of dst."""

    # whether the row before it writes the first line of the row, and whether it joins its last one
    is_preceded: Value
    is_followed: Value
    # emits the line that starts at an element of the row and ends in the row that follows
    join: Callable[[Value, int], None]


def each_line(
    dst: Row,
    count: Value,
    sizes: tuple[int, ...],
    emit: EmitVector,
    *,
    overlaps: bool,
    neighbours: Neighbours | None = None,
) -> None:
    """Emit vectors of a row like `each_vector`, with non-temporal stores of whole cache lines.

    The order is: vectors up to the first whole line, then several lines at once, single lines,
    and vectors of the tail, or the line that it shares with the row that follows.
    """
    size = dst.elements.bits // BYTE_BITS
    line = LINE_BITS // dst.elements.bits
    skipped = -dst.elements.address_of(dst.start) & (LINE_NBYTES - 1)
    start = minimum(skipped // size, count)
    if neighbours is None:
        each_vector((0, start), sizes, emit, overlaps=overlaps)
    else:
        with when(~neighbours.is_preceded):
            each_vector((0, start), sizes, emit, overlaps=overlaps)
    for lanes in sorted({max(line, sizes[0]), line}, reverse=True):
        stop = start + ((count - start) & -lanes)
        with loop(start, stop, lanes) as i:
            emit(i, lanes, non_temporal=True)
        start = stop
    if neighbours is None:
        each_vector((start, count), sizes, emit, overlaps=overlaps)
        return
    with when(start < count), either(neighbours.is_followed) as (joined, alone):
        with joined:
            neighbours.join(start, line)
        with alone:
            each_vector((start, count), sizes, emit, overlaps=overlaps)


def each_pair(packed: Row, count: Value, sizes: tuple[int, ...], emit: EmitVector) -> None:
    """Emit vectors that start at whole bytes of a row of 4-bit elements.

    The element before the first whole byte, and the one after the last, are emitted alone.
    """
    start = count.like(packed.start.index)
    head = minimum(start & 1, count)
    with loop(0, head) as i:
        emit(i, 1)
    last = count - ((count - head) & 1)
    each_vector((head, last), sizes, emit, overlaps=True)
    with loop(last, count) as i:
        emit(i, 1)
