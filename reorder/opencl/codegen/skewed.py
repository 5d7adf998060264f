"""A kernel body that transposes where rows start at any byte, in tiles with skewed ends.

The rows of a tile in dst end where a vector, or a sector of memory, does. So each row of dst may
begin some elements before its tile, and work items store whole vectors. Only the ends of the rows
of the tensor are written element by element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.codegen.indices import index_lines
from reorder.opencl.codegen.shifts import SHIFTS
from reorder.opencl.codegen.vectors import transposed_words, unit_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import Pattern
    from reorder.opencl.codegen.row_shapes import Skewed

__all__ = ["skewed_functions", "skewed_lines"]

_WORD, _VECTOR = 4, 16
_TYPES = {1: "uchar", 2: "ushort", 4: "uint"}


def skewed_functions(tile: Skewed) -> Iterator[str]:
    """Return the functions that the body calls."""
    kind, lanes, bits = _TYPES[tile.nbytes], _VECTOR // tile.nbytes, 8 * tile.nbytes
    yield from SHIFTS
    if tile.unit > 1:
        yield from unit_lines(tile.unit, "uint")
        yield f"__global const uint4 *aligned(__global const {kind} *from)"
        yield "{ return (__global const uint4 *)((uintptr_t)from & ~(uintptr_t)15); }"
        # the first `count` elements, and zeros; both vectors lie before the end of the row
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
        at = k * tile.unit
        inside = f"low <= {at} && high >= {at + tile.unit}"
        yield f"    if ({inside}) *(__global uint *)(to + {at}) = v.{word};"
        if tile.unit > 1:
            yield "    else {"
            for j in range(tile.unit):
                part = f"({kind})(v.{word} >> {j * bits})"
                yield f"        if (low <= {at + j} && high > {at + j}) to[{at + j}] = {part};"
            yield "    }"
    yield "}"


def skewed_lines(pattern: Pattern) -> Iterator[str]:
    """Return the body: all loads of a work item, its stores to local memory, then those to dst."""
    tile = pattern.skewed
    assert tile is not None  # noqa: S101 - for the type checker: the body of skewed tiles
    yield f"__local uint tile[{tile.local_words}];"
    yield from index_lines(pattern)
    outer = range(2, len(pattern.loops))
    terms = ["p.src", f"(i0 - {tile.before}) * p.src0", "i1 * p.src1"]
    terms += [f"i{k} * p.src{k}" for k in outer]
    yield f"const index_t src_offset = {' + '.join(terms)};"
    terms = ["p.dst", "i0 * p.dst0", "i1 * p.dst1", *(f"i{k} * p.dst{k}" for k in outer)]
    yield f"const index_t dst_offset = {' + '.join(terms)};"
    # rows of src that hold data, and columns
    yield f"const int top = {tile.before} - (int)min(i0, (index_t){tile.before});"
    data = [f"i{k} < p.valid{k}" for k in outer]
    inside = f"(int)min(p.valid0 - i0 + {tile.before}, (index_t){tile.rows})"
    inside = f"{' && '.join(data)} ? {inside} : 0" if data else inside
    yield f"const int bottom = {inside};"
    limit = tile.width + 2 * _VECTOR
    yield f"const int columns = (int)min(p.valid1 - i1, (index_t){limit});"
    yield from (_scalar_loads if tile.unit == 1 else _vector_loads)(tile, pattern.work_items)
    yield "barrier(CLK_LOCAL_MEM_FENCE);"
    yield f"const int start = (int)min(i0, (index_t){tile.height});"
    yield f"const int end = (int)min(p.extent0 - i0, (index_t){2 * tile.height});"
    chunks = tile.height * tile.nbytes // _VECTOR
    yield from _store_lines(tile, pattern.work_items, 0, chunks)
    if tile.align:
        # the last tile of a row has its end, too
        yield f"if (end <= {tile.height}) {{"
        yield from _store_lines(tile, pattern.work_items, chunks, tile.align // _VECTOR)
        yield "}"


def _local(tile: Skewed, column: str) -> str:
    """Return the word of local memory where a column of src, a row of dst, starts."""
    lanes = _VECTOR // tile.nbytes
    gap = f" + {column} / {lanes} * {tile.gap}" if tile.gap else ""
    return f"{column} * {tile.pitch}{gap}"


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
    lanes, words = _VECTOR // tile.nbytes, _VECTOR // _WORD
    vectors = tile.width // lanes
    total = tile.rows // tile.unit * vectors
    yield f"for (int n = (int)get_local_id(0); n < {total}; n += {work_items}) {{"
    yield f"    const int c = n % {vectors} * {lanes}, r = n / {vectors} * {tile.unit};"
    rows = [f"v{row}" for row in range(tile.unit)]
    yield f"    uint4 {', '.join(rows)};"
    # two vectors of each row may have what is behind the row, but nothing behind src
    last = f"src_offset + c + max(r * p.src0, (r + {tile.unit - 1}) * p.src0)"
    inside = f"columns - c >= {lanes} && {last} + {2 * lanes} <= p.src_end"
    # all loads come first: a shift waits for its vectors
    yield f"    if (r >= top && r + {tile.unit} <= bottom && {inside}) {{"
    for row in range(tile.unit):
        yield f"        __global const uint4 *pair{row} = aligned({_place(row)});"
        yield f"        const uint4 a{row} = pair{row}[0], b{row} = pair{row}[1];"
    for row, name in enumerate(rows):
        yield f"        {name} = shifted(a{row}, b{row}, (uint)(uintptr_t)({_place(row)}) & 15);"
    yield "    } else {"
    for row, name in enumerate(rows):
        count = f"r + {row} >= top && r + {row} < bottom ? columns - c : 0"
        yield f"        {name} = load({_place(row)}, {count});"
    yield "    }"
    yield f"    const int to = {_local(tile, 'c')} + r / {tile.unit};"
    for j, column in enumerate(transposed_words(rows, words)):
        yield f"    tile[to + {j * tile.pitch}] = {column};"
    yield "}"


def _place(row: int) -> str:
    """Return the address of a vector of a row of a unit."""
    return f"src + (src_offset + (r + {row}) * p.src0 + c)"


def _store_lines(tile: Skewed, work_items: int, first: int, count: int) -> Iterator[str]:
    """Return the stores of some vectors of each row of dst, from the first one on."""
    lanes, words = _VECTOR // tile.nbytes, _VECTOR // _WORD
    align = max(tile.align, _VECTOR)
    total = tile.width * count
    yield f"for (int n = (int)get_local_id(0); n < {total}; n += {work_items}) {{"
    yield f"    const int c = n / {count}, q = n % {count} + {first};"
    yield "    if (i1 + c >= p.extent1) continue;"
    yield f"    __global {_TYPES[tile.nbytes]} *to = dst + (dst_offset + c * p.dst1);"
    # elements from the start of the tile on; negative before it
    yield (
        f"    const int r = q * {lanes} - "
        f"(int)((uint)(uintptr_t)to & {align - 1}u) / {tile.nbytes};"
    )
    yield f"    const int low = max(-start - r, 0), high = min(end - r, {lanes});"
    yield "    if (low >= high) continue;"
    if tile.unit == 1:
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
