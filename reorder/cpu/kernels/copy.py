"""Micro-kernels for rows of an offset table: copied as contiguous runs, or element by element.

The length of a run decides how it is copied, by the first of these ways that fits:

* exactly one vector (`_VECTOR_NBYTES`), which may end in zeros;
* masked loads and stores, where the processor has them: short runs that end in zeros, runs of less
  than 16 bytes, and runs of 97 to 191 bytes;
* a few vectors and a tail that overlaps the last one (`_PARTS`);
* a loop over vectors.
"""

from collections.abc import Iterator
from functools import partial

from llvmlite import ir

from memdesc.dtypes import BYTE_BITS
from memdesc.tuples import NamedTuple
from reorder.cpu.kernels.elements import Elements, Location, cover, emit_clear
from reorder.cpu.llvm.emit import (
    BYTE,
    Value,
    Variable,
    call,
    either,
    kept,
    loop,
    maximum,
    minimum,
    shared_constant,
    stack_space,
    when,
    where,
)
from reorder.cpu.llvm.shuffle import LANE_BITS, concatenate, pick
from reorder.cpu.schedule.program import ALIKE
from reorder.cpu.target import LINE_BITS, LINE_NBYTES, has_masks

# The bytes of the longest mask.
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
# Runs of half a line, and of 1 to 4 lines, are joined in registers where dst starts at an even
# byte: the instruction picks 16-bit units from two vectors.
_FEW_LINES, _UNIT_NBYTES = tuple(size * LINE_NBYTES // 2 for size in (1, 2, 4, 6, 8)), 2
_PICK = "llvm.x86.avx512.vpermi2var.hi.512"


class Rows(NamedTuple):
    """Rows to move from src to dst: `first` to `last`; only the valid ones hold data."""

    elements: Elements
    src: Location
    dst: Location
    # a `RowsHead`: its valid rows are those of the box
    head: Value
    first: Value
    last: Value
    # addresses of the offset of each row in src and in dst
    src_table: Value
    dst_table: Value

    def rebased(self) -> "Rows":
        """Return the same rows from locations of index 0, with registers for all that a loop uses.

        If these were reloaded from the stack in each step, short rows would move at 0.76 times the
        speed.
        """
        src, dst = map(self.elements.rebased, (self.src, self.dst))
        return self._replace(
            src=Location(kept(src.address), src.index),
            dst=Location(kept(dst.address), dst.index),
            src_table=kept(self.src_table),
            dst_table=kept(self.dst_table),
        )

    def split(self) -> tuple["Rows", "Rows"]:
        """Return the rows that hold data, and the others."""
        stop = maximum(minimum(self.head.valid_rows, self.last), self.first)
        return self._replace(last=stop), self._replace(first=stop)

    def each(self) -> Iterator[tuple[Location, Location, Value]]:
        """Emit a loop over the rows; yields both locations, and whether the row holds data."""
        with loop(self.first, self.last) as row:
            src = self.elements.moved(self.src, self.src_table[row])
            dst = self.elements.moved(self.dst, self.dst_table[row])
            yield src, dst, row < self.head.valid_rows


def emit_copy(rows: Rows, src_end: Value) -> None:
    """Move rows that are runs; steps that are not valid in one of the two loops write zeros.

    Elements of src from the address `src_end` on must not be read.
    """
    elements, run = rows.elements, rows.head
    builder = elements.builder
    if elements.is_nibble:
        _emit_any(rows)
        return
    # all rows have the same length, so few branches test it before the loop over them: a call may
    # have 32 short rows. Once those with data are moved, the others are cleared
    moved, done = (builder.append_basic_block(name) for name in ("moved", "done"))
    data, rest = rows.split()
    if elements.bits == BYTE_BITS:
        with when(rows.head.joins_lines != 0):
            _emit_lines(rows, done)
            builder.branch(done)
    other = builder.append_basic_block("other")
    by_length = builder.switch(run.extent, other)
    for lanes in (nbytes * BYTE_BITS // elements.bits for nbytes in _VECTOR_NBYTES):
        if lanes <= 1:
            continue
        block = builder.append_basic_block("vectors")
        by_length.add_case(run.extent.operand(lanes), block)
        builder.position_at_end(block)
        _emit_vectors(rows, lanes, src_end)
        builder.branch(done)
    builder.position_at_end(other)
    parts = _parts_of(elements)
    if has_masks() and not elements.streams:
        lane, line = (bits // elements.bits for bits in (LANE_BITS, LINE_BITS))
        # whole rows of at least 16 bytes are faster in overlapping parts: fewer accesses cross
        # lines
        is_between = (run.extent >= lane) & (run.extent <= _longest(parts[-1]))
        is_padded = run.valid < run.extent
        # up to three vectors without a loop
        with when(is_padded | ~is_between):
            for lanes, vectors in ((lane, 1), (line, 1), (line, 2), (line, 3)):
                with when(run.extent < vectors * lanes):
                    _emit_masked(rows, lanes, vectors)
                    builder.branch(done)
    if parts:
        # in ascending order: each begins where the one before it ends
        with when(run.valid > parts[0][0]):
            for part in parts:
                with when(run.valid <= _longest(part)):
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
    elements, valid = rows.elements, rows.head.valid
    # if no element of a row is valid, src has no such row and must not be read
    data_rows = where(valid > 0, minimum(rows.head.valid_rows, rows.last), rows.first)
    # the last address from which a vector may be loaded: it may extend beyond its run, but not
    # beyond src
    last_start = src_end - elements.nbytes(lanes)
    last_row = elements.address_of(rows.src) + rows.head.src_span
    is_inside = (valid == lanes) | (last_row <= last_start)
    valid_mask = _load_mask(elements, lanes, valid)
    rows = rows.rebased()
    data = rows._replace(last=data_rows)

    def move(src: Location, dst: Location) -> None:
        elements.store_lines(elements.load_vector(src, lanes) & valid_mask, dst)

    with either(is_inside) as (inside, otherwise):
        with inside:
            for src, dst, _ in data.each():
                move(src, dst)
        with otherwise:
            for src, dst, _ in data.each():
                with either(elements.address_of(src) <= last_start) as (before, at_end):
                    with before:
                        move(src, dst)
                    with at_end:
                        elements.store_vector(elements.zeros(lanes), dst)
                        _copy(elements, src, dst, valid)
    for _, dst, _ in rows._replace(first=maximum(data_rows, rows.first)).each():
        elements.store_vector(elements.zeros(lanes), dst)


def _emit_lines(rows: Rows, done: Value) -> None:
    """Move rows of bytes as whole lines of dst, wherever they start; may branch to `done`.

    If a row follows another one in dst, the line that both share is joined from them, and written
    with the first one; lines at other ends of rows are written in part. A row has at least a line,
    so no byte outside it is read.
    """
    elements, head, length = rows.elements, rows.head, rows.head.extent
    moves = rows.rebased()

    def row_at(index: Value) -> tuple[Location, Location, Value]:
        src, dst = moves.src, moves.dst
        at_dst = rows.dst_table[index]
        return elements.moved(src, rows.src_table[index]), elements.moved(dst, at_dst), at_dst

    def ends_of(dst: Location) -> tuple[Value, Value]:
        address = elements.address_of(dst)
        return -address & (LINE_NBYTES - 1), (address + length) & (LINE_NBYTES - 1)

    src, dst, at_dst = row_at(rows.first)
    ends = ends_of(dst)
    is_first = (at_dst - rows.dst_table[maximum(rows.first - 1, 0)] != length) & ~head.is_preceded
    if has_masks():
        if elements.streams:  # nothing else joins runs that end in zeros
            with when(head.valid < length):
                _emit_few_lines(rows, LINE_NBYTES, ends[0], is_first, is_padded=True)
                elements.builder.branch(done)
        for nbytes in _FEW_LINES:
            is_even = (ends[0] & (_UNIT_NBYTES - 1)) == 0
            with when((length == nbytes) & (head.joins_lines == ALIKE) & is_even):
                _emit_few_lines(rows, nbytes, ends[0], is_first)
                elements.builder.branch(done)
    with when(is_first):
        _copy_part(elements, src, dst, ends[0])
    with loop(rows.first, rows.last) as row:
        src, dst, at_dst = row_at(row)
        first, rest = ends_of(dst) if elements.streams else ends
        stop = length - rest
        with loop(first, stop, LINE_NBYTES) as i:
            elements.store_lines(elements.load_vector(src + i, LINE_NBYTES), dst + i)
        after = row + 1
        following, following_dst, at_following = row_at(minimum(after, head.rows - 1))
        is_next = at_following - at_dst == length
        with either(is_next | head.is_followed) as (followed, alone):
            with followed, when(rest > 0):
                address = where(is_next, following.address, src.address + head.follower)
                line = _joined_line(elements, src + stop, rest, Location(address, src.index))
                elements.store_lines(line, dst + stop)
            with alone:
                _copy_part(elements, src + stop, dst + stop, rest)
        with when(~is_next & (after < rows.last) & ~head.is_preceded):
            _copy_part(elements, following, following_dst, ends_of(following_dst)[0])


def _emit_few_lines(
    rows: Rows, nbytes: int, head: Value, is_first: Value, *, is_padded: bool = False
) -> None:
    """Move rows of a few whole lines, or pairs of rows of half a line, as lines of dst.

    Each row, or pair, has `head` bytes before its first line of dst. The line that two of them
    share is picked from a line of each, because a load that crosses lines would take as long as a
    store that does. Unless `is_first`, the first head is written with the row before it. Rows of
    one line that are padded end in zeros.
    """
    elements, builder = rows.elements, rows.elements.builder
    rest, step = max(0, nbytes - LINE_NBYTES), max(1, LINE_NBYTES // nbytes)
    picks, valid = _picks_from(head), elements.lane_mask(rows.head.valid, LINE_NBYTES)
    rows, units = rows.rebased(), picks.type
    whole = partial(elements.load_vector, lanes=LINE_NBYTES // step)
    load = partial(elements.load_masked, mask=valid) if is_padded else whole

    def src_at(row: Value) -> Location:
        return elements.moved(rows.src, rows.src_table[row])

    def line_of(*starts: Location) -> Value:
        return concatenate([*map(load, starts)]).bitcast(units)

    def line_at(row: Value) -> Value:
        return line_of(*(src_at(row + k) for k in range(step)))

    def store(line: Value, dst: Location, count: Value | None = None) -> None:
        vector = line.bitcast(elements.vector_type(LINE_NBYTES))
        if count is None:
            elements.store_lines(vector, dst)
        else:
            elements.store_masked(vector, dst, elements.lane_mask(count, LINE_NBYTES))

    # where a row starts in dst, and its last line: LLVM would load them again
    dst_at, last = Variable(builder), Variable(builder, units)

    def begin(row: Value, first: Value) -> None:
        last.value = first
        if rest:
            last.value = line_of(src_at(row) + rest)

    def joined(first: Value) -> Value:
        return call(builder, _PICK, units, last.value, picks, first)

    def move(row: Value, after: Value, *, is_last: bool) -> None:
        src, begin_of = src_at(row) + head, dst_at.value
        dst = elements.moved(rows.dst, begin_of) + head
        for start in range(0, rest, LINE_NBYTES):
            elements.store_lines(elements.load_vector(src + start, LINE_NBYTES), dst + start)
        dst_at.value, first = rows.dst_table[after], line_at(after)
        with either(dst_at.value - begin_of == max(nbytes, LINE_NBYTES)) as (followed, alone):
            with followed:
                store(joined(first), dst + rest)
            with alone:
                with either(rows.head.is_followed) as (goes_on, ends):
                    with goes_on:
                        following = src_at(row + (step - 1)) + rows.head.follower
                        store(
                            joined(line_of(*(following + pitch * k for k in range(step)))),
                            dst + rest,
                        )
                    with ends:
                        store(joined(last.value), dst + rest, LINE_NBYTES - head)
                if not is_last:
                    with when(~rows.head.is_preceded):
                        store(first, elements.moved(rows.dst, dst_at.value), head)
        begin(after, first)

    dst_at.value, first = rows.dst_table[rows.first], line_at(rows.first)
    # from a row of a pair to the other one
    pitch = rows.src_table[rows.first + (step - 1)] - rows.src_table[rows.first]
    with when(is_first):
        store(first, elements.moved(rows.dst, dst_at.value), head)
    begin(rows.first, first)
    with loop(rows.first + step, rows.last, step) as after:
        move(after - step, after, is_last=False)
    move(rows.last - step, minimum(rows.last, rows.head.rows - step), is_last=True)


def _picks_from(head: Value) -> Value:
    """Return the numbers of the 16-bit units of a line that starts `head` bytes into another."""
    count, unit = LINE_NBYTES // _UNIT_NBYTES, ir.IntType(_UNIT_NBYTES * BYTE_BITS)
    skipped = (head // _UNIT_NBYTES).trunc(unit).bitcast(ir.VectorType(unit, 1))
    return pick(skipped, [0] * count) + ir.Constant(ir.VectorType(unit, count), [*range(count)])


def _copy_part(elements: Elements, src: Location, dst: Location, count: Value) -> None:
    """Copy fewer bytes than a line."""
    if has_masks():
        mask = elements.lane_mask(count, LINE_NBYTES)
        elements.store_masked(elements.load_masked(src, mask), dst, mask)
    else:
        _copy(elements, src, dst, count)


def _joined_line(elements: Elements, own: Location, count: Value, follower: Location) -> Value:
    """Return a line of the last `count` bytes of a row and the first ones of the row after it."""
    if has_masks():
        mask = elements.lane_mask(count, LINE_NBYTES)
        other = elements.load_masked(follower + (-count), ~mask)
        return elements.load_masked(own, mask) | other
    # the last line of the row and the first line of the row after it: parts of both make a line
    space = stack_space(elements.builder, BYTE, 2 * LINE_NBYTES, LINE_NBYTES)
    pair = Location(space, count.like(0))
    last = own + (count - LINE_NBYTES)
    elements.store_vector(elements.load_vector(last, LINE_NBYTES), pair)
    elements.store_vector(elements.load_vector(follower, LINE_NBYTES), pair + LINE_NBYTES)
    return elements.load_vector(pair + (LINE_NBYTES - count), LINE_NBYTES)


def _emit_masked(rows: Rows, lanes: int, vectors: int) -> None:
    """Move rows shorter than `vectors` vectors, by masked loads and stores."""
    elements = rows.elements
    starts = range(0, vectors * lanes, lanes)
    loaded, stored = (
        [elements.lane_mask(count - start, lanes) for start in starts]
        for count in (rows.head.valid, rows.head.extent)
    )
    data, rest = rows.rebased().split()
    for src, dst, _ in data.each():
        parts = [
            elements.load_masked(src + start, mask)
            for start, mask in zip(starts, loaded, strict=True)
        ]
        for start, mask, part in zip(starts, stored, parts, strict=True):
            elements.store_masked(part, dst + start, mask)
    for _, dst, _ in rest.each():
        for start, mask in zip(starts, stored, strict=True):
            elements.store_masked(elements.zeros(lanes), dst + start, mask)


def _parts_of(elements: Elements) -> list[tuple[int, int, int]]:
    """Return the rows of `_PARTS` in elements of a width; none if the kernel streams."""
    # masked stores of whole lines, where they exist, are faster than parts of lines
    longest = LINE_NBYTES - 1 if has_masks() else max(size for size, _, _ in _PARTS)
    parts = [
        (size * BYTE_BITS // elements.bits, count, tail * BYTE_BITS // elements.bits)
        for size, count, tail in _PARTS
        if size <= longest and not elements.streams
    ]
    return [part for part in parts if part[-1]]


def _longest(part: tuple[int, int, int]) -> int:
    """Return the elements of the longest row that vectors and a tail cover."""
    lanes, count, tail = part
    return count * lanes + tail


def _emit_parts(rows: Rows, part: tuple[int, int, int]) -> None:
    """Move rows by a few vectors and a tail that may overlap the last one; zeros follow them."""
    elements, head = rows.elements, rows.head
    lanes, count, tail = part
    pieces = [*((k * lanes, lanes) for k in range(count)), (head.valid - tail, tail)]
    skipped = head.extent - head.valid
    rows = rows.rebased()
    for src, dst, _ in rows.each():
        vectors = [elements.load_vector(src + at, size) for at, size in pieces]
        for (at, _), vector in zip(pieces, vectors, strict=True):
            elements.store_vector(vector, dst + at)
    # a separate loop: inside the one above, it would slow down rows without zeros by a tenth
    with when(skipped > 0):
        for _, dst, _ in rows.each():
            emit_clear(elements, dst + head.valid, skipped)


def _emit_any(rows: Rows) -> None:
    """Move rows of any length; zeros follow them."""
    elements, head = rows.elements, rows.head
    for src, dst, is_valid in rows.rebased().each():
        valid = where(is_valid, head.valid, 0)
        _copy(elements, src, dst, valid)
        emit_clear(elements, dst + valid, head.extent - valid)


def _copy(elements: Elements, src: Location, dst: Location, count: Value) -> None:
    """Copy a run of any length."""

    def move(i: Value, lanes: int) -> None:
        elements.store_vector(elements.load_vector(src + i, lanes), dst + i)

    cover((0, count), elements.sizes, move, dst=(elements, dst))


def _load_mask(elements: Elements, lanes: int, valid: Value) -> Value:
    """Return a vector of `lanes` elements: all ones in the first `valid`, zeros in the others.

    It is loaded from a constant: a mask made by a comparison would be recomputed for each row.
    """
    ones = bytearray([255] * _MASK_NBYTES + [0] * _MASK_NBYTES)
    content = ir.Constant(ir.ArrayType(BYTE, len(ones)), ones)
    first = shared_constant(elements.builder, "memdesc.ones", content)
    skipped = _MASK_NBYTES * BYTE_BITS // elements.bits - valid
    return elements.load_vector(Location(first, skipped), lanes)


def emit_strided(rows: Rows) -> None:
    """Move the elements that are valid in both loops and write zeros for the others."""
    elements, head = rows.elements, rows.head
    for src, dst, is_valid in rows.each():
        valid = where(is_valid, head.valid, 0)
        with loop(0, valid) as column:
            element = elements.load(elements.moved(src, column * head.src_stride))
            elements.store(element, elements.moved(dst, column * head.dst_stride))
        with loop(valid, head.extent) as column:
            elements.store(elements.zero, elements.moved(dst, column * head.dst_stride))
