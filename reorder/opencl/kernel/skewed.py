"""A family of kernels that transposes rows which start at any byte, in tiles with skewed ends.

The rows of a tile end in dst where a vector, or a sector of memory, ends. So each row of dst may
start some elements before its tile, and work items store whole vectors. Only the ends of the
tensor's rows are written element by element.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from reorder.opencl.kernel.access import VECTOR, WORD, integer_type
from reorder.opencl.kernel.launch import (
    Body,
    KernelTask,
    Launch,
    Pattern,
    floor_log2,
    lower_nest,
    tiled,
)
from reorder.opencl.kernel.local_memory import BANKS, MAX_LOCAL_NBYTES, row_of
from reorder.opencl.kernel.statements import (
    SHIFTS,
    index_lines,
    indices_of,
    offset_at,
    transpose_functions,
    transposed_words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# bytes of the shortest row of src and dst; tiles of shorter ones would be mostly empty
_MIN_ROW = 96


class SkewedShape(NamedTuple):
    """A tile: its steps along src and along dst, and the work items of its group.

    Its rows in dst end at multiples of `align` bytes. A tile is taken only if its bytes along dst
    are a multiple of that.
    """

    width: int
    height: int
    work_items: int = 256
    # bytes of a sector of memory
    align: int = 32


class SkewedSizes(NamedTuple):
    """The tile for elements of so many bytes; a work item loads the rows that it transposes."""

    tiles: Mapping[int, SkewedShape] = {
        1: SkewedShape(128, 96),
        2: SkewedShape(128, 48),
        4: SkewedShape(64, 32),
    }


def try_lower(task: KernelTask) -> tuple[Launch, ...]:
    """Make the launch of a nest that transposes between two buffers.

    Empty if whole-vector tiles suffice or rows are too short.
    """
    nest, profile, access = task.nest, task.device.profile, task.accesses[1]
    nbytes = access.nbytes
    shape = profile.sizes_of(SkewedSizes).tiles.get(nbytes)
    if shape is None or not task.moves_bytes or not nest.is_plain or not task.is_aligned:
        return ()
    moving = nest.moving
    along_src, along_dst = moving.along_src, moving.along_dst
    if along_src is None or along_dst is None or nest.steps * nbytes < profile.min_tiled:
        return ()
    if along_src is along_dst or min(along_src.extent, along_dst.extent) * nbytes < _MIN_ROW:
        return ()
    outer = moving.outer
    nest = nest._replace(loops=(along_dst, along_src, *outer))
    starts_at_vectors = [
        nest.alignment(operand, (row,)) * nbytes % VECTOR == 0
        for operand, row in enumerate((along_src, along_dst))
    ]
    if all(starts_at_vectors):
        return ()
    tile = _tile(shape, nbytes, is_skewed=not starts_at_vectors[1])
    # rows of dst end at multiples of `align` in all tiles only if a tile has a whole number of them
    is_whole = not tile.align or shape.height * nbytes % tile.align == 0
    is_large = shape.work_items > task.device.max_work_items
    if is_large or 4 * tile.local_words > MAX_LOCAL_NBYTES or not is_whole:
        return ()
    pattern = Pattern(access, access, tile, shape.work_items)
    extents = tile.height, tile.width, *(1 for _ in outer)
    return (lower_nest(nest, pattern, tiled(nest.loops, extents)),)


def _tile(shape: SkewedShape, nbytes: int, *, is_skewed: bool) -> Skewed:
    """Return a tile placed in local memory so that work items access different banks."""
    align = 1 << floor_log2(shape.align) if is_skewed else 0
    tile = Skewed(shape.width, shape.height, nbytes, align, 0)
    lanes = VECTOR // nbytes
    # an odd pitch, and a word to read beyond the end
    pitch = tile.rows * nbytes // WORD + 1 | 1
    if nbytes == WORD:
        return replace(tile, pitch=pitch)
    # vectors of a row of src are that many banks apart; rows transposed together are between them
    apart = max(BANKS * lanes // shape.width, 1)
    return replace(tile, pitch=pitch, gap=(apart - lanes * pitch) % BANKS)


@dataclass(frozen=True)
class Skewed(Body):
    """A tile of `width` steps of loop 1, along src, and `height` of loop 0, along dst.

    Its rows in dst end at multiples of `align` bytes; 0 where all rows of dst start at multiples of
    a vector. In local memory a row has `pitch` words, and those of a vector of src are followed by
    `gap` words.
    """

    width: int
    height: int
    nbytes: int
    align: int
    pitch: int
    gap: int = 0

    @property
    def packed_rows(self) -> int:
        """Rows of src that are transposed in registers: the elements of a word."""
        return 4 // self.nbytes

    @property
    def before(self) -> int:
        """Steps of loop 0 that are loaded before those of the tile."""
        return self.align // self.nbytes

    @property
    def rows(self) -> int:
        """Steps of loop 0 that are loaded."""
        return self.height + self.before

    @property
    def local_words(self) -> int:
        """Words of local memory; rows of padding may be read one vector beyond them."""
        return self.width * self.pitch + self.width * self.nbytes // 16 * self.gap + 4

    def param_names(self) -> list[str]:
        """Return the end of src where vectors of a row may reach beyond it."""
        return ["src_end"] if self.packed_rows > 1 else []

    def functions(self, pattern: Pattern) -> Iterator[str]:
        """Return the loads of shifted vectors, and the stores of parts of one."""
        kind, lanes, bits = pattern.src.element.memory, VECTOR // self.nbytes, 8 * self.nbytes
        yield from SHIFTS
        if self.packed_rows > 1:
            yield from transpose_functions(self.packed_rows)
            yield f"__global const uint4 *aligned(__global const {kind} *from)"
            yield "{ return (__global const uint4 *)((uintptr_t)from & ~(uintptr_t)15); }"
            # the first `count` elements, and zeros; both vectors are before the end of the row
            yield f"uint4 load(__global const {kind} *from, int count) {{"
            yield f"    if (count >= {2 * lanes}) {{"
            yield "        __global const uint4 *pair = aligned(from);"
            yield "        return shifted(pair[0], pair[1], (uint)(uintptr_t)from & 15);"
            yield "    }"
            yield "    uint4 v = (uint4)(0);"
            yield f"    for (int j = min(count, {lanes}) - 1; j >= 0; --j) {{"
            yield f"        v = v << {bits} | (uint4)(0, v.x, v.y, v.z) >> {32 - bits};"
            yield "        v.x |= from[j];"
            yield "    }"
            yield "    return v;"
            yield "}"
        # elements `low` to `high` of a vector
        yield f"void store(__global {kind} *to, uint4 v, int low, int high) {{"
        yield f"    if (low == 0 && high == {lanes}) {{ *(__global uint4 *)to = v; return; }}"
        for k, word in enumerate("xyzw"):
            at = k * self.packed_rows
            inside = f"low <= {at} && high >= {at + self.packed_rows}"
            yield f"    if ({inside}) *(__global uint *)(to + {at}) = v.{word};"
            if self.packed_rows > 1:
                yield "    else {"
                for j in range(self.packed_rows):
                    part = f"({kind})(v.{word} >> {j * bits})"
                    yield f"        if (low <= {at + j} && high > {at + j}) to[{at + j}] = {part};"
                yield "    }"
        yield "}"
        yield from super().functions(pattern)

    def lines(self, pattern: Pattern) -> Iterator[str]:
        """Return the body: all loads, the stores to local memory, then those to dst."""
        yield f"__local uint tile[{self.local_words}];"
        yield from index_lines(pattern)
        outer = indices_of(pattern, 2)
        first = [(0, f"(i0 - {self.before})"), (1, "i1"), *outer]
        yield f"const index_t src_offset = {offset_at('src', first)};"
        yield f"const index_t dst_offset = {offset_at('dst', indices_of(pattern))};"
        # rows of src that hold data, and columns
        yield f"const int top = {self.before} - (int)min(i0, (index_t){self.before});"
        data = [f"{index} < p.valid{k}" for k, index in outer]
        inside = f"(int)min(p.valid0 - i0 + {self.before}, (index_t){self.rows})"
        inside = f"{' && '.join(data)} ? {inside} : 0" if data else inside
        yield f"const int bottom = {inside};"
        limit = self.width + 2 * VECTOR
        yield f"const int columns = (int)min(p.valid1 - i1, (index_t){limit});"
        yield from (_scalar_loads if self.packed_rows == 1 else _vector_loads)(
            self, pattern.work_items
        )
        yield "barrier(CLK_LOCAL_MEM_FENCE);"
        yield f"const int start = (int)min(i0, (index_t){self.height});"
        yield f"const int end = (int)min(p.extent0 - i0, (index_t){2 * self.height});"
        chunks = self.height * self.nbytes // VECTOR
        yield from _store_lines(self, pattern.work_items, 0, chunks)
        if self.align:
            # the last tile of a row has its end, too
            yield f"if (end <= {self.height}) {{"
            yield from _store_lines(self, pattern.work_items, chunks, self.align // VECTOR)
            yield "}"


def _local(tile: Skewed, column: str) -> str:
    """Return the word of local memory where a column of src, a row of dst, starts."""
    return row_of(column, tile.pitch, VECTOR // tile.nbytes, tile.gap)


def _scalar_loads(tile: Skewed, work_items: int) -> Iterator[str]:
    """Return the loads of words, which adjacent work items take from adjacent memory."""
    total = tile.rows * tile.width
    steps = range(-(-total // work_items))
    for s in steps:
        yield f"const int n{s} = (int)get_local_id(0) + {s * work_items};"
        yield f"const int c{s} = n{s} % {tile.width}, r{s} = n{s} / {tile.width};"
        yield f"uint v{s} = 0;"
        inside = f"r{s} >= top && r{s} < bottom && c{s} < columns"
        yield f"if ({inside}) v{s} = src[src_offset + r{s} * p.src0 + c{s}];"
    for s in steps:
        guard = f"if (r{s} < {tile.rows}) " if total % work_items else ""
        yield f"{guard}tile[{_local(tile, f'c{s}')} + r{s}] = v{s};"


def _vector_loads(tile: Skewed, work_items: int) -> Iterator[str]:
    """Return the loads of vectors of some rows, which are transposed in registers."""
    lanes, words = VECTOR // tile.nbytes, VECTOR // WORD
    vectors = tile.width // lanes
    total = tile.rows // tile.packed_rows * vectors
    yield f"for (int n = (int)get_local_id(0); n < {total}; n += {work_items}) {{"
    yield f"    const int c = n % {vectors} * {lanes}, r = n / {vectors} * {tile.packed_rows};"
    rows = [f"v{row}" for row in range(tile.packed_rows)]
    yield f"    uint4 {', '.join(rows)};"
    # two vectors of each row may reach past the row, but not past src
    last = f"src_offset + c + max(r * p.src0, (r + {tile.packed_rows - 1}) * p.src0)"
    inside = f"columns - c >= {lanes} && {last} + {2 * lanes} <= p.src_end"
    # all loads come first: a shift waits for its vectors
    yield f"    if (r >= top && r + {tile.packed_rows} <= bottom && {inside}) {{"
    for row in range(tile.packed_rows):
        yield f"        __global const uint4 *pair{row} = aligned({_place(row)});"
        yield f"        const uint4 a{row} = pair{row}[0], b{row} = pair{row}[1];"
    for row, name in enumerate(rows):
        yield f"        {name} = shifted(a{row}, b{row}, (uint)(uintptr_t)({_place(row)}) & 15);"
    yield "    } else {"
    for row, name in enumerate(rows):
        count = f"r + {row} >= top && r + {row} < bottom ? columns - c : 0"
        yield f"        {name} = load({_place(row)}, {count});"
    yield "    }"
    yield f"    const int to = {_local(tile, 'c')} + r / {tile.packed_rows};"
    for j, column in enumerate(transposed_words(rows, words)):
        yield f"    tile[to + {j * tile.pitch}] = {column};"
    yield "}"


def _place(row: int) -> str:
    """Return the address of a vector of one of the rows that are transposed in registers."""
    return f"src + (src_offset + (r + {row}) * p.src0 + c)"


def _store_lines(tile: Skewed, work_items: int, first: int, count: int) -> Iterator[str]:
    """Return the stores of `count` vectors of each row of dst, starting at vector `first`."""
    lanes, words = VECTOR // tile.nbytes, VECTOR // WORD
    align = max(tile.align, VECTOR)
    total = tile.width * count
    yield f"for (int n = (int)get_local_id(0); n < {total}; n += {work_items}) {{"
    yield f"    const int c = n / {count}, q = n % {count} + {first};"
    yield "    if (i1 + c >= p.extent1) continue;"
    yield f"    __global {integer_type(tile.nbytes)} *to = dst + (dst_offset + c * p.dst1);"
    # elements after the start of the tile; negative before it
    yield (
        f"    const int r = q * {lanes} - "
        f"(int)((uint)(uintptr_t)to & {align - 1}u) / {tile.nbytes};"
    )
    yield f"    const int low = max(-start - r, 0), high = min(end - r, {lanes});"
    yield "    if (low >= high) continue;"
    if tile.packed_rows == 1:
        yield f"    const int w = {_local(tile, 'c')} + r + {tile.before};"
        parts = [f"tile[w + {k}]" for k in range(words)]
    else:
        yield f"    const int b = (r + {tile.before}) * {tile.nbytes};"
        yield f"    const int w = {_local(tile, 'c')} + (b >> 2);"
        yield "    const uint shift = (b & 3) * 8;"
        yield "    const uint " + ", ".join(f"w{k} = tile[w + {k}]" for k in range(words + 1)) + ";"
        parts = [f"funnel(w{k}, w{k + 1}, shift)" for k in range(words)]
    yield f"    store(to + r, (uint4)({', '.join(parts)}), low, high);"
    yield "}"
