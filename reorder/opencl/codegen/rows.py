"""A kernel body that copies rows which start at any byte: vectors that are aligned in dst.

Some loops follow one another in dst: work items store 16 bytes each, which may have the end of one
row of src and the start of the next. Loads are aligned too, and shifted: vectors near the end of
src are moved byte by byte, so that nothing behind it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.codegen.indices import index_lines
from reorder.opencl.codegen.shifts import SHIFTS, VECTORS_NBYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import Pattern
    from reorder.opencl.codegen.row_shapes import Rows

__all__ = ["row_functions", "row_lines"]

_FUNCTIONS = (
    # bytes `first` to `last` are wanted: a vector is loaded if it has one of them
    "uint4 load(__global const uchar *src, index_t from, int first, int last) {",
    "    const index_t at = from & ~(index_t)15;",
    "    const index_t low = max(at, (from + first) & ~(index_t)15);",
    "    const index_t high = min(at + 16, (from + last - 1) & ~(index_t)15);",
    "    return shifted(*(__global const uint4 *)(src + low),",
    "                   *(__global const uint4 *)(src + high), (uint)from & 15);",
    "}",
    # the bits of `count` bytes of a word
    "uint bits(int count)",
    "{ return count >= 4 ? 0xffffffffu : count <= 0 ? 0u : (1u << count * 8) - 1; }",
    "uint4 joined(uint4 a, uint4 b, int count) {",
    "    const uint4 mask = (uint4)(bits(count), bits(count - 4), bits(count - 8),",
    "                               bits(count - 12));",
    "    return (a & mask) | (b & ~mask);",
    "}",
)


def row_functions(rows: Rows) -> Iterator[str]:
    """Return the functions that the body calls."""
    yield from SHIFTS
    yield from _FUNCTIONS
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
    yield from index_lines(pattern)
    outer = range(1, len(pattern.loops))
    for side in ("src", "dst"):
        terms = [f"p.{side}", *(f"i{k} * p.{side}{k}" for k in outer)]
        yield f"const index_t {side}_offset = {' + '.join(terms)};"
    steps = range(pattern.loops[0].steps)
    for t in steps:
        item = f"(i0 + ({t} << p.shift0))" if t else "i0"
        yield f"const int at{t} = (int){item} * 16 - (int)(dst_offset & 15);"
        yield f"int is_whole{t} = at{t} >= 0 && at{t} + 16 <= (int)p.extent0;"
        yield f"uint4 v{t} = 0;"
        yield f"if (is_whole{t}) {{"
        yield from (f"    {line}" for line in _load_lines(t, rows))
        yield "}"
    for t in steps:
        yield f"if (is_whole{t}) *(__global uint4 *)(dst + (dst_offset + at{t})) = v{t};"
        # the ends of what follows one another in dst, and the end of src
        yield f"else for (int j = max(-at{t}, 0); j < min(16, (int)p.extent0 - at{t}); ++j) {{"
        yield f"    const uint row = {_row(f'at{t} + j')};"
        yield f"    const int column = at{t} + j - (int)row * (int)p.length;"
        yield f"    dst[dst_offset + at{t} + j] = src[src_offset + row_offset(row, p) + column];"
        yield "}"


def _row(at: str) -> str:
    """Return the row of a byte: a product with the inverse of the length, rounded down."""
    return f"mul_hi((uint)({at}), (uint)p.inverse) >> p.row_shift"


def _load_lines(t: int, rows: Rows) -> Iterator[str]:
    """Return the loads of a vector, from one row or two."""
    yield f"const uint row = {_row(f'at{t}')};"
    yield f"const int column = at{t} - (int)row * (int)p.length;"
    yield "const int count = min(16, (int)p.length - column);"
    yield "const index_t from = src_offset + row_offset(row, p) + column;"
    inside = f"+ {VECTORS_NBYTES} <= p.src_end"
    yield f"if (from {inside}) v{t} = load(src, from, 0, count);"
    yield f"else is_whole{t} = 0;"
    if rows.depth > 1:
        yield "if (count < 16) {"
        yield "    const index_t next = src_offset + row_offset(row + 1, p) - count;"
        yield f"    if (next {inside}) v{t} = joined(v{t}, load(src, next, count, 16), count);"
        yield f"    else is_whole{t} = 0;"
        yield "}"
