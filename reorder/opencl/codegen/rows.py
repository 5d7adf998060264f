"""A kernel body that copies rows which start at any byte: vectors that are aligned in dst.

Some loops follow one another in dst: work items store 16 bytes each, which may have the end of one
row of src and the start of the next. Loads are aligned too, and shifted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.codegen.indices import index_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import Pattern, Rows

__all__ = ["row_functions", "row_lines"]

_VECTOR = 16
_TYPES = {1: "uchar", 2: "ushort", 4: "uint"}

# Bytes of two aligned vectors from any byte on: pairs of words, words, then bits are chosen.
_SHIFTED = (
    "uint funnel(uint low, uint high, uint shift)",
    "{ return shift ? low >> shift | high << (32 - shift) : low; }",
    "uint4 shifted(uint4 a, uint4 b, uint at) {",
    "    const int is_far = at >> 3 & 1, is_odd = at >> 2 & 1;",
    "    const uint shift = (at & 3) * 8;",
    "    const uint4 p = is_far ? (uint4)(a.zw, b.xy) : a;",
    "    const uint2 q = is_far ? b.zw : b.xy;",
    "    const uint4 w = is_odd ? (uint4)(p.yzw, q.x) : p;",
    "    const uint last = is_odd ? q.y : q.x;",
    "    return (uint4)(funnel(w.x, w.y, shift), funnel(w.y, w.z, shift),",
    "                   funnel(w.z, w.w, shift), funnel(w.w, last, shift));",
    "}",
)


def row_functions(rows: Rows) -> Iterator[str]:
    """Return the functions that the body calls."""
    kind = _TYPES[rows.nbytes]
    yield from _SHIFTED
    # vectors that have no byte of what is wanted may lie outside of the buffer
    yield f"uint4 load(__global const {kind} *from, int first, int last) {{"
    yield "    const uintptr_t low = (uintptr_t)(from + first) & ~(uintptr_t)15;"
    yield "    const uintptr_t high = (uintptr_t)(from + last - 1) & ~(uintptr_t)15;"
    yield "    const uintptr_t at = (uintptr_t)from & ~(uintptr_t)15;"
    yield "    const uint4 a = *(__global const uint4 *)max(at, low);"
    yield "    const uint4 b = *(__global const uint4 *)min(at + 16, high);"
    yield "    return shifted(a, b, (uint)(uintptr_t)from & 15);"
    yield "}"
    # the bits of a word that are below those of `count` bytes
    yield "uint below(int count)"
    yield "{ return count >= 4 ? 0xffffffffu : count <= 0 ? 0u : (1u << count * 8) - 1; }"
    yield "uint4 joined(uint4 a, uint4 b, int count) {"
    yield "    const uint4 mask = (uint4)(below(count), below(count - 4), below(count - 8),"
    yield "                               below(count - 12));"
    yield "    return (a & mask) | (b & ~mask);"
    yield "}"
    yield "index_t row_offset(uint row, const params_t p) {"
    yield "    index_t offset = 0;"
    for k in range(1, rows.depth):
        is_last = k == rows.depth - 1
        digit = "row" if is_last else f"row % (uint)p.count{k}"
        yield f"    offset += (index_t)({digit}) * p.step{k};"
        if not is_last:
            yield f"    row /= (uint)p.count{k};"
    yield "    return offset;"
    yield "}"


def row_lines(pattern: Pattern) -> Iterator[str]:
    """Return the body: each work item loads its vectors, then stores them."""
    rows = pattern.rows
    assert rows is not None  # noqa: S101 - for the type checker: the body of rows
    lanes = _VECTOR // rows.nbytes
    yield from index_lines(pattern)
    outer = range(1, len(pattern.loops))
    for side in ("src", "dst"):
        terms = [f"p.{side}", *(f"i{k} * p.{side}{k}" for k in outer)]
        yield f"const index_t {side}_offset = {' + '.join(terms)};"
    yield f"const int before = (int)((uint)(uintptr_t)(dst + dst_offset) & 15u) / {rows.nbytes};"
    steps = range(pattern.loops[0].steps)
    for t in steps:
        item = f"(i0 + ({t} << p.shift0))" if t else "i0"
        yield f"const int at{t} = (int){item} * {lanes} - before;"
        # elements of the vector that are inside
        yield f"const int low{t} = max(-at{t}, 0), high{t} = min({lanes}, (int)p.extent0 - at{t});"
        yield f"int is_whole{t} = low{t} == 0 && high{t} == {lanes};"
        yield f"uint4 v{t} = 0;"
        yield f"if (is_whole{t}) {{"
        yield f"    const uint row = (uint)at{t} / (uint)p.length;"
        yield f"    const int column = at{t} - (int)row * (int)p.length;"
        yield f"    const int count = min({lanes}, (int)p.length - column);"
        yield "    const index_t one = src_offset + row_offset(row, p) + column;"
        yield f"    is_whole{t} = one + {2 * lanes} <= p.src_end;"
        yield f"    if (is_whole{t}) v{t} = load(src + one, 0, count);"
        if rows.depth > 1:
            yield f"    if (count < {lanes} && is_whole{t}) {{"
            yield "        const index_t other = src_offset + row_offset(row + 1, p) - count;"
            yield f"        is_whole{t} = other + {2 * lanes} <= p.src_end;"
            yield f"        if (is_whole{t}) v{t} = joined(v{t}, load(src + other, count, {lanes}),"
            yield f"                                   count * {rows.nbytes});"
            yield "    }"
        yield "}"
    for t in steps:
        yield f"if (is_whole{t}) *(__global uint4 *)(dst + (dst_offset + at{t})) = v{t};"
        yield f"else for (int j = low{t}; j < high{t}; ++j) {{"
        yield f"    const uint row = (uint)(at{t} + j) / (uint)p.length;"
        yield f"    const int column = at{t} + j - (int)row * (int)p.length;"
        yield f"    dst[dst_offset + at{t} + j] = src[src_offset + row_offset(row, p) + column];"
        yield "}"
