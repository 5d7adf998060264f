"""Micro-kernels for rows of an offset table: copied as contiguous runs, or element by element.

Joined runs are lines of dst that are put together from pieces of src. The length of any other run
decides how it is copied, by the first of these ways that fits:

* exactly one vector (`_VECTOR_NBYTES`), which may end in zeros;
* masked loads and stores, where the processor has them: short runs that end in zeros, runs of less
  than 16 bytes, and runs of 97 to 191 bytes;
* a few vectors and a tail that overlaps the last one (`_PARTS`);
* non-temporal stores of lines, where the kernel streams;
* a loop over vectors.
"""

from collections.abc import Iterator

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
    load_fields,
    loop,
    maximum,
    minimum,
    shared_constant,
    stack_space,
    when,
    where,
)
from reorder.cpu.machine import LANE_BITS, LINE_BITS, LINE_NBYTES
from reorder.cpu.schedule.program import JoinedRow, LinePiece
from reorder.cpu.tables import WORD_NBYTES, nbytes_of
from reorder.cpu.target import has_masks, instructions

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
# Elements that are moved one by one in each step of their loop.
_AT_ONCE = 4
# Without masked loads, how many lines are put together at once: their pieces are more stores than
# any processor keeps outside its first-level cache.
_PAIRS = 32


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

    def src_at(self, row: Value) -> Location:
        """Return where a row starts in src."""
        return self.elements.moved(self.src, self.src_table[row])

    def split(self) -> tuple["Rows", "Rows"]:
        """Return the rows that hold data, and the others."""
        stop = maximum(minimum(self.head.valid_rows, self.last), self.first)
        return self._replace(last=stop), self._replace(first=stop)

    def loop(self) -> Iterator[tuple[Location, Location, Value]]:
        """Emit a loop over the rows; yields both locations, and whether the row holds data."""
        with loop(self.first, self.last) as row:
            src = self.src_at(row)
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
        with when(run.pieces > 0):
            _emit_joined(rows)
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
    if elements.streams:
        # runs of a line or more, which fill whole lines where the kernel streams
        lanes = LINE_BITS // elements.bits
        with when((run.extent >= lanes) & (run.valid == run.extent)):
            for src, dst, _ in data.rebased().loop():
                with loop(0, run.extent, lanes) as i:
                    elements.store_lines(elements.load_vector(src + i, lanes), dst + i)
            builder.branch(moved)
    _emit_any(rows)
    builder.branch(done)
    builder.position_at_end(moved)
    for _, dst, _ in rest.loop():
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
            for src, dst, _ in data.loop():
                move(src, dst)
        with otherwise:
            for src, dst, _ in data.loop():
                with either(elements.address_of(src) <= last_start) as (before, at_end):
                    with before:
                        move(src, dst)
                    with at_end:
                        elements.store_vector(elements.zeros(lanes), dst)
                        _copy(elements, src, dst, valid)
    for _, dst, _ in rows._replace(first=maximum(data_rows, rows.first)).loop():
        elements.store_vector(elements.zeros(lanes), dst)


def _emit_joined(rows: Rows) -> None:
    """Move rows of `JoinedRow`: lines of src, then a line that is put together from pieces."""
    elements, pieces = rows.elements, rows.head.pieces
    row_nbytes = nbytes_of(JoinedRow) + pieces * nbytes_of(LinePiece)
    place = (elements.address_of(rows.dst) & (LINE_NBYTES - 1)).lshr(rows.head.place_shift)
    # no table of offsets in dst comes before these tables
    table = rows.dst_table + place * (WORD_NBYTES + rows.head.rows * row_nbytes)
    last = minimum(rows.last, table[0])
    rows = rows._replace(src_table=table + WORD_NBYTES, last=last).rebased()
    joins = rows.head.joins != 0

    def piece_of(row: Value, k: Value) -> tuple[Location, Value]:
        at = rows.src_table + row * row_nbytes + nbytes_of(JoinedRow)
        src, mask = load_fields(at + k * nbytes_of(LinePiece), LinePiece)
        return elements.moved(rows.src, src), mask

    def move_lines(row: Value) -> tuple[Value, Location]:
        """Move the lines of a row but the last one; return their bytes, and where they start."""
        dst_at, nbytes = load_fields(rows.src_table + row * row_nbytes, JoinedRow)
        (src, _), dst = piece_of(row, 0), elements.moved(rows.dst, dst_at)
        with loop(0, nbytes, LINE_NBYTES) as i:
            elements.store_lines(elements.load_vector(src + i, LINE_NBYTES), dst + i)
        return nbytes, dst

    if has_masks():
        line = Variable(elements.builder, elements.vector_type(LINE_NBYTES))
        with loop(rows.first, rows.last) as row:
            nbytes, dst = move_lines(row)
            with when(joins):
                line.value = elements.zeros(LINE_NBYTES)
                with loop(0, pieces) as k:
                    src, mask = piece_of(row, k)
                    lanes = mask.bitcast(ir.VectorType(ir.IntType(1), LINE_NBYTES))
                    line.value |= elements.load_masked(src + nbytes, lanes)
                elements.store_lines(line.value, dst + nbytes)
        return
    # the pieces of all these lines are stored to scratch before the first line is loaded from it:
    # a load that needs two stores waits until both are in the cache
    space = stack_space(elements.builder, BYTE, _PAIRS * 2 * LINE_NBYTES, LINE_NBYTES)
    with loop(rows.first, rows.last, _PAIRS) as begin:
        end = minimum(begin + _PAIRS, rows.last)
        with when(joins), loop(begin, end) as row:
            (own, mask), (other, _) = piece_of(row, 0), piece_of(row, pieces - 1)
            _, nbytes = load_fields(rows.src_table + row * row_nbytes, JoinedRow)
            count = nbytes + mask.ctpop()
            own, other = own + (count - LINE_NBYTES), other + count
            # a row that has the whole line may be the last one in src
            start = where(mask != -1, elements.address_of(other), elements.address_of(own))
            pair = Location(space, (row - begin) * (2 * LINE_NBYTES))
            for k, at in enumerate((own, Location(start, count.like(0)))):
                elements.store_vector(elements.load_vector(at, LINE_NBYTES), pair + k * LINE_NBYTES)
        with loop(begin, end) as row:
            nbytes, dst = move_lines(row)
            with when(joins):
                _, mask = piece_of(row, 0)
                pair = Location(space, (row - begin) * (2 * LINE_NBYTES))
                line = elements.load_vector(pair + (LINE_NBYTES - mask.ctpop()), LINE_NBYTES)
                elements.store_lines(line, dst + nbytes)


def _emit_masked(rows: Rows, lanes: int, vectors: int) -> None:
    """Move rows shorter than `vectors` vectors, by masked loads and stores."""
    elements = rows.elements
    starts = range(0, vectors * lanes, lanes)
    loaded, stored = (
        [elements.lane_mask(count - start, lanes) for start in starts]
        for count in (rows.head.valid, rows.head.extent)
    )
    data, rest = rows.rebased().split()
    for src, dst, _ in data.loop():
        parts = [
            elements.load_masked(src + start, mask)
            for start, mask in zip(starts, loaded, strict=True)
        ]
        for start, mask, part in zip(starts, stored, parts, strict=True):
            elements.store_masked(part, dst + start, mask)
    for _, dst, _ in rest.loop():
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
    for src, dst, _ in rows.loop():
        vectors = [elements.load_vector(src + at, size) for at, size in pieces]
        for (at, _), vector in zip(pieces, vectors, strict=True):
            elements.store_vector(vector, dst + at)
    # a separate loop: inside the one above, it would slow down rows without zeros by a tenth
    with when(skipped > 0):
        for _, dst, _ in rows.loop():
            emit_clear(elements, dst + head.valid, skipped)


def _emit_any(rows: Rows) -> None:
    """Move rows of any length; zeros follow them."""
    elements, head = rows.elements, rows.head
    for src, dst, is_valid in rows.rebased().loop():
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
    for src, dst, is_valid in rows.loop():
        valid = where(is_valid, head.valid, 0)
        none, whole = valid.like(0), valid & -_AT_ONCE
        with either(valid < 2 * _AT_ONCE) as (few, many):
            with few:
                _emit_elements(rows, (src, dst), (none, valid), 1)
            with many:
                _emit_elements(rows, (src, dst), (none, whole), _AT_ONCE)
                _emit_elements(rows, (src, dst), (whole, valid), 1)
        with loop(valid, head.extent) as column:
            elements.store(elements.zero, elements.moved(dst, column * head.dst_stride))


def _emit_elements(
    rows: Rows, at: tuple[Location, Location], span: tuple[Value, Value], count: int
) -> None:
    """Move some elements of a row, `count` in each step."""
    elements, (src, dst) = rows.elements, at
    with loop(*span, count) as column:
        columns = [column + k for k in range(count)]
        moved = [elements.load(elements.moved(src, k * rows.head.src_stride)) for k in columns]
        for k, element in zip(columns, moved, strict=True):
            elements.store(element, elements.moved(dst, k * rows.head.dst_stride))


_LINE = ir.VectorType(BYTE, LINE_NBYTES)
_PAIRS_OF_LINE = ir.VectorType(ir.IntType(16), LINE_NBYTES // 2)


def emit_permuted_lines(rows: Rows) -> None:
    """Move rows of up to two lines whose bytes are in another order in src, in up to two lines."""
    elements, head = rows.elements, rows.head
    picks = rows.src_table + head.rows * WORD_NBYTES
    loaded = [elements.lane_mask(head.valid - k, LINE_NBYTES) for k in (0, LINE_NBYTES)]
    data, rest = rows.rebased().split()
    with either(head.valid > LINE_NBYTES) as (two, one):
        with two:
            for src, dst, _ in data.loop():
                first, second = (
                    elements.load_masked(src + k * LINE_NBYTES, mask)
                    for k, mask in enumerate(loaded)
                )
                with loop(0, head.extent, LINE_NBYTES) as i:
                    line_picks, left = (picks + i).load_at(_LINE), head.extent - i
                    line = _permuted(elements, "vpermi2var", first, line_picks, second)
                    _store_part(
                        elements, line, dst + i, left, elements.lane_mask(left, LINE_NBYTES)
                    )
        with one:
            line_picks, stored = picks.load_at(_LINE), elements.lane_mask(head.extent, LINE_NBYTES)
            for src, dst, _ in data.loop():
                line = _permuted(
                    elements, "permvar", elements.load_masked(src, loaded[0]), line_picks
                )
                _store_part(elements, line, dst, head.extent, stored)
    for _, dst, _ in rest.loop():
        emit_clear(elements, dst, head.extent)


def _permuted(elements: Elements, name: str, *operands: Value) -> Value:
    """Return the bytes of one or two lines that an instruction picks, or pairs of them."""
    unit, kind = ("qi", _LINE) if instructions().permutes_lines else ("hi", _PAIRS_OF_LINE)
    lines = (operand.bitcast(kind) for operand in operands)
    permuted = call(elements.builder, f"llvm.x86.avx512.{name}.{unit}.512", kind, *lines)
    return permuted.bitcast(_LINE)


def _store_part(elements: Elements, line: Value, dst: Location, nbytes: Value, mask: Value) -> None:
    """Write the first bytes of a line, which are those in a mask; whole ones as lines."""
    with either(nbytes >= LINE_NBYTES) as (whole, part):
        with whole:
            elements.store_lines(line, dst)
        with part:
            elements.store_masked(line, dst, mask)
