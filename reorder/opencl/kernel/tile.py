"""A family of kernels that moves tiles through local memory: vectors along src, then along dst.

It suits a nest whose innermost loops differ in src and dst. A tile covers some steps of several
loops. On each side its `run` loops are contiguous: work items load and store vectors along them. A
loop may be in both runs. Local memory holds the tile in the order of dst, or of src. Elements
narrower than 32 bits are transposed in registers, as many rows at a time as a word has elements.

Two elements of 4 bits along src in each of two rows are a byte in each of two rows of dst. Such
squares are elements of 16 bits of a tile; the loops along src and along dst have half the steps, in
bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd, prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.opencl.kernel.access import (
    VECTOR,
    WORD,
    Access,
    AccessKind,
    integer_type,
    vector_type,
)
from reorder.opencl.kernel.launch import (
    Body,
    KernelTask,
    Launch,
    Pattern,
    ceil_log2,
    floor_log2,
    lower_nest,
    tiled,
)
from reorder.opencl.kernel.local_memory import (
    BANKS,
    MAX_LOCAL_NBYTES,
    SUBGROUP,
    LocalLayout,
    best_swizzle,
    chain_of,
    least_conflicts,
    local_layout,
    offset_of,
)
from reorder.opencl.kernel.placement import Loop, Nest
from reorder.opencl.kernel.statements import (
    FIRST_BYTES,
    SHIFTS,
    digits_of,
    index_lines,
    start_lines,
    steps_inside,
    transpose_functions,
    transposed_words,
    word_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from reorder.opencl.kernel.local_memory import Chain

# bytes of the shortest run; shorter ones are faster without local memory
_MIN_RUN = 16
# bytes of the widest element that goes through tiles; an element of 16 bytes is a vector itself
_MAX_TILED = 8
# steps of a work item that are written one after another; more are a loop
_MAX_UNROLLED = 16
# elements along a side of one square, and of two
_SIDE, _MIN_EXTENT = 2, 4


class TileShape(NamedTuple):
    """Bytes of a run of src and of dst, and of a tile; the most work items of a group."""

    src_run: int
    dst_run: int
    nbytes: int
    work_items: int


class TileSizes(NamedTuple):
    """The shape of tiles for elements of so many bytes; squares of 4-bit elements count as one."""

    shapes: Mapping[int, TileShape] = {
        1: TileShape(128, 64, 8192, 128),
        2: TileShape(128, 128, 16384, 256),
        4: TileShape(256, 256, 16384, 256),
        8: TileShape(256, 256, 8192, 128),
    }


class _Element(NamedTuple):
    """What a tile moves: elements of `nbytes` bytes, or squares of 4-bit elements.

    A square has a byte in each of two rows of src, and of dst; `rows` has the bytes between these.
    """

    nbytes: int
    rows: tuple[int, int] | None = None

    @property
    def in_row(self) -> int:
        """Bytes of an element in one row."""
        return self.nbytes if self.rows is None else 1


def try_lower(task: KernelTask) -> tuple[Launch, ...]:
    """Make the launch of a nest that moves between two buffers, by its elements or by squares.

    Empty if the innermost loops are the same, or if the launch is faster without tiles.
    """
    if not task.nest.is_plain:
        return ()
    if task.moves_bytes:
        return _lowered(task, _Element(task.accesses[1].nbytes))
    is_packed = task.conversion is not None and task.conversion.is_move
    return _lowered_squares(task) if is_packed else ()


def _lowered(task: KernelTask, element: _Element) -> tuple[Launch, ...]:
    """Make the launch of tiles."""
    nest, access, profile = task.nest, task.accesses[1], task.device.profile
    if element.nbytes > _MAX_TILED or nest.steps * element.nbytes < profile.min_tiled:
        return ()
    shape = profile.sizes_of(TileSizes).shapes[element.in_row]
    shape = shape._replace(work_items=task.work_items(shape.work_items))
    chosen = _choose_tile(nest, element, shape, is_aligned=task.is_aligned)
    if chosen is None:
        return ()
    loops, tile, work_items = chosen
    if 4 * tile.local_words > MAX_LOCAL_NBYTES:
        return ()
    pattern = Pattern(access, access, tile, work_items)
    return (lower_nest(nest._replace(loops=loops), pattern, tiled(loops, tile.extents)),)


def _lowered_squares(task: KernelTask) -> tuple[Launch, ...]:
    """Make the launch of 4-bit elements that move as squares of 2 x 2."""
    moving = task.nest.moving
    src, dst = along = moving.along_src, moving.along_dst
    if src is None or dst is None or src is dst:
        return ()
    counts = [offset for start in task.nest.starts for offset in start]
    counts += [src.extent, src.valid, src.stride(1), dst.extent, dst.valid, dst.stride(0)]
    strides = [loop.stride(operand) for loop in moving.outer for operand in (0, 1)]
    # a step along src or dst moves on by one byte; no other loop may step by one byte
    if any(count % _SIDE for count in (*counts, *strides)) or _SIDE in strides:
        return ()
    if min(src.extent, dst.extent) < _MIN_EXTENT:
        return ()
    loops = tuple(
        _of_bytes(loop, _SIDE if any(loop is one for one in along) else 1) for loop in moving.loops
    )
    starts = tuple((offset // _SIDE,) for (offset,) in task.nest.starts)
    nest = task.nest._replace(starts=starts, loops=loops)
    access = Access(AccessKind.BUFFER, 8)
    rows = dst.stride(0) // _SIDE, src.stride(1) // _SIDE
    return _lowered(task._replace(nest=nest, accesses=(access, access)), _Element(2, rows))


def _of_bytes(loop: Loop, steps: int) -> Loop:
    """Return a loop over bytes of two elements each, which takes some steps at once."""
    strides = tuple((stride * steps // _SIDE,) for (stride,) in loop.strides)
    return Loop(loop.extent // steps, loop.valid // steps, strides)


def _choose_tile(
    nest: Nest, element: _Element, shape: TileShape, *, is_aligned: bool
) -> tuple[tuple[Loop, ...], Tile, int] | None:
    """Return loops in the order of work-groups, innermost first, a tile of them and its work items.

    None if a run is too short, or the innermost loops of src and dst are the same.
    """
    nbytes = element.nbytes
    loops = tuple(sorted(nest.moving.loops, key=lambda loop: abs(loop.stride(1))))
    src, dst = (
        chain_of(loops, side, limit // element.in_row)
        for side, limit in enumerate((shape.src_run, shape.dst_run))
    )
    if src is None or dst is None or src.run[0] == dst.run[0]:
        return None
    chains = src, dst
    extents = [1] * len(loops)
    lower = {*src.run[:-1], *dst.run[:-1]}
    for chain in chains:
        for k, extent in zip(chain.run, chain.extents, strict=True):
            # a run goes on after exactly the steps of its lower loops
            extents[k] = max(extents[k], loops[k].extent if k in lower else extent)
    if any(prod(extents[k] for k in chain.run) * element.in_row < _MIN_RUN for chain in chains):
        return None
    _grow(extents, loops, chains, shape.nbytes // nbytes)
    packed_rows = WORD // nbytes if nbytes < WORD else 1
    first = dst.run[0]
    if first in src.run or extents[first] % packed_rows:
        packed_rows = 1
    nest = nest._replace(loops=loops)
    sides = [
        _side(nest, operand, chain.run, extents, element, is_aligned=is_aligned)
        for operand, chain in enumerate(chains)
    ]
    src_side, dst_side = sides
    if src_side is None or dst_side is None:
        return None
    is_paired = element.rows is not None
    tile = Tile(tuple(extents), nbytes, packed_rows, src_side, dst_side, is_paired=is_paired)
    # elements of a vector should be at constant distances in local memory
    if packed_rows == 1 and nbytes < WORD and not _is_regular(tile, tile.src):
        is_gathered = _is_regular(tile, tile.dst) and not tile.dst.is_shifted
        tile = replace(tile, is_gathered=is_gathered)
    # a power of two, no more than there are vectors
    vectors = max(tile.src_vectors, tile.dst_vectors)
    work_items = max(min(shape.work_items, 1 << ceil_log2(vectors)), 1)
    return loops, _spread(tile, work_items), work_items


def _side(
    nest: Nest,
    operand: int,
    run: tuple[int, ...],
    extents: list[int],
    element: _Element,
    *,
    is_aligned: bool,
) -> Side | None:
    """Return how a tile is read or written: in the widest vectors that are aligned in all runs.

    None if that is less than a word in each of the two rows of squares.
    """
    strides, width = [loop.stride(operand) for loop in nest.loops], element.in_row
    if is_aligned:
        # a run of the tile starts where a whole run does, where the last tile ended, or in row two
        starts = [nest.alignment(operand, [nest.loops[k] for k in run])]
        starts.append(strides[run[-1]] * extents[run[-1]])
        starts += [] if element.rows is None else [element.rows[operand]]
        width = max(gcd(VECTOR, *(start * width for start in starts)), width)
    if element.rows is not None and width < WORD:
        return None
    is_shifted = width < WORD
    if is_shifted and operand == 0:
        # two aligned vectors have it
        width = VECTOR
    width *= element.nbytes // element.in_row
    order = sorted((abs(stride), k) for k, stride in enumerate(strides))
    rest = tuple(k for _, k in order if extents[k] > 1 and k not in run)
    vector = max(width, WORD)
    return Side(run, rest, vector, vector // element.nbytes, is_shifted)


def _is_regular(tile: Tile, side: Side) -> bool:
    """Whether all vectors of a side have the same strides: each covers whole loops of its run."""
    lanes = side.lanes
    for k in side.run:
        if tile.extents[k] % lanes == 0:
            return True
        if lanes % tile.extents[k]:
            return False
        lanes //= tile.extents[k]
    return False


def _grow(
    extents: list[int], loops: tuple[Loop, ...], chains: tuple[Chain, Chain], most: int
) -> None:
    """Enlarge a tile to at most `most` elements: along the runs, then along other loops."""
    src, dst = chains
    lower = {*src.run[:-1], *dst.run[:-1]}
    candidates = [src.run[-1], dst.run[-1], *range(len(loops))]
    for k in candidates:
        if k in lower:
            continue
        while extents[k] < loops[k].extent and 2 * prod(extents) <= most:
            extents[k] *= 2


@lru_cache(maxsize=256)
def _spread(tile: Tile, work_items: int) -> Tile:
    """Return a tile with the swizzle, or the gap, for which few accesses share a bank."""
    if tile.packed_rows == 1 and tile.nbytes < WORD:
        tiles = [replace(tile, gap=gap) for gap in range(0, BANKS * WORD, WORD)]
        return least_conflicts(tiles, lambda tried: _accesses(tried, work_items))
    return replace(tile, swizzle=best_swizzle(_accesses(tile, work_items)))


def _accesses(tile: Tile, work_items: int) -> tuple[list[int], list[int]]:
    """Return the words that the first work items store first, and those that they load."""
    count = min(work_items, SUBGROUP)
    stored = [
        _word(tile, tile.src, item, tile.src_chunks, tile.packed_rows) for item in range(count)
    ]
    loaded = [_word(tile, tile.dst, item, tile.dst_chunks, 1) for item in range(count)]
    return stored, loaded


def _word(tile: Tile, side: Side, item: int, chunks: int, rows: int) -> int:
    """Return the word in local memory of the first element that a work item moves.

    Each work item moves `rows` rows along the innermost loop of dst.
    """
    strides, first = tile.local.strides, tile.dst.run[0]
    item, chunk = divmod(item, chunks)
    *lower, top = side.run
    offset, at = offset_of(chunk * side.lanes, [(tile.extents[k], strides[k]) for k in lower])
    scales = {first: rows}
    rest = [(tile.extents[k] // scales.get(k, 1), strides[k] * scales.get(k, 1)) for k in side.rest]
    return (offset + at * strides[top] + offset_of(item, rest)[0]) // WORD


class Side(NamedTuple):
    """How a tile is read or written: vectors of `lanes` elements, `nbytes` bytes, along its run.

    The loops of `run`, innermost first, are contiguous; `rest` are the other loops of the tile.
    With `is_shifted` a run starts at any element, not at a multiple of a word: each vector of src
    is then taken from two aligned ones; words of dst are aligned, the first and the last one
    partial.
    """

    run: tuple[int, ...]
    rest: tuple[int, ...]
    nbytes: int
    lanes: int
    is_shifted: bool = False

    @property
    def vector(self) -> str:
        """Type of a vector of words."""
        return vector_type(self.nbytes)


@dataclass(frozen=True)
class Tile(Body):
    """Part of a loop nest that goes through local memory.

    `extents` has the steps of each loop of the pattern in a tile, 1 outside of it. An element has
    `nbytes` bytes. `packed_rows` rows along the innermost loop of dst are transposed in registers.
    Local memory holds the tile in the order of dst, or with `is_gathered` in that of src.
    `swizzle` has the (shift, mask) that move words between banks; `gap` is the bytes between rows
    that do the same. With `is_paired` an element is a square of 2 x 2 of 4 bits: a
    byte in each of two rows of src, and of two rows of dst.
    """

    extents: tuple[int, ...]
    nbytes: int
    packed_rows: int
    src: Side
    dst: Side
    swizzle: tuple[tuple[int, int], ...] = ()
    is_gathered: bool = False
    gap: int = 0
    is_paired: bool = False

    @property
    def memory(self) -> str:
        """Type of an element."""
        return integer_type(self.nbytes)

    @property
    def row_memory(self) -> str:
        """Type of what an element has in a row of src or dst."""
        return integer_type(1) if self.is_paired else self.memory

    @property
    def stored(self) -> Side:
        """The side whose order local memory has."""
        return self.src if self.is_gathered else self.dst

    @property
    def local(self) -> LocalLayout:
        """Where the elements are in local memory."""
        side = self.stored
        run, rest = ([(k, self.extents[k]) for k in loops] for loops in (side.run, side.rest))
        return local_layout(self.nbytes, run, rest, self.gap)

    @property
    def local_words(self) -> int:
        """Words of local memory."""
        # whole rows of banks, which swizzling permutes, and a vector to read beyond the end
        beyond = max(self.dst.nbytes, VECTOR)
        return -(-(self.local.nbytes + beyond) // 128) * 32

    def elements(self, loops: Iterable[int]) -> int:
        """Return the elements of some loops of a tile."""
        return prod(self.extents[k] for k in loops)

    @property
    def src_chunks(self) -> int:
        """Vectors of a run of src."""
        return -(-self.elements(self.src.run) // self.src.lanes)

    @property
    def src_vectors(self) -> int:
        """What work items load: vectors of src, one in each of the rows that they transpose."""
        return self.src_chunks * self.elements(self.src.rest) // self.packed_rows

    @property
    def dst_chunks(self) -> int:
        """Vectors of a run of dst; one more where it starts at any element."""
        return -(-self.elements(self.dst.run) // self.dst.lanes) + self.dst.is_shifted

    @property
    def dst_vectors(self) -> int:
        """What work items store."""
        return self.dst_chunks * self.elements(self.dst.rest)

    def param_names(self) -> list[str]:
        """Return the end of src if aligned loads include bytes around the wanted ones."""
        return ["src_end"] if self.src.is_shifted else []

    def functions(self, pattern: Pattern) -> Iterator[str]:
        """Return the loads and stores of vectors, and of elements in local memory."""
        moves = " ^ ".join(["w", *(f"((w >> {shift}) & {mask})" for shift, mask in self.swizzle)])
        # lets adjacent work items access different banks of local memory
        yield f"int bank(int w) {{ return {moves}; }}"
        if self.packed_rows > 1:
            yield from transpose_functions(self.packed_rows)
        elif self.nbytes < WORD:
            scale = floor_log2(self.nbytes)
            index = (
                f"(bank(at >> 2) << {2 - scale}) + (at >> {scale} & {WORD // self.nbytes - 1})"
                if self.swizzle
                else f"at >> {scale}"
            )
            kind = self.memory
            if self.is_gathered:
                yield f"{kind} get(const __local uint *tile, int at)"
                yield f"{{ return ((const __local {kind} *)tile)[{index}]; }}"
            else:
                yield f"void put(__local uint *tile, int at, {kind} value)"
                yield f"{{ ((__local {kind} *)tile)[{index}] = value; }}"
        if self.is_paired:
            yield from _PAIRED
        if self.src.is_shifted:
            yield from SHIFTS
            yield from FIRST_BYTES
        yield from _load(self)
        if self.dst.is_shifted:
            yield "uint unaligned(const __local uint *tile, int at) {"
            yield "    const int w = at >> 2;"
            yield "    const uint low = tile[bank(max(w, 0))], high = tile[bank(w + 1)];"
            yield "    const uint shift = (at & 3) * 8;"
            yield "    return shift ? low >> shift | high << (32 - shift) : low;"
            yield "}"
        yield from _store(self)
        yield from super().functions(pattern)

    def lines(self, pattern: Pattern) -> Iterator[str]:
        """Return the body: all loads, the stores to local memory, then those to dst."""
        yield f"__local uint tile[{self.local_words}];"
        yield from index_lines(pattern)
        outer = [f"i{k} < p.valid{k}" for k, extent in enumerate(self.extents) if extent == 1]
        if outer:
            yield f"const int is_data = {' && '.join(outer)};"
        for side, counted in (("src", "valid"), ("dst", "extent")):
            yield from start_lines(pattern, side, getattr(pattern, side))
            yield f"const int {side}_run = {_run_length(self, getattr(self, side), counted)};"
        yield from _load_lines(self, pattern.work_items, ["is_data"] if outer else [])
        yield "barrier(CLK_LOCAL_MEM_FENCE);"
        yield from _store_lines(self, pattern.work_items)


def _run_length(tile: Tile, side: Side, counted: str) -> str:
    """Return the elements of a run that hold data, or that are inside."""
    *lower, top = side.run
    return f"{steps_inside(top, tile.extents[top], counted)} * {tile.elements(lower)}"


def _steps(total: int, work_items: int) -> tuple[str, list[str]]:
    """Return the head of a loop over a work item's vectors, and the first vector of each step.

    A few steps are unrolled without a loop, so that all loads are in flight together.
    """
    count = -(-total // work_items)
    if count <= _MAX_UNROLLED:
        return "", [f"get_local_id(0) + {s * work_items}u" for s in range(count)]
    head = f"for (uint step = 0; step < {count * work_items}u; step += {work_items}u)"
    return head, ["get_local_id(0) + step"]


def _load_lines(tile: Tile, work_items: int, conditions: list[str]) -> Iterator[str]:
    """Return the loads of vectors of src under some conditions, and their stores to the tile."""
    total = tile.src_vectors
    head, starts = _steps(total, work_items)
    packed_loop = tile.dst.run[0]
    yield f"{head} {{"
    for s, start in enumerate(starts):
        # work items take whole groups of rows that are transposed in registers
        scales = [tile.packed_rows if k == packed_loop else 1 for k in tile.src.rest]
        extents = [tile.extents[k] // scale for k, scale in zip(tile.src.rest, scales, strict=True)]
        yield f"const uint n{s} = {start};"
        inside = [] if total % work_items == 0 else [f"n{s} < {total}u"]
        inside += conditions
        offset = ["src_offset"]
        digits = digits_of(f"n{s}", extents, tile.src_chunks)
        for k, scale, digit in zip(tile.src.rest, scales, digits, strict=True):
            yield f"const int x{k}_{s} = {digit}{f' * {scale}' if scale > 1 else ''};"
            offset.append(f"x{k}_{s} * p.src{k}")
            if tile.packed_rows == 1 or k != packed_loop:
                inside.append(f"i{k} + x{k}_{s} < p.valid{k}")
        yield f"const index_t row_at{s} = {' + '.join(offset)};"
        yield f"__global const {tile.row_memory} *run{s} = src + row_at{s};"
        position = f"(int)(n{s} % {tile.src_chunks}u) * {tile.src.lanes}"
        yield f"const int r{s} = {position};"
        yield f"const int count{s} = {' && '.join(inside) or '1'} ? src_run - r{s} : 0;"
        # the parameter `other` of `load`: the bytes between two rows, half the stride of a pair
        more = f"p.src{packed_loop} / 2, " if tile.is_paired else ""
        for row in range(tile.packed_rows):
            count, row_start = f"count{s}", f"run{s} + r{s}"
            if tile.packed_rows > 1:
                inside_row = f"i{packed_loop} + x{packed_loop}_{s} + {row} < p.valid{packed_loop}"
                count = f"{inside_row} ? count{s} : 0"
                row_start += f" + {row} * p.src{packed_loop}" if row else ""
            if tile.src.is_shifted:
                # at most a vector before the first element, and one after the last
                lanes, at = tile.src.lanes, row_start.replace("run", "row_at", 1)
                more = f"{at} >= {lanes} && {at} + {2 * lanes} <= p.src_end, "
            yield f"const {tile.src.vector} v{s}_{row} = load({row_start}, {more}{count});"
    for s in range(len(starts)):
        if total % work_items:
            yield f"if (n{s} < {total}u)"
        yield "{"
        base = [f"x{k}_{s} * {tile.local.strides[k]}" for k in tile.src.rest]
        yield f"const int to = {' + '.join(base) or '0'};"
        yield from _stored_words(tile, s) if tile.is_gathered else _scattered(tile, s)
        yield "}"
    yield "}"


def _stored_words(tile: Tile, s: int) -> Iterator[str]:
    """Return the stores of a vector to local memory that has the order of src."""
    words = tile.src.nbytes // WORD
    yield f"const int w = (to + r{s} * {tile.nbytes}) >> 2;"
    for k in range(words):
        yield f"tile[bank(w{f' + {k}' if k else ''})] = {word_of(f'v{s}_0', k, words)};"


def _scattered(tile: Tile, s: int) -> Iterator[str]:
    """Return the stores of vectors to local memory that has the order of dst."""
    words = tile.src.nbytes // WORD
    length = tile.elements(tile.src.run)
    rows = [f"v{s}_{row}" for row in range(tile.packed_rows)]
    columns = list(transposed_words(rows, words)) if tile.packed_rows > 1 else []
    for j in range(tile.src.lanes):
        position = f"r{s} + {j}" if j else f"r{s}"
        address = f"to + {_address(tile, tile.src, position)}"
        if length % tile.src.lanes:
            yield f"if ({position} < {length})"
        yield "{"
        if columns:
            yield f"tile[bank(({address}) >> 2)] = {columns[j]};"
        elif tile.nbytes < WORD:
            at, shift = divmod(j * tile.nbytes, WORD)
            value = f"{word_of(rows[0], at, words)} >> {shift * 8}"
            yield f"put(tile, {address}, ({tile.memory})({value}));"
        else:
            parts = tile.nbytes // WORD
            for k in range(parts):
                part = word_of(rows[0], j * parts + k, words)
                yield f"tile[bank((({address}) >> 2){f' + {k}' if k else ''})] = {part};"
        yield "}"


def _gathered(tile: Tile, word: int) -> str:
    """Return a word of a vector of dst, of elements in local memory that has the order of src."""
    parts = []
    for k in range(WORD // tile.nbytes):
        j = word * (WORD // tile.nbytes) + k
        address = f"from + {_address(tile, tile.dst, f'r + {j}' if j else 'r')}"
        parts.append(f"(uint)get(tile, {address}) << {8 * tile.nbytes * k}")
    return " | ".join(parts)


def _address(tile: Tile, side: Side, position: str) -> str:
    """Return the byte in local memory of a position in the run of a side."""
    terms, step = [], 1
    for at, k in enumerate(side.run):
        digit = f"(uint)({position})"
        if step > 1:
            digit += f" / {step}u"
        if at < len(side.run) - 1:
            digit += f" % {tile.extents[k]}u"
        terms.append(f"(int)({digit}) * {tile.local.strides[k]}")
        step *= tile.extents[k]
    return " + ".join(terms)


def _store_lines(tile: Tile, work_items: int) -> Iterator[str]:
    total = tile.dst_vectors
    strides = tile.local.strides
    words = tile.dst.nbytes // WORD
    head, starts = _steps(total, work_items)
    for first in starts:
        yield f"{head} {{"
        yield f"const uint n = {first};"
        inside = [] if total % work_items == 0 else [f"n < {total}u"]
        offset, local = ["dst_offset"], []
        digits = digits_of("n", (tile.extents[k] for k in tile.dst.rest), tile.dst_chunks)
        for k, digit in zip(tile.dst.rest, digits, strict=True):
            yield f"const int x{k} = {digit};"
            offset.append(f"x{k} * p.dst{k}")
            local.append(f"x{k} * {strides[k]}")
            inside.append(f"i{k} + x{k} < p.extent{k}")
        yield f"__global {tile.row_memory} *to = dst + ({' + '.join(offset)});"
        start = f"(int)(n % {tile.dst_chunks}u) * {tile.dst.lanes}"
        if tile.dst.is_shifted:
            # the first word starts before the run
            start += f" - (int)((uint)(uintptr_t)to / {tile.nbytes}u % {tile.dst.lanes}u)"
        yield f"const int r = {start};"
        yield f"const int count = {' && '.join(inside) or '1'} ? dst_run - r : 0;"
        address = " + ".join([f"r * {tile.nbytes}", *local])
        if tile.dst.is_shifted:
            yield f"store(to + r, unaligned(tile, {address}), -r, count);"
        else:
            if tile.is_gathered:
                yield f"const int from = {' + '.join(local) or '0'};"
                parts = [_gathered(tile, k) for k in range(words)]
            else:
                yield f"const int w = ({address}) >> 2;"
                parts = [f"w{f' + {k}' if k else ''}" for k in range(words)]
                parts = [f"tile[bank({part})]" for part in parts]
            # bytes between two rows, as for `load`
            other = f"p.dst{tile.src.run[0]} / 2, " if tile.is_paired else ""
            vector = f"({tile.dst.vector})({', '.join(parts)})"
            yield f"store(to + r, {other}{vector}, count);"
        yield "}"


# Squares of 2 x 2 elements of 4 bits: from bytes a and b of two rows, and from words of four
# bytes; (even, odd) are the bytes of two rows of dst.
_PAIRED = (
    "uint square(uint a, uint b)",
    "{ return (a & 15) | (b & 15) << 4 | (a & 240) << 4 | (b & 240) << 8; }",
    "uint2 squares(uint a, uint b) {",
    "    const uint even = (a & 0x0f0f0f0f) | (b & 0x0f0f0f0f) << 4;",
    "    const uint odd = (a >> 4 & 0x0f0f0f0f) | (b & 0xf0f0f0f0);",
    "    const uint x = (even & 0x00ff00ff) | (odd & 0x00ff00ff) << 8;",
    "    const uint y = (even >> 8 & 0x00ff00ff) | (odd & 0xff00ff00);",
    "    return (uint2)((x & 0xffff) | y << 16, x >> 16 | (y & 0xffff0000));",
    "}",
    "uint2 rows(uint v, uint w) {",
    "    const uint x = (v & 0xffff) | w << 16, y = v >> 16 | (w & 0xffff0000);",
    "    const uint even = (x & 0x00ff00ff) | (y & 0x00ff00ff) << 8;",
    "    return (uint2)(even, (x >> 8 & 0x00ff00ff) | (y & 0xff00ff00));",
    "}",
)


def _load_pair(tile: Tile) -> Iterator[str]:
    """Return the statements that load a whole vector from two rows."""
    words = tile.src.nbytes // WORD
    half = vector_type(words // 2 * WORD)
    yield f"        const {half} a = *(__global const {half} *)from;"
    yield f"        const {half} b = *(__global const {half} *)(from + other);"
    parts = [
        f"squares({word_of('a', k, words // 2)}, {word_of('b', k, words // 2)})"
        for k in range(words // 2)
    ]
    yield f"        return ({tile.src.vector})({', '.join(parts)});"


def _store_pair(tile: Tile) -> Iterator[str]:
    """Return the statements that store a whole vector in two rows."""
    words = tile.dst.nbytes // WORD
    half = vector_type(words // 2 * WORD)
    for k in range(words // 2):
        yield f"        const uint2 r{k} = rows(v.s{2 * k}, v.s{2 * k + 1});"
    for row, place in enumerate(("to", "to + other")):
        parts = ", ".join(f"r{k}.s{row}" for k in range(words // 2))
        yield f"        *(__global {half} *)({place}) = ({half})({parts});"


def _load(tile: Tile) -> Iterator[str]:
    """Return a function that loads the first `count` elements of a vector, and zeros.

    For squares of 4-bit elements, `other` is the distance of the second row from the first one, in
    bytes. With `is_inside` the aligned vectors around the vector are in src.
    """
    vector, words = tile.src.vector, tile.src.nbytes // WORD
    other = "index_t other, " if tile.is_paired else ""
    inside = "int is_inside, " if tile.src.is_shifted else ""
    head = f"{vector} load(__global const {tile.row_memory} *from"
    yield f"{head}, {other}{inside}int count) {{"
    if tile.is_paired:
        yield f"    if (count >= {tile.src.lanes}) {{"
        yield from _load_pair(tile)
        yield "    }"
    elif tile.src.is_shifted:
        yield "    if (is_inside && count > 0) {"
        yield "        __global const uint4 *pair ="
        yield "            (__global const uint4 *)((uintptr_t)from & ~(uintptr_t)15);"
        yield "        const uint4 v = shifted(pair[0], pair[1], (uint)(uintptr_t)from & 15);"
        part = f"first_bytes(v, count * {tile.nbytes})"
        yield f"        return count >= {tile.src.lanes} ? v : {part};"
        yield "    }"
    else:
        yield f"    if (count >= {tile.src.lanes}) return *(__global const {vector} *)from;"
    # elements are shifted in, the last one first
    yield f"    {vector} v = ({vector})(0);"
    last = f"min(count, {tile.src.lanes})" if inside else "count"
    yield f"    for (int j = {last} - 1; j >= 0; --j) {{"
    if tile.nbytes < WORD:
        bits = 8 * tile.nbytes
        for k in reversed(range(words)):
            lower = f" | {word_of('v', k - 1, words)} >> {32 - bits}" if k else ""
            yield f"        {word_of('v', k, words)} = {word_of('v', k, words)} << {bits}{lower};"
        element = "square(from[j], from[other + j])" if tile.is_paired else "from[j]"
        yield f"        {word_of('v', 0, words)} |= {element};"
    else:
        parts = tile.nbytes // WORD
        for k in reversed(range(parts, words)):
            yield f"        v.s{k} = v.s{k - parts};"
        yield f"        {word_of('v', 0, words)} = (uint)from[j];"
        if parts > 1:
            yield "        v.s1 = (uint)(from[j] >> 32);"
    yield "    }"
    yield "    return v;"
    yield "}"


def _store(tile: Tile) -> Iterator[str]:
    """Return a function that stores the first `count` elements of a vector, as `_load` loads.

    The word may begin `first` elements before its run; these are not stored.
    """
    vector, words = tile.dst.vector, tile.dst.nbytes // WORD
    first = ", int first" if tile.dst.is_shifted else ""
    other = "index_t other, " if tile.is_paired else ""
    yield f"void store(__global {tile.row_memory} *to, {other}{vector} v{first}, int count) {{"
    whole = f"count >= {tile.dst.lanes}" + (" && first <= 0" if first else "")
    if tile.is_paired:
        yield f"    if ({whole}) {{"
        yield from _store_pair(tile)
        yield "        return;"
        yield "    }"
    else:
        yield f"    if ({whole}) {{ *(__global {vector} *)to = v; return; }}"
    start = "0"
    if first:
        start = "max(first, 0)"
        yield f"    v >>= min(max(first, 0) * {8 * tile.nbytes}, 31);"
    yield f"    for (int j = {start}; j < min(count, {tile.dst.lanes}); ++j) {{"
    if tile.nbytes < WORD:
        bits = 8 * tile.nbytes
        yield f"        to[j] = ({tile.row_memory}){word_of('v', 0, words)};"
        if tile.is_paired:
            yield f"        to[other + j] = (uchar)({word_of('v', 0, words)} >> 8);"
        for k in range(words):
            upper = f" | {word_of('v', k + 1, words)} << {32 - bits}" if k < words - 1 else ""
            yield f"        {word_of('v', k, words)} = {word_of('v', k, words)} >> {bits}{upper};"
    else:
        parts = tile.nbytes // WORD
        low = word_of("v", 0, words)
        value = low if parts == 1 else "(ulong)v.s1 << 32 | v.s0"
        yield f"        to[j] = {value};"
        for k in range(words - parts):
            yield f"        v.s{k} = v.s{k + parts};"
    yield "    }"
    yield "}"
