"""Micro-kernels for rows of an offset table: copied as contiguous runs, or element by element.

Which code copies a run depends on its length, in this order: runs of exactly one vector, which may
end in zeros; where the processor has masked loads and stores, short runs that end in zeros, the
shortest runs, and those of more than 96 bytes up to what is left to memmove; runs of a few vectors,
the last of which overlaps the one before it (`_PARTS`); all others, by vectors or, if long, by
memmove.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from llvmlite import ir

from reorder.cpu.kernels.elements import Location, emit_clear
from reorder.cpu.kernels.emit import (
    BYTE,
    I64,
    int64,
    load_int64,
    loop,
    maximum,
    minimum,
    shared_constant,
)
from reorder.cpu.kernels.shuffle import LANE_BITS
from reorder.cpu.target import BYTE_BITS, LINE_BITS, has_masks, register_bits, step_registers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.cpu.kernels.elements import Elements
    from reorder.cpu.kernels.emit import Value

__all__ = ["InnerLoop", "Rows", "emit_copy", "emit_strided"]

# From this length on, a call of memmove costs less than it saves.
_MEMMOVE_NBYTES = 1024
# Bytes of the longest mask.
_MASK_NBYTES = 256
# Runs of exactly these lengths, 2 to 256, are moved as one vector, which may take several
# registers.
_VECTOR_NBYTES = tuple(1 << k for k in range(1, _MASK_NBYTES.bit_length()))
# Runs of a few vectors and a tail that overlaps the last one: the bytes of a vector, the number of
# vectors, and the bytes of the tail. Tails of 16 bytes cross fewer cache lines than those of 32.
_PARTS = (
    *((2, 1, 2), (4, 1, 4), (8, 1, 8), (16, 1, 16)),
    *((32, 1, 16), (32, 1, 32), (32, 2, 16), (32, 2, 32)),
    *((64, 1, 64), (128, 1, 128), (256, 1, 256)),
)


class InnerLoop(NamedTuple):
    """The innermost loop, the columns of each row: a node as LLVM values."""

    extent: Value
    valid: Value
    src_stride: Value
    dst_stride: Value


class Rows(NamedTuple):
    """Rows to move from src to dst: `first` to `last`, of which those below `valid` hold data."""

    elements: Elements
    src: Location
    dst: Location
    columns: InnerLoop
    first: Value
    last: Value
    valid: Value
    # addresses of the offset of each row in src and in dst
    src_table: Value
    dst_table: Value
    # offset of the last row from the first in src
    src_span: Value

    def rebased(self) -> Rows:
        """Return the same rows from locations of index 0."""
        elements = self.elements
        return self._replace(src=elements.rebased(self.src), dst=elements.rebased(self.dst))

    def each(self) -> Iterator[tuple[Location, Location, Value]]:
        """Emit a loop over the rows; yields both locations, and whether the row holds data."""
        elements, builder = self.elements, self.elements.builder
        with loop(builder, self.first, self.last) as row:
            src = elements.moved(self.src, load_int64(builder, self.src_table, row))
            dst = elements.moved(self.dst, load_int64(builder, self.dst_table, row))
            yield src, dst, builder.icmp_signed("<", row, self.valid)


def emit_copy(rows: Rows, src_end: Value) -> None:
    """Move rows that are runs; steps that are not valid in either loop write zeros.

    Elements of src from the address `src_end` on must not be read.
    """
    elements, run = rows.elements, rows.columns
    builder = elements.builder
    if elements.is_nibble:
        _emit_any(rows)
        return
    # all rows have the same length, so it is tested before the loop over them, by few branches: a
    # call may have 32 short rows; once those with data are moved, the others are cleared
    moved, done = (builder.append_basic_block(name) for name in ("moved", "done"))
    data_rows = maximum(builder, minimum(builder, rows.valid, rows.last), rows.first)
    data, rest = rows._replace(last=data_rows), rows._replace(first=data_rows)
    sizes = (nbytes * BYTE_BITS // elements.bits for nbytes in _VECTOR_NBYTES)
    counts = [lanes for lanes in sizes if lanes > 1]
    other = builder.append_basic_block("other")
    by_length = builder.switch(run.extent, other)
    for lanes in counts:
        block = builder.append_basic_block("vectors")
        by_length.add_case(int64(lanes), block)
        builder.position_at_end(block)
        _emit_vectors(rows, lanes, src_end)
        builder.branch(done)
    builder.position_at_end(other)
    parts = _parts_of(elements)
    if has_masks() and not elements.streams:
        lane, line = (bits // elements.bits for bits in (LANE_BITS, LINE_BITS))
        # whole rows of at least 16 bytes are faster in parts that overlap: fewer accesses cross
        # lines
        is_long = builder.icmp_signed(">", run.extent, int64(parts[-1].longest))
        is_between = builder.and_(
            builder.icmp_signed(">=", run.extent, int64(lane)), builder.not_(is_long)
        )
        is_padded = builder.icmp_signed("<", run.valid, run.extent)
        # up to three vectors without a loop
        with builder.if_then(builder.or_(is_padded, builder.not_(is_between))):
            for lanes, vectors in ((lane, 1), (line, 1), (line, 2), (line, 3)):
                is_short = builder.icmp_signed("<", run.extent, int64(vectors * lanes))
                with builder.if_then(is_short):
                    _emit_masked(rows, lanes, vectors)
                    builder.branch(done)
        longest = int64(_MEMMOVE_NBYTES * BYTE_BITS // elements.bits)
        is_lines = builder.and_(is_long, builder.icmp_signed("<", run.extent, longest))
        with builder.if_then(builder.and_(is_lines, builder.not_(is_padded))):
            _emit_lines(data)
            builder.branch(moved)
    if parts:
        # in ascending order: each begins where the one before it ends
        with builder.if_then(builder.icmp_signed(">", run.valid, int64(parts[0].lanes))):
            for part in parts:
                with builder.if_then(builder.icmp_signed("<=", run.valid, int64(part.longest))):
                    _emit_parts(data, part)
                    builder.branch(moved)
    _emit_any(rows)
    builder.branch(done)
    builder.position_at_end(moved)
    for _, dst, _ in rest.each():
        emit_clear(elements, dst, run.extent)
    builder.branch(done)
    builder.position_at_end(done)


def _emit_vectors(rows: Rows, lanes: int, src_end: Value) -> None:
    """Move rows of one vector each."""
    elements, builder, valid = rows.elements, rows.elements.builder, rows.columns.valid
    data_rows = minimum(builder, rows.valid, rows.last)
    # if no element of a row is valid, src has no such row and must not be read
    data_rows = builder.select(builder.icmp_signed(">", valid, int64(0)), data_rows, rows.first)
    is_whole = builder.icmp_signed("==", valid, int64(lanes))
    # the last address from which a vector may be loaded: it may extend beyond its run, but not
    # beyond src
    last_start = builder.sub(src_end, elements.nbytes(int64(lanes)))
    last_row = builder.add(elements.address_of(rows.src), rows.src_span)
    is_inside = builder.or_(is_whole, builder.icmp_signed("<=", last_row, last_start))
    valid_mask = _load_mask(elements, lanes, valid)
    rows = rows.rebased()
    data = rows._replace(last=data_rows)

    def move(src: Location, dst: Location) -> None:
        vector = builder.and_(elements.load_vector(src, lanes), valid_mask)
        elements.store_lines(vector, dst)

    with builder.if_else(is_inside) as (inside, otherwise):
        with inside:
            for src, dst, _ in data.each():
                move(src, dst)
        with otherwise:
            for src, dst, _ in data.each():
                is_before_end = builder.icmp_signed("<=", elements.address_of(src), last_start)
                with builder.if_else(is_before_end) as (before, at_end):
                    with before:
                        move(src, dst)
                    with at_end:
                        elements.store_vector(elements.zeros(lanes), dst)
                        _copy_each(elements, src, dst, valid)
    for _, dst, _ in rows._replace(first=maximum(builder, data_rows, rows.first)).each():
        elements.store_vector(elements.zeros(lanes), dst)


def _emit_masked(rows: Rows, lanes: int, vectors: int) -> None:
    """Move rows shorter than `vectors` vectors, by masked loads and stores."""
    elements, builder = rows.elements, rows.elements.builder
    starts = [int64(k * lanes) for k in range(vectors)]
    loaded, stored = (
        [elements.lane_mask(builder.sub(count, start), lanes) for start in starts]
        for count in (rows.columns.valid, rows.columns.extent)
    )
    data_rows = maximum(builder, minimum(builder, rows.valid, rows.last), rows.first)
    rows = rows.rebased()
    for src, dst, _ in rows._replace(last=data_rows).each():
        parts = [
            elements.load_masked(src.plus(builder, start), mask)
            for start, mask in zip(starts, loaded, strict=True)
        ]
        for start, mask, part in zip(starts, stored, parts, strict=True):
            elements.store_masked(part, dst.plus(builder, start), mask)
    for _, dst, _ in rows._replace(first=data_rows).each():
        for start, mask in zip(starts, stored, strict=True):
            elements.store_masked(elements.zeros(lanes), dst.plus(builder, start), mask)


def _emit_lines(rows: Rows) -> None:
    """Move whole rows of more than a line by vectors of a line; the last one is masked."""
    elements, builder, extent = rows.elements, rows.elements.builder, rows.columns.extent
    lanes = LINE_BITS // elements.bits
    last = builder.and_(builder.sub(extent, int64(1)), int64(-lanes))
    mask = elements.lane_mask(builder.sub(extent, last), lanes)
    for src, dst, _ in rows.rebased().each():
        with loop(builder, int64(0), last, lanes) as start:
            vector = elements.load_vector(src.plus(builder, start), lanes)
            elements.store_vector(vector, dst.plus(builder, start))
        vector = elements.load_masked(src.plus(builder, last), mask)
        elements.store_masked(vector, dst.plus(builder, last), mask)


class _Parts(NamedTuple):
    """Vectors of some lanes, and a tail of at most as many that may overlap the last one."""

    lanes: int
    vectors: int
    tail: int

    @property
    def longest(self) -> int:
        """Elements of the longest row that they cover."""
        return self.vectors * self.lanes + self.tail


def _parts_of(elements: Elements) -> list[_Parts]:
    """Return the rows of `_PARTS` for elements of a width; none if the kernel streams."""
    if elements.streams:
        return []
    parts = [
        _Parts(size * BYTE_BITS // elements.bits, count, tail * BYTE_BITS // elements.bits)
        for size, count, tail in _PARTS
    ]
    # masked stores of whole lines, where they exist, are faster than parts of lines
    return [
        part
        for part in parts
        if part.tail and not (has_masks() and elements.fills_line(part.lanes))
    ]


def _emit_parts(rows: Rows, parts: _Parts) -> None:
    """Move rows by a few vectors and a tail that may overlap the last one; zeros follow them."""
    elements, builder, columns = rows.elements, rows.elements.builder, rows.columns
    lanes, count, tail = parts
    pieces = [(int64(k * lanes), lanes) for k in range(count)]
    pieces.append((builder.sub(columns.valid, int64(tail)), tail))
    skipped = builder.sub(columns.extent, columns.valid)
    rows = rows.rebased()
    for src, dst, _ in rows.each():
        vectors = [elements.load_vector(src.plus(builder, at), size) for at, size in pieces]
        for (at, _), vector in zip(pieces, vectors, strict=True):
            elements.store_vector(vector, dst.plus(builder, at))
    # a separate loop: inside the one above it would slow rows without zeros down by a tenth
    with builder.if_then(builder.icmp_signed(">", skipped, int64(0))):
        for _, dst, _ in rows.each():
            emit_clear(elements, dst.plus(builder, columns.valid), skipped)


def _emit_any(rows: Rows) -> None:
    """Move rows of any length; zeros follow them."""
    elements, builder, columns = rows.elements, rows.elements.builder, rows.columns
    copy = _copy_lines if elements.streams else _copy_run
    for src, dst, is_valid in rows.rebased().each():
        valid = builder.select(is_valid, columns.valid, int64(0))
        (_copy_each if elements.is_nibble else copy)(elements, src, dst, valid)
        rest = builder.sub(columns.extent, valid)
        emit_clear(elements, dst.plus(builder, valid), rest)


def _copy_each(elements: Elements, src: Location, dst: Location, count: Value) -> None:
    """Copy a run element by element."""
    builder = elements.builder
    with loop(builder, int64(0), count) as i:
        elements.store(elements.load(src.plus(builder, i)), dst.plus(builder, i))


def _copy_lines(elements: Elements, src: Location, dst: Location, count: Value) -> None:
    """Copy a run by non-temporal stores of whole cache lines, and its tail by others."""
    builder = elements.builder
    lanes = LINE_BITS // elements.bits
    whole = builder.and_(count, int64(-lanes))
    with loop(builder, int64(0), whole, lanes) as i:
        line = elements.load_vector(src.plus(builder, i), lanes)
        elements.store_lines(line, dst.plus(builder, i))
    tail = src.plus(builder, whole), dst.plus(builder, whole)
    _copy_tail(elements, *tail, builder.sub(count, whole), lanes)


def _copy_run(elements: Elements, src: Location, dst: Location, count: Value) -> None:
    """Copy a run by memmove if it is long, else by vectors."""
    builder = elements.builder
    size = elements.bits // BYTE_BITS
    is_long = builder.icmp_signed(">=", count, int64(_MEMMOVE_NBYTES // size))
    with builder.if_else(is_long) as (long, short):
        with long:
            byte = BYTE.as_pointer()
            pointers = [builder.bitcast(elements.pointer(side), byte) for side in (dst, src)]
            # memmove, since a reorder onto itself is legal
            memmove = builder.module.declare_intrinsic("llvm.memmove", [byte, byte, I64])
            nbytes = builder.mul(count, int64(size))
            builder.call(memmove, [*pointers, nbytes, ir.Constant(ir.IntType(1), 0)])
        with short:
            _copy_vectors(elements, src, dst, count)


def _copy_vectors(elements: Elements, src: Location, dst: Location, count: Value) -> None:
    """Copy a run by vectors; the last one overlaps the one before it."""
    builder = elements.builder
    lanes = register_bits() * step_registers() // elements.bits
    is_enough = builder.icmp_signed(">=", count, int64(lanes))
    with builder.if_else(is_enough) as (enough, few):
        with enough:
            last = builder.sub(count, int64(lanes))
            with loop(builder, int64(0), count, lanes) as next_start:
                start = minimum(builder, next_start, last)
                vector = elements.load_vector(src.plus(builder, start), lanes)
                elements.store_vector(vector, dst.plus(builder, start))
        with few:
            _copy_tail(elements, src, dst, count, lanes)


def _copy_tail(elements: Elements, src: Location, dst: Location, count: Value, lanes: int) -> None:
    """Copy fewer than `lanes` elements, by a vector for each bit of `count` that is set."""
    builder = elements.builder
    lanes //= 2
    while lanes:
        has_part = builder.icmp_signed("!=", builder.and_(count, int64(lanes)), int64(0))
        with builder.if_then(has_part):
            done = builder.and_(count, int64(-2 * lanes))
            vector = elements.load_vector(src.plus(builder, done), lanes)
            elements.store_vector(vector, dst.plus(builder, done))
        lanes //= 2


def _load_mask(elements: Elements, lanes: int, valid: Value) -> Value:
    """Return a vector of `lanes` elements: all ones in the first `valid`, zeros in the others.

    It is loaded from a constant of ones followed by zeros, `valid` elements before the first zero:
    a mask made by a comparison would be recomputed for each row.
    """
    builder = elements.builder
    ones = bytearray([255] * _MASK_NBYTES + [0] * _MASK_NBYTES)
    content = ir.Constant(ir.ArrayType(BYTE, len(ones)), ones)
    first = shared_constant(builder, "memdesc.ones", content)
    skipped = builder.sub(int64(_MASK_NBYTES * BYTE_BITS // elements.bits), valid)
    return elements.load_vector(Location(first, skipped), lanes)


def emit_strided(rows: Rows) -> None:
    """Move the elements that are valid in both loops and write zeros for the others."""
    elements, builder, columns = rows.elements, rows.elements.builder, rows.columns
    for src, dst, is_valid in rows.each():
        valid = builder.select(is_valid, columns.valid, int64(0))
        with loop(builder, int64(0), valid) as column:
            steps = (
                builder.mul(column, stride) for stride in (columns.src_stride, columns.dst_stride)
            )
            source, target = map(elements.moved, (src, dst), steps)
            elements.store(elements.load(source), target)
        with loop(builder, valid, columns.extent) as column:
            target = elements.moved(dst, builder.mul(column, columns.dst_stride))
            elements.store(elements.zero, target)
