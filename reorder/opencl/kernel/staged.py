"""Kernels that move a tile through local memory: a load side, a local layout, a store side.

Work items load a part of src each, in the order that suits it, and store it in local memory; after
a barrier they store a part of dst each, in its order: a buffer in vectors along the loops that are
contiguous there, an image in rectangles of columns and rows, which devices store together.

A run of a buffer may start at any byte. Each vector is then in three aligned pairs of words of src.
In dst, vectors stay aligned, and the ends of a run are stored element by element. If a run is one
loop, the tiles are skewed instead: their rows end where a sector of memory ends, so each may start
before its tile, and only the ends of the tensor's rows are parts of vectors. Short rows that follow
each other in dst are one run: a row of local memory ends with a copy of what follows it.

Elements narrower than 32 bits are transposed in registers, as many rows at a time as a word has
elements. Local memory has the order of src if the elements of all vectors of dst, but not of src,
are at the same distances.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from math import gcd, prod
from operator import mul
from typing import TYPE_CHECKING

from memdesc.banks import bank_steps
from memdesc.dtypes import BYTE_BITS
from memdesc.tuples import NamedTuple
from reorder.opencl.kernel.access import (
    PAIRS_NBYTES,
    PIXEL_LANES,
    SHIFTS,
    VECTOR,
    WORD,
    address_of,
    element_of,
    integer_type,
    one_element,
    vector_type,
    word_of,
    words_of,
)
from reorder.opencl.kernel.formula import WORD_BITS
from reorder.opencl.kernel.launch import (
    Body,
    Pattern,
    Text,
    floor_log2,
    index_lines,
    indices_of,
    offset_at,
    shared_lines,
    start_lines,
)
from reorder.opencl.kernel.placement import span_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from reorder.opencl.kernel.formula import KernelFormula
    from reorder.opencl.kernel.placement import Nest

# the index of the lanes of a pixel among the loops of a tile
LANES = -1
# work items that access local memory together
_SUBGROUP = 32
# steps of a work item that are written one after another; more are a loop
_MAX_UNROLLED = 16
# words that a work item loads before it stores the first
_MAX_HELD = 32
# the most steps in which banks may serve the loads of elements
_MAX_GATHERED = 2


# the steps of a loop from the start of a tile: a number, or the text that computes it
Index = int | Text
# a loop, its steps in the vectors of a side or between them, and the distance of these steps
Digit = tuple[int, int, int]


class Side(NamedTuple):
    """How a tile is accessed in a buffer or an image.

    Work items access vectors of `lanes` elements of `bits` along the run: the loops of `run`,
    innermost first, are contiguous, and `rest` are the other loops of the tile. Either may have
    `LANES`. In a buffer, with `is_whole`, each vector is inside as a whole, or not at all. With
    `is_shifted`, runs start at any element, otherwise at multiples of a vector, or of one of its
    `parts`. With `align`, rows of dst end at multiples of that many bytes. Along the loop `rows`,
    runs of dst follow each other: rows, whose length is a parameter. `spans` has, for each index of
    the nest that bounds it, the elements of a run after which it grows by one; 0 if it does not.

    In an image vectors are the lanes of a pixel, and whole. Adjacent work items take adjacent
    pixels: `order` has the loops instead of `rest`, innermost first. A loop may occur in it again.
    """

    run: tuple[int, ...]
    rest: tuple[int, ...]
    bits: int
    lanes: int
    is_whole: bool = False
    is_shifted: bool = False
    align: int = 0
    rows: int | None = None
    order: tuple[Digit, ...] = ()
    spans: tuple[int, ...] = ()
    parts: int = 1

    @property
    def is_image(self) -> bool:
        """Whether it has pixels."""
        return bool(self.order)

    @property
    def nbytes(self) -> int:
        """Bytes of a vector."""
        return self.lanes * self.bits // BYTE_BITS

    @property
    def unit(self) -> int:
        """Bytes of what memory is made of: an element, or the byte that holds two."""
        return max(self.bits // BYTE_BITS, 1)

    def in_dst(self, offset: str) -> str:
        """Return the address of an element of dst, or of the byte that has it."""
        return address_of(f"(__global {integer_type(self.unit)} *)dst", offset, self.bits)

    def loaded(self, address: str) -> str:
        """Return the expression of a vector of src."""
        pointer = f"(__global const {vector_type(self.nbytes // self.parts)} *)"
        starts = (k * self.lanes // self.parts for k in range(self.parts))
        loads = ", ".join(f"*{pointer}({address} + {start})" for start in starts)
        return f"({vector_type(self.nbytes)})({loads})"

    def elements(self, nbytes: int) -> int:
        """Return how many elements take this many bytes."""
        return nbytes * BYTE_BITS // self.bits


class LocalLayout(NamedTuple):
    """Where a tile is in local memory.

    Units are bytes, or elements of 4 bits. `strides` are those between the steps of each loop, and
    then of the lanes of a pixel. After each `gap_steps` steps of a loop, `gap` more follow: after
    `gap_elements` of the run that is contiguous here, if the loop is part of it.
    """

    strides: tuple[int, ...] = ()
    nbytes: int = 0
    gap: int = 0
    gap_loop: int = 0
    gap_steps: int = 1
    gap_elements: int = 0

    def offset(self, digits: Iterable[tuple[int, Index]]) -> Index:
        """Return how far the steps of some loops are from the start of the tile."""
        total: Index = 0
        for k, index in digits:
            total = total + index * self.strides[k]
            if self.gap and k == self.gap_loop:
                total = total + index // self.gap_steps * self.gap
        return total


# before `without_bank_conflicts` has chosen one
_NOWHERE = LocalLayout()


@dataclass(frozen=True)
class Staged(Body):
    """A tile of a nest that goes through local memory.

    `extents` has the steps of each loop of the pattern in a tile, 1 outside of it. Local memory has
    the order of the buffer, or of dst. `packed_rows` rows along the innermost loop of dst are
    transposed in registers. `uniform` are the roles of a conversion whose values vary, but not
    within a vector of src. One that `is_gathered` has the order of src in local memory: vectors of
    dst are made of its elements. One that `is_padded` writes zeros where there is no data. Runs of
    4 bits follow each other in dst along the loops `joined`.
    """

    extents: tuple[int, ...]
    src: Side
    dst: Side
    packed_rows: int = 1
    uniform: tuple[str, ...] = ()
    is_gathered: bool = False
    is_padded: bool = False
    joined: tuple[int, ...] = ()
    shares_steps: bool = False
    local: LocalLayout = _NOWHERE

    def steps(self, loop: int) -> int:
        """Return the steps of a loop in a tile."""
        return PIXEL_LANES if loop == LANES else self.extents[loop]

    @property
    def skewed(self) -> int | None:
        """The loop whose rows end at multiples of `align` bytes in dst."""
        return self.dst.run[0] if self.dst.align else None

    def before(self, loop: int) -> int:
        """Return the steps of the skewed loop that are loaded before those of the tile."""
        return self.dst.elements(self.dst.align) if loop == self.skewed else 0

    def loaded(self, loop: int) -> int:
        """Return the steps of a loop that are in local memory."""
        return self.steps(loop) + self.before(loop)

    @property
    def element(self) -> int:
        """Units of an element in local memory."""
        return self.dst.unit

    @property
    def units_per_word(self) -> int:
        """Units of local memory in a word."""
        return 2 * WORD if self.dst.bits < BYTE_BITS else WORD

    @property
    def lead(self) -> int:
        """Bytes of local memory before the tile, with which an aligned vector of dst may begin."""
        return (self.dst.align or VECTOR) if self.dst.is_shifted else 0

    @property
    def local_nbytes(self) -> int:
        """Bytes of local memory, whole vectors; shifted vectors are read beyond the end."""
        nbytes = self.local.nbytes * WORD // self.units_per_word
        # rows of skewed tiles have their own `lead`
        nbytes += self.lead - self.dst.align + (2 * VECTOR if self.dst.is_shifted else 0)
        return -(-nbytes // VECTOR) * VECTOR

    def chunks(self, side: Side) -> int:
        """Return the vectors of a run; one more where it starts at any element of dst."""
        is_parted = side is self.dst and side.is_shifted and self.skewed is None
        length = prod(map(self.steps, side.run))
        if side.rows is not None:
            length *= self.steps(side.rows)
        return -(-length // side.lanes) + is_parted

    def rest(self, side: Side) -> list[Digit]:
        """Return the loops around the runs of a side."""
        scales = {self.dst.run[0]: self.packed_rows}
        rest = ((k, scales.get(k, 1)) for k in side.rest)
        return [*side.order, *((k, self.loaded(k) // scale, scale) for k, scale in rest)]

    def accesses(self, side: Side) -> int:
        """Return how many vectors or pixels are moved; rows transposed together count as one."""
        return self.chunks(side) * prod(steps for _, steps, _ in self.rest(side))

    def along(self, side: Side, first: Index, lane: int = 0) -> Index:
        """Return how far an element of a vector is from the start of its run in local memory."""
        if side is self.ordered_side:
            count, gap = self.local.gap_elements, self.local.gap
            return (first + lane) * self.element + (first // count * gap if count else 0)
        *lower, top = side.run
        loops = [*((k, self.steps(k), 1) for k in lower), (top, 0, 1)]
        if not self.is_regular(side):
            return self.local.offset(_digits(first + lane, loops))
        return self.local.offset(_digits(first, loops)) + self.local.offset(_digits(lane, loops))

    def is_regular(self, side: Side) -> bool:
        """Whether the elements of all vectors of a side are at the same distances in a tile."""
        lengths = accumulate(map(self.steps, side.run), mul)
        return all(length % side.lanes == 0 or side.lanes % length == 0 for length in lengths)

    def first_words(self, side: Side, work_items: int) -> Iterator[int]:
        """Return the word of local memory that each of the first work items accesses first."""
        for item in range(min(work_items, _SUBGROUP)):
            number, k = divmod(item, self.chunks(side))
            start = self.local.offset(_digits(number, self.rest(side)))
            place = start + self.along(side, k * side.lanes)
            assert isinstance(place, int)  # noqa: S101 - for the type checker
            yield place // self.units_per_word

    @property
    def ordered_side(self) -> Side:
        """The side whose order local memory has."""
        return self.src if self.dst.is_image or self.is_gathered else self.dst

    def param_names(self) -> list[str]:
        """Return the end of src if aligned loads include bytes around the wanted ones, sizes."""
        rows = [] if self.dst.rows is None else ["row", "inverse"]
        end = ["src_end"] if rows or not self.src.is_whole else []
        joined = ["joined"] if self.joined else []
        sizes = (f"size{k}" for k, _ in enumerate(self.src.spans or self.dst.spans))
        return [*end, *rows, *joined, *sizes]

    def functions(self, pattern: Pattern) -> Iterator[str]:
        """Return the loads and stores of vectors."""
        src, dst = self.src, self.dst
        if max(src.bits, dst.bits) * self.packed_rows == WORD_BITS and src.bits < BYTE_BITS:
            yield from _TRANSPOSED
        if src.is_shifted or dst.is_shifted or not (src.is_whole and dst.is_whole):
            yield from SHIFTS
        if not src.is_whole:
            yield from _load_function(src)
        if not dst.is_whole:
            yield from _store_function(dst)
        yield from super().functions(pattern)

    def lines(self, pattern: Pattern) -> Iterator[str]:
        """Return the body: all loads, the stores to local memory, then those to dst."""
        yield f"__local uint4 vectors[{self.local_nbytes // VECTOR}];"
        yield "__local uint *tile = (__local uint *)vectors;"
        yield from index_lines(pattern)
        for name in ("src", "dst"):
            yield from start_lines(pattern, name, getattr(pattern, name))
        # src has data there; a tile starts inside of dst
        alone = [f"i{k} < p.valid{k}" for k, extent in enumerate(self.extents) if extent == 1]
        if alone:
            yield f"const int is_data = {' && '.join(alone)};"
        for name, side in (("src", self.src), ("dst", self.dst)):
            yield f"const int {name}_run = {self._run_length(side)};"
        chunks, k = self.chunks(self.dst), self.skewed
        if k is not None:
            # which rows of src hold data, and where rows of dst start
            before, most = self.before(k), f"(index_t){self.loaded(k)}"
            yield f"const int top = {before} - (int)min(i{k}, (index_t){before});"
            yield f"const int bottom = (int)min(p.valid{k} - i{k} + {before}, {most});"
            yield f"const int start = -(int)min(i{k}, (index_t){self.steps(k)});"
        yield from self._loads(pattern, ["is_data"] if alone else [])
        yield "barrier(CLK_LOCAL_MEM_FENCE);"
        if self.dst.rows is not None:
            yield from self._heads(pattern, self.dst.rows)
        yield from self._stores(pattern, 0, chunks)
        if k is not None:
            # the last tile of a row has its end, too
            yield f"if (dst_run <= {self.steps(k)}) {{"
            yield from self._stores(pattern, chunks, self.dst.align // VECTOR)
            yield "}"

    def _run_length(self, side: Side) -> str:
        """Return the elements of a run that hold data, or that are inside."""
        *lower, top = side.run if side.rows is None else (side.rows,)
        if top == LANES:
            return str(PIXEL_LANES * prod(map(self.steps, lower)))
        limit = "valid" if side is self.src else "extent"
        # rows of skewed tiles may end in the next one
        most = self.steps(top) * (1 if side is self.src or top != self.skewed else 2)
        steps = f"(int)min((index_t){most}, p.{limit}{top} - i{top})"
        return f"{steps} * {prod(map(self.steps, lower)) if side.rows is None else '(int)p.row'}"

    def _within(self, side: Side, loop: int, step: str) -> list[str]:
        """Return the conditions that a step of a loop holds data, or is inside."""
        if side is self.dst:
            return [f"i{loop} + {step} < p.extent{loop}"]
        if loop == self.skewed:
            return [f"{step} >= top && {step} < bottom"]
        return [f"i{loop} + {step} < p.valid{loop}"]

    def _from_tile(self, loop: int, step: str) -> str:
        """Return a step of a loop that is in local memory, counted from the start of the tile."""
        return f"({step} - {self.before(loop)})" if loop == self.skewed else step

    def _places(
        self, pattern: Pattern, side: Side, s: int, chunks: int, inside: list[str]
    ) -> Generator[str, None, tuple[list[str], str]]:
        """Yield the lines that compute where vector n{s} of a side is.

        Returns the conditions that it may hold data, and how much of its run does.
        """
        name = "src" if side is self.src else "dst"
        digits: dict[int, Index] = {}
        for k, digit in _digits(Text(f"n{s}") // chunks, self.rest(side)):
            digits[k] = digits.get(k, 0) + digit
        named = [(k, _digit(k, s)) for k in digits]
        for k, digit in digits.items():
            yield f"const int {_digit(k, s)} = {digit};"
            # rows that are transposed together are tested one by one
            if k != LANES and (self.packed_rows == 1 or k != self.dst.run[0]):
                inside = [*inside, *self._within(side, k, _digit(k, s))]
        local = self.local.offset((k, Text(of)) for k, of in named)
        named = [(k, self._from_tile(k, of)) for k, of in named]
        for c in "xy" if side.is_image else ():
            terms = (f"{of} * {_stride(f'{name}_{c}', k)}" for k, of in named)
            yield f"const int {c}{s} = (int)({' + '.join([f'{name}_{c}', *terms])});"
        if side.is_image:
            yield f"__local uchar *pixel{s} = (__local uchar *)tile + ({local + self.lead});"
            return inside, ""
        offset = (f"{of} * {_stride(name, k)}" for k, of in named)
        yield f"const index_t at{s} = {' + '.join([f'{name}_offset', *offset])};"
        yield f"const int local{s} = {local};"
        run = f"{name}_run"
        for b, span in enumerate(side.spans):
            index = f"index{b}_"
            more = (f"{of} * {_stride(index, k)}" for k, of in named)
            yield f"const index_t {index}{s} = {offset_at(index, indices_of(pattern), *more)};"
            if span:
                run = f"(int)min((index_t){run}, (p.size{b} - {index}{s}) * {span})"
            else:
                inside = [*inside, f"{index}{s} < p.size{b}"]
        return inside, run

    def _loads(self, pattern: Pattern, conditions: list[str]) -> Iterator[str]:
        """Return the loads of src, under conditions, and their stores to the tile."""
        side, conversion = self.src, pattern.conversion
        total, chunks = self.accesses(side), self.chunks(side)
        held = min(_MAX_HELD * WORD // side.nbytes, _MAX_UNROLLED) // self.packed_rows
        most = _MAX_UNROLLED if side.is_image else max(held, 1)
        head, starts = _steps(total, pattern.work_items, most)
        if conversion is not None:
            yield from shared_lines(conversion, conversion.scalars, 0)
        yield f"{head} {{"
        for s, start in enumerate(starts):
            yield f"const uint n{s} = {start};"
            is_full = total % (pattern.work_items * len(starts)) == 0
            guards = [] if is_full else [f"n{s} < {total}u"]
            found, run = yield from self._places(pattern, side, s, chunks, guards)
            inside = " && ".join([*found, *conditions]) or "1"
            if side.is_image:
                ctype, read = pattern.src.pixel_type, pattern.src.read("src", f"x{s}", f"y{s}")
                yield f"{ctype} v{s} = ({ctype})(0);"
                yield f"if ({inside}) v{s} = {read};"
                continue
            yield f"const int r{s} = (int)(n{s} % {chunks}u) * {side.lanes};"
            yield f"const int count{s} = {inside} ? {run} - r{s} : 0;"
            yield from self._load_rows(side, s)
            # all loads come first unless shifted vectors would fill the registers
            if side.is_shifted:
                yield from self._to_local(pattern, s, is_full=is_full)
        for s in range(0 if side.is_shifted else len(starts)):
            yield from self._to_local(pattern, s, is_full=is_full)
        yield "}"

    def _load_rows(self, side: Side, s: int) -> Iterator[str]:
        """Return the loads of vector n{s} in each of the rows that are transposed in registers."""
        vector = vector_type(side.nbytes)
        by_name = {f"v{s}_{row}": self._row(s, row) for row in range(self.packed_rows)}
        if side.is_shifted:
            yield from self._load_shifted_rows(side, s, by_name)
            return
        for name, (first, count) in by_name.items():
            at = address_of("src", first, side.bits)
            if side.is_whole:
                yield f"{vector} {name} = ({vector})(0);"
                yield f"if (({count}) > 0) {name} = {side.loaded(at)};"
            else:
                near = f"{first} + {side.lanes} <= p.src_end"
                yield f"const {vector} {name} = load({at}, {count}, {near});"

    def _row(self, s: int, row: int) -> tuple[str, str]:
        """Return the offset of vector n{s} in one of some rows, and its elements that hold data."""
        first, count = f"at{s} + r{s}", f"count{s}"
        if self.packed_rows > 1:
            first += f" + {row} * p.src{self.dst.run[0]}" if row else ""
            count = f"{self._row_inside(s, row)} ? {count} : 0"
        is_joined = self.dst.rows is not None and self.packed_rows == 1
        if is_joined or (self.dst.spans and not self.src.spans):
            # padding is loaded, too, but there may be none at the end
            count = f"(int)min((index_t)({count}), p.src_end - ({first}))"
        return first, count

    def _row_inside(self, s: int, row: int) -> str:
        """Return the condition that one of the rows that are transposed together holds data."""
        k = self.dst.run[0]
        sized = (b for b, span in enumerate(self.src.spans) if not span)
        below = (f"index{b}_{s} + {row} * p.index{b}_{k} < p.size{b}" for b in sized)
        return " && ".join([*self._within(self.src, k, f"{_digit(k, s)} + {row}"), *below])

    def _load_shifted_rows(
        self, side: Side, s: int, rows: Mapping[str, tuple[str, str]]
    ) -> Iterator[str]:
        """Return the loads of vectors that start anywhere, by name, in rows (offset, elements)."""
        far = f"{self.packed_rows - 1} * p.src{self.dst.run[0]}"
        last = f"at{s} + r{s}" + (f" + max((index_t)0, {far})" if len(rows) > 1 else "")
        yield f"const int near{s} = {last} + {side.elements(PAIRS_NBYTES)} <= p.src_end;"
        # all loads come first: a shift waits for its pairs of words
        for name, (first, inside) in rows.items():
            yield f"uint2 {name}a = 0, {name}b = 0, {name}c = 0;"
            yield f"if (near{s} && ({inside}) > 0) {{"
            at = address_of("src", first, side.bits)
            yield f"    __global const uint2 *pair = aligned({at});"
            yield f"    {name}a = pair[0], {name}b = pair[1], {name}c = pair[2];"
            yield "}"
        for name, (first, _) in rows.items():
            at = f"((uint)(uintptr_t)({address_of('src', first, side.bits)}) & 7) * {BYTE_BITS}"
            at += "" if side.bits >= BYTE_BITS else f" + (({first}) & 1) * {side.bits}"
            yield f"uint4 {name} = shifted({name}a, {name}b, {name}c, {at});"
        if self.is_padded:
            yield f"if (count{s} < {side.lanes}) {{"
            for name in rows:
                yield f"    {name} = first_bits({name}, count{s} * {side.bits});"
            yield "}"
        yield f"if (!near{s}) {{"
        for name, (first, inside) in rows.items():
            odd = "0" if side.bits >= BYTE_BITS else f"({first}) & 1"
            yield f"    {name} = load({address_of('src', first, side.bits)}, {inside}, {odd});"
        yield "}"

    def _to_local(self, pattern: Pattern, s: int, *, is_full: bool) -> Iterator[str]:
        """Return the stores of pixel or vector n{s} to local memory."""
        side, conversion = self.src, pattern.conversion
        yield "{" if is_full else f"if (n{s} < {self.accesses(side)}u) {{"
        if side.is_image and conversion is not None:
            lanes = (f"v{s}.s{lane}" for lane in range(side.lanes))
            if not conversion.moves_halves:
                lanes = (conversion.converted(pattern.src.code_of_lane(of)) for of in lanes)
            yield from self._scatter(s, list(lanes), is_half=conversion.moves_halves)
        elif conversion is not None and not (self.dst.is_image or conversion.is_move):
            yield from self._convert(pattern, conversion, s)
        elif self.ordered_side is side:
            parts = self._parts(side, s)
            for k, place in enumerate(parts):
                yield f"{place} = {word_of(f'v{s}_0', k, len(parts))};"
        else:
            yield from self._scatter(s, (yield from self._transposed(side, s)))
        yield "}"

    def _parts(self, side: Side, s: int) -> list[str]:
        """Return the vector of a side in local memory that has its order, or its words."""
        at = self.along(side, Text(f"r{s}"))
        if self._takes_vectors(side):
            return [self._tile(vector_type(side.nbytes), s, at)]
        word = ">> 2" if side is self.src else f"/ {self.units_per_word}"
        return [f"tile[((local{s} + {at}) {word}) + {k}]" for k in range(side.nbytes // WORD)]

    def _takes_vectors(self, side: Side) -> bool:
        """Whether vectors of a side are aligned in local memory that has its order."""
        strides = [self.local.strides[k] for k in side.rest]
        is_aligned = not any(of % side.nbytes for of in (*strides, self.local.gap, self.lead))
        return is_aligned and side.bits >= BYTE_BITS

    def _tile(self, ctype: str, s: int, along: Index) -> str:
        """Return what local memory has for vector n{s}, some bytes along its run."""
        return f"*(__local {ctype} *)((__local uchar *)tile + (local{s} + {along}))"

    def _transposed(self, side: Side, s: int) -> Generator[str, None, list[str]]:
        """Return the value of each lane: of all rows, if rows are transposed in registers."""
        names = [f"v{s}_{row}" for row in range(self.packed_rows)]
        if len(names) * side.bits == WORD_BITS and side.bits < BYTE_BITS:
            words = side.nbytes // WORD
            for k in range(words):
                rows = ", ".join(word_of(name, k, words) for name in names)
                yield f"const uint8 y{k} = transposed((uint8)({rows}));"
            return [f"y{k}.s{j}" for k in range(words) for j in range(len(names))]
        of = (
            [element_of(name, j, side.bits, side.nbytes) for name in names]
            for j in range(side.lanes)
        )
        return [words_of(codes, side.bits)[0] if len(codes) > 1 else codes[0] for codes in of]

    def _scatter(self, s: int, values: list[str], *, is_half: bool = False) -> Iterator[str]:
        """Return the stores of values, one of each lane of a vector of src, to the tile."""
        side, units = self.src, self.packed_rows * self.element
        lead = (self.lead - self.dst.align) * self.units_per_word // WORD
        length = prod(map(self.steps, side.run))
        ctype = integer_type(units * WORD // self.units_per_word)
        for j, value in enumerate(values):
            guard = f"if (r{s} + {j} < {length}) " if length % side.lanes else ""
            lane = self.local.strides[LANES] * j
            at = Text(f"local{s}") + self.along(side, Text(f"r{s}"), j) + lead
            put = f"((__local {ctype} *)tile)[({at}) >> {floor_log2(units)}] = ({ctype})({value});"
            if is_half:
                put = f"vstore_half_rte({value}, 0, (__local half *)(pixel{s} + {lane}));"
            elif side.is_image:
                put = f"*(__local {ctype} *)(pixel{s} + {lane}) = ({ctype})({value});"
            elif ctype == integer_type(2 * WORD):
                # at any word
                words = enumerate((f"(uint){value}", f"{value} >> {WORD_BITS}"))
                put = " ".join(f"tile[(({at}) >> 2) + {k}] = {word};" for k, word in words)
            yield f"{guard}{{ {put} }}"

    def _convert(self, pattern: Pattern, conversion: KernelFormula, s: int) -> Iterator[str]:
        """Return the conversion of a vector of each row; in padding, elements stay zero."""
        side, names = self.src, [f"y{j}" for j in range(self.src.lanes)]
        # the rest becomes zero, or has no scale
        is_guarded = self.is_padded or bool(conversion.varying)
        yield f"{conversion.dst_type} {', '.join(f'{name} = 0' for name in names)};"
        shared = {role: f"{role}_all" for role in (*conversion.scalars, *self.uniform)}
        first = side.run[0]
        index = {k: f"i{k}" for k in range(len(pattern.loops))}
        of = {k: self._from_tile(k, _digit(k, s)) for k, _, _ in self.rest(side)}
        index |= {k: f"(i{k} + {step})" for k, step in of.items()}
        index[first] = f"(i{first} + r{s})"
        for row in range(self.packed_rows):
            is_inside = [f"count{s} > 0"]
            if self.packed_rows > 1 and is_guarded:
                is_inside.append(self._row_inside(s, row))
            yield f"if ({' && '.join(is_inside)}) {{"
            for role in conversion.varying:
                more = [f"{row} * p.{role}{self.dst.run[0]}"] if row else []
                yield f"const index_t {role}_{s} = {offset_at(role, index.items(), *more)};"
            yield from shared_lines(conversion, self.uniform, s)
            for j, name in enumerate(names):
                at = f"{{0}}_{s} + {j} * p.{{0}}{first}"
                code = element_of(f"v{s}_{row}", j, side.bits, side.nbytes)
                done = conversion.converted(f"({conversion.src_type})({code})", at.format, shared)
                width = self.element * WORD_BITS // self.units_per_word
                place = f" << {row * width}" if row else ""
                is_partial = j and is_guarded and not side.is_whole
                guard = f"if (count{s} > {j}) " if is_partial else ""
                yield f"{guard}{name} {'|=' if row else '='} {done}{place};"
            yield "}"
        ctype = integer_type(WORD if self.packed_rows > 1 else self.element)
        yield from self._scatter(s, [f"({ctype}){name}" for name in names])

    def _stores(self, pattern: Pattern, first: int, chunks: int) -> Iterator[str]:
        """Return the stores of pixels, or of `chunks` vectors of each run, starting at a vector."""
        side = self.dst
        total = chunks * prod(steps for _, steps, _ in self.rest(side))
        head, starts = _steps(total, pattern.work_items)
        for start in starts:
            yield f"{head} {{"
            yield f"const uint n0 = {start};"
            guards = [] if total % pattern.work_items == 0 else [f"n0 < {total}u"]
            found, run = yield from self._places(pattern, side, 0, chunks, guards)
            inside = " && ".join(found + ["low < high"] * side.is_shifted) or "1"
            place = f"((int)(n0 % {chunks}u) + {first}) * {side.lanes}"
            if side.is_image:
                yield f"if ({inside}) {{"
                yield self._get_pixel(pattern)
            elif side.is_shifted:
                yield from self._store_shifted(side, place, run, inside)
            else:
                vector, unit = vector_type(side.nbytes), integer_type(side.unit)
                yield f"const int r0 = {place};"
                yield f"const int count = {inside} ? {run} - r0 : 0;"
                read = f"const {vector} v = ({vector})({', '.join(self._vector(side))});"
                # an H200 is faster if parts of vectors are read before the test, whole ones after
                yield from [read] * (not side.is_whole)
                yield "if (count > 0) {"
                yield f"__global {unit} *to = {side.in_dst('at0 + r0')};"
                yield from [read] * side.is_whole
                if side.is_whole:
                    yield f"*(__global {vector} *)to = v;"
                else:
                    more = ", 0, 0" if side.bits < BYTE_BITS else ""
                    yield f"store(to, v, 0, min(count, {side.lanes}){more});"
            yield "} }"

    def _store_shifted(self, side: Side, place: str, run: str, inside: str) -> Iterator[str]:
        """Return the store of an aligned vector of a run that starts anywhere."""
        yield f"const uint misplaced = (uint)(uintptr_t)({side.in_dst('at0')});"
        before = f"(int)(misplaced & {self.lead - 1}u) / {side.unit}"
        if side.bits < BYTE_BITS:
            before = f"({before} * 2 + (int)(at0 & 1))"
        yield f"const int r0 = {place} - {before};"
        start = "-r0" if self.skewed is None else "start - r0"
        yield f"const int low = max({start}, 0), high = min({run} - r0, {side.lanes});"
        yield f"if ({inside}) {{"
        local, column = Text("local0"), "r0"
        if side.rows is not None:
            yield "const int row = (int)mul_hi((uint)max(r0, 0), (uint)p.inverse);"
            yield "const int column = r0 - row * (int)p.row;"
            local, column = local + self.local.offset([(side.rows, Text("row"))]), "column"
        local = local + Text(f"{column} * {self.element}")
        at = f"({local}) * {WORD_BITS // self.units_per_word} + {self.lead * BYTE_BITS}"
        place = ""
        if self.joined:
            digits = (k for k, _, _ in self.rest(side) if k in self.joined)
            terms = [f"{_digit(k, 0)} * p.dst{k}" for k in digits]
            place = ", " + " + ".join([*(f"i{k} * p.dst{k}" for k in self.joined), *terms, "r0"])
            place += ", p.joined"
        yield f"store({side.in_dst('at0 + r0')}, words(tile, {at}), low, high{place});"

    def _vector(self, side: Side) -> list[str]:
        """Return the parts of a vector of dst, read from local memory."""
        if not self.is_gathered:
            return self._parts(side, 0)
        # elements are in the order of src
        ctype = integer_type(side.unit)
        places = (self.along(side, Text("r0"), k) for k in range(side.lanes))
        return words_of([f"(uint){self._tile(ctype, 0, at)}" for at in places], side.bits)

    def _heads(self, pattern: Pattern, top: int) -> Iterator[str]:
        """Return the copies of the start of each row of local memory to the end of the last one."""
        per_word, lead, count = self.units_per_word, self.lead // WORD, VECTOR // WORD + 1
        row, following = (self.local.offset([(top, Text(at))]) for at in ("row", "row + 1"))
        yield f"const int row_bits = (int)p.row * {self.dst.bits}, row_shift = 32 - row_bits % 32;"
        total = (self.steps(top) - 1) * count
        yield f"for (int n = get_local_id(0); n < {total}; n += {pattern.work_items}) {{"
        yield f"    const int row = n / {count}, k = n % {count};"
        yield f"    const int to = ({row}) / {per_word} + {lead} + row_bits / 32 + k;"
        yield f"    const int from = ({following}) / {per_word} + {lead} + k;"
        yield "    const uint low = k ? tile[from - 1] : tile[to] << row_shift % 32;"
        yield "    tile[to] = funnel(low, tile[from], row_shift);"
        yield "}"
        yield "barrier(CLK_LOCAL_MEM_FENCE);"

    def _get_pixel(self, pattern: Pattern) -> str:
        """Return the statement that writes pixel n0, from local memory."""
        conversion, side = pattern.conversion, self.dst
        assert conversion is not None  # noqa: S101 - for the type checker: an image has one
        places = [f"pixel0 + {self.local.strides[LANES] * lane}" for lane in range(side.lanes)]
        if conversion.moves_halves:
            lanes = (f"vload_half(0, (__local const half *)({at}))" for at in places)
            pixel = f"({pattern.dst.pixel_type})({', '.join(lanes)})"
        else:
            lanes = (f"(uint)*(__local const {pattern.src.element} *)({at})" for at in places)
            codes = list(map(conversion.converted, lanes))
            pixel = pattern.dst.pixel_of_codes(codes, conversion.dst)
        return pattern.dst.write("dst", "x0", "y0", pixel)


def _digit(loop: int, s: int) -> str:
    """Return the name of a digit of vector or pixel n{s}: its step along a loop."""
    return f"lane_{s}" if loop == LANES else f"x{loop}_{s}"


def _stride(operand: str, loop: int) -> str:
    """Return the parameter of the stride of a loop, or of the lanes of a pixel."""
    return f"p.{operand}_lane1" if loop == LANES else f"p.{operand}{loop}"


def _digits(number: Index, loops: Iterable[Digit]) -> Iterator[tuple[int, Index]]:
    """Return (loop, index) of the digits of a number, which are steps of some loops.

    A loop of 0 steps takes all that is left.
    """
    for k, steps, scale in loops:
        yield k, (number % steps if steps else number) * scale
        number = number // max(steps, 1)


def _steps(total: int, work_items: int, most: int = 0) -> tuple[str, list[str]]:
    """Return the head of a loop over steps ("" for few), and the steps that it takes at once."""
    count = -(-total // work_items)
    if count <= (most or _MAX_UNROLLED):
        return "", [f"get_local_id(0) + {s * work_items}u" for s in range(count)]
    at_once = -(-count // -(-count // max(most, 1)))
    head = f"for (uint step = 0; step < {count * work_items}u; step += {at_once * work_items}u)"
    return head, [f"get_local_id(0) + step + {s * work_items}u" for s in range(at_once)]


# a word of each of 8 rows of 4-bit elements, transposed: halves change places, then bytes in them
_TRANSPOSED = (
    "uint8 transposed(uint8 v) {",
    "    const uint4 a = (v.s0123 & 0xffffu) | v.s4567 << 16;",
    "    const uint4 b = v.s0123 >> 16 | (v.s4567 & 0xffff0000u);",
    "    const uint4 p = (uint4)(a.s01, b.s01), q = (uint4)(a.s23, b.s23);",
    "    const uint4 c = (p & 0x00ff00ffu) | (q & 0x00ff00ffu) << 8;",
    "    const uint4 d = (p >> 8 & 0x00ff00ffu) | (q & 0xff00ff00u);",
    "    const uint4 e = (uint4)(c.s0, d.s0, c.s2, d.s2), o = (uint4)(c.s1, d.s1, c.s3, d.s3);",
    "    const uint4 x = (e & 0x0f0f0f0fu) | (o & 0x0f0f0f0fu) << 4;",
    "    const uint4 y = (e >> 4 & 0x0f0f0f0fu) | (o & 0xf0f0f0f0u);",
    "    return (uint8)(x.s0, y.s0, x.s1, y.s1, x.s2, y.s2, x.s3, y.s3);",
    "}",
)


def _load_function(side: Side) -> Iterator[str]:
    """Return a function that loads some elements of a vector, all at once where src goes on."""
    vector, unit, words = vector_type(side.nbytes), integer_type(side.unit), side.nbytes // WORD
    how = "odd" if side.is_shifted else "near"
    yield f"{vector} load(__global const {unit} *from, int count, int {how}) {{"
    if not side.is_shifted:
        yield f"    if (count >= {side.lanes}) return {side.loaded('from')};"
        masks = (f"bits(count * {side.bits} - {WORD_BITS * k})" for k in range(words))
        whole = f"{side.loaded('from')} & ({vector})({', '.join(masks)})"
        yield f"    if (near && count > 0) return {whole};"
    yield f"    {vector} v = ({vector})(0);"
    bits, is_odd = min(side.bits, WORD_BITS), side.is_shifted and side.bits < BYTE_BITS
    units = "((__global const uint *)from)" if bits == WORD_BITS else "from"
    element = one_element(units, "j + odd" if is_odd else "j", bits)
    parts = (f"word == {k} ? value : 0" for k in range(words))
    yield f"    for (int j = 0; j < min(count, {side.lanes}) * {side.bits // bits}; ++j) {{"
    yield f"        const uint at = j * {bits}, word = at >> 5;"
    yield f"        const uint value = (uint){element} << (at & 31);"
    yield f"        v |= ({vector})({', '.join(parts)});"
    yield "    }"
    yield "    return v;"
    yield "}"


def _store_function(side: Side) -> Iterator[str]:
    """Return a function that stores the elements `low` to `high` of a vector."""
    vector, unit, words = vector_type(side.nbytes), integer_type(side.unit), side.nbytes // WORD
    count, more = max(side.elements(WORD), 1), ""
    if side.bits < BYTE_BITS:
        yield from _STORED_PART
        more = ", index_t place, index_t joined"
    yield f"void store(__global {unit} *to, {vector} v, int low, int high{more}) {{"
    yield f"    if (low == 0 && high == {side.lanes}) {{ *(__global {vector} *)to = v; return; }}"
    for k in range(words):
        word, at = word_of("v", k, words), side.elements(WORD * k)
        inside = f"low <= {at} && high >= {at + count}"
        yield f"    if ({inside}) ((__global uint *)to)[{k}] = {word};"
        if side.bits < BYTE_BITS:
            mask = f"bits((high - {at}) * {side.bits}) & ~bits((low - {at}) * {side.bits})"
            inside = f"place + {at} >= 0 && place + {at + count} <= joined"
            yield f"    else if (low < {at + count} && high > {at})"
            yield f"        store_part(to + {WORD * k}, {word}, {mask}, {inside});"
        elif count > 1:
            yield "    else {"
            for j in range(count):
                value = f"({unit})({word} >> {side.bits * j})"
                yield f"        if (low <= {at + j} && high > {at + j}) to[{at + j}] = {value};"
            yield "    }"
    yield "}"


# Stores the bits of a mask, and touches no other byte. Another work item of the same runs may write
# the rest of a byte, so a word that is all theirs is stored atomically.
_STORED_PART = (
    "void store_part(__global uchar *to, uint word, uint mask, int is_inside) {",
    "    if (is_inside) {",
    "        atomic_and((volatile __global uint *)to, ~mask);",
    "        atomic_or((volatile __global uint *)to, word & mask);",
    "    } else for (int j = 0; j < 4; ++j, word >>= 8, mask >>= 8) {",
    "        if (mask & 255) to[j] = (uchar)((to[j] & ~mask) | (word & mask));",
    "    }",
    "}",
)


def runs_of(
    nest: Nest,
    operand: int,
    run: tuple[int, ...],
    extents: Sequence[int],
    bits: int,
    most: int = VECTOR * BYTE_BITS,
) -> Side:
    """Return how a tile is accessed: in the widest vectors aligned in all runs, or shifted."""
    loops = nest.loops
    strides = [loop.stride(operand) for loop in loops]
    # a run of the tile starts where a whole run does, or where the last tile ended
    starts = [nest.alignment(operand, [loops[k] for k in run])]
    if extents[run[-1]] < loops[run[-1]].extent:
        starts.append(strides[run[-1]] * extents[run[-1]])
    width = gcd(VECTOR * BYTE_BITS, *(start * bits for start in starts))
    is_shifted = width < WORD * BYTE_BITS
    width = VECTOR * BYTE_BITS if is_shifted else min(width, max(most, WORD * BYTE_BITS))
    order = sorted((abs(stride), k) for k, stride in enumerate(strides))
    rest = tuple(k for _, k in order if extents[k] > 1 and k not in run)
    lanes = width // bits
    *lower, top = (loops[k] for k in run)
    below = prod(loop.extent for loop in lower)
    counts = [below * (top.extent if operand else top.valid), prod(extents[k] for k in run)]
    spans = tuple(span_of([loops[k] for k in run], k) for k in nest.bounds(operand))
    is_whole = not (is_shifted or nest.sizes or any(count % lanes for count in counts))
    return Side(run, rest, bits, lanes, is_whole, is_shifted, spans=spans)


@lru_cache(maxsize=256)
def without_bank_conflicts(
    body: Staged, work_items: int, paddings: tuple[tuple[int, int], ...]
) -> Staged:
    """Return a body whose work items share few banks, with `paddings` after runs and vectors."""

    def steps(body: Staged) -> list[int]:
        """Return the steps in which the banks serve the first stores, and the first loads."""
        return [bank_steps(body.first_words(side, work_items)) for side in (body.src, body.dst)]

    layouts = dict.fromkeys(laid_out(body, *padding) for padding in paddings)
    best = min((replace(body, local=local) for local in layouts), key=lambda body: sum(steps(body)))
    if body.is_gathered and steps(best)[1] > _MAX_GATHERED:
        return without_bank_conflicts(replace(body, is_gathered=False), work_items, paddings)
    return best


def laid_out(body: Staged, padding: int, gap: int) -> LocalLayout:
    """Return local memory in the order of a side, given the bytes after runs and after vectors."""
    side, word = body.ordered_side, body.units_per_word
    padding, gap = padding * word // WORD, gap * word // WORD
    gap_loop, gap_steps = (0, 1) if body.src.is_image else (body.src.run[0], body.src.lanes)
    gap_elements = 0
    if gap_loop in side.run:
        below = side.run[: side.run.index(gap_loop)]
        gap_elements = gap_steps * prod(map(body.steps, below))
        is_apart = side is body.dst and not side.is_shifted
        is_ragged = gap_loop != side.run[-1] and body.steps(gap_loop) % gap_steps
        if not is_apart or gap_elements % side.lanes or is_ragged:
            gap = 0
    strides, stride = [0] * (len(body.extents) + 1), body.element
    for k in side.run:
        strides[k] = stride
        stride *= body.loaded(k)
        if gap and k == gap_loop:
            # gaps are between whole vectors
            vector = side.lanes * body.element
            stride = -(-stride // vector) * vector + -(-body.loaded(k) // gap_steps) * gap
    if side.rows is not None:
        stride += (VECTOR + WORD) * word // WORD
    stride = -(-stride // (4 * word)) * 4 * word + padding
    for k in side.rest if side.rows is None else (side.rows,):
        strides[k] = stride
        stride *= body.loaded(k)
        if k == gap_loop:
            stride += -(-body.loaded(k) // gap_steps) * gap
    gaps = (gap, gap_loop, gap_steps, gap_elements) if gap else ()
    return LocalLayout(tuple(strides), stride, *gaps)
