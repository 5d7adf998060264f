"""A family of kernels that copies rows which start at any byte, in vectors aligned in dst.

Some loops are contiguous in dst, and become loop 0, in bytes: work items store 16 each, which may
hold the end of one row of src and the start of the next. Loads are aligned too, and then shifted.
Vectors near the end of src are moved byte by byte, so that nothing beyond it is read. Parameters:

    length                    of a row
    inverse, row_shift        2^(32 + row_shift) / length, rounded up, in 32 bits
    count1, step1, ...        extent and stride in src of the loops around a row
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from reorder.opencl.kernel.access import PAIRS_NBYTES, SHIFTS, VECTOR, Access, Mode
from reorder.opencl.kernel.formula import WORD_BITS
from reorder.opencl.kernel.launch import (
    MAX_INT,
    Body,
    Pattern,
    ceil_log2,
    divided,
    end_of_src,
    floor_log2,
    index_lines,
    indices_of,
    lower_nest,
    offset_at,
    offset_bound,
)
from reorder.opencl.kernel.placement import Coords, Loop, Nest, without

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.kernel.launch import KernelTask, Launch

# The shortest row, in bytes, that is copied this way, by the bytes of an element. Tiles keep
# shorter rows together, and wider elements move as fast one by one.
_LEAST_ROW = {1: VECTOR, 2: 129}

# A contiguous part of dst need not be longer than the first number of bytes. Below the second it
# does not pay, since its ends are written byte by byte.
_ENOUGH, _LEAST = 1 << 14, 1 << 10

# Positions are counted in 32 bits, up to the end of the last group, whose size is limited.
_MAX_GROUP = 1 << 24
_MAX_NBYTES = MAX_INT - _MAX_GROUP

# the most work items of a group, and the vectors of each
_WORK_ITEMS, _STEPS = 128, 2


def try_lower(task: KernelTask) -> tuple[Launch, ...]:
    """Make the launch of a nest that copies rows; empty if elements are as fast."""
    nest, nbytes = task.nest, task.accesses[1].nbytes
    moves_bytes = task.conversion is None and not task.has_image
    if not moves_bytes or not nest.is_plain or nbytes not in _LEAST_ROW:
        return ()
    if any(loop.valid != loop.extent for loop in nest.moving):
        return ()
    if nest.steps * nbytes < task.device.min_tiled:
        return ()
    first = nest.along(0)
    length = 0 if first is None else first.extent * nbytes
    if first is not nest.along(1) or not _LEAST_ROW[nbytes] <= length <= _MAX_NBYTES:
        return ()
    row = Loop(length, length, ((1,), (1,)))
    loops = [
        loop._replace(strides=_in_bytes(loop.strides, nbytes))
        for loop in without(nest.moving, (first,))
    ]
    chain = _chain(row, loops)
    if prod(loop.extent for loop in chain) < _LEAST:
        return ()
    # groups that run at the same time read adjacent rows, which share sectors of memory
    outer = sorted(without(loops, chain), key=lambda loop: abs(loop.stride(0)))
    nest = nest._replace(starts=_in_bytes(nest.starts, nbytes))
    # the loops of a row are one loop of the kernel
    return (_launch(nest, chain, nest.filled(outer, 2), task.work_items(_WORK_ITEMS)),)


def _in_bytes(operands: tuple[Coords, ...], nbytes: int) -> tuple[Coords, ...]:
    """Return offsets or strides in bytes instead of elements."""
    return tuple((offset * nbytes,) for (offset,) in operands)


def _chain(row: Loop, loops: list[Loop]) -> list[Loop]:
    """Return the loops that are contiguous in dst, until they have enough bytes."""
    chain, length = [row], row.extent
    while length < _ENOUGH:
        following = next((loop for loop in loops if loop.stride(1) == length), None)
        if following is None or length * following.extent > _MAX_NBYTES:
            break
        chain.append(following)
        length *= following.extent
    return chain


def _launch(nest: Nest, chain: list[Loop], outer: tuple[Loop, ...], work_items: int) -> Launch:
    """Make the launch of loops that are contiguous in dst, and of those around them."""
    row, nbytes = chain[0].extent, prod(loop.extent for loop in chain)
    moved = nest._replace(loops=(*chain, *outer))
    access = Access(Mode.ELEMENTS, 8)
    pattern = Pattern(access, access, RowCopy(len(chain)), work_items)
    # one vector more if dst does not start at a vector
    copied = divided(nbytes + VECTOR - 1, floor_log2(work_items), _STEPS, length=VECTOR)
    row_shift = ceil_log2(row) - 1
    # at least 2^31: as a number of 32 bits with a sign it is negative
    inverse = -(-(1 << WORD_BITS + row_shift) // row) - (1 << WORD_BITS)
    numbers = {"length": row, "inverse": inverse, "row_shift": row_shift}
    numbers["src_end"] = end_of_src(moved)
    for k, loop in enumerate(chain[1:], 1):
        numbers |= {f"count{k}": loop.extent, f"step{k}": loop.stride(0)}
    whole = Loop(nbytes, nbytes, ((0,), (0,)))
    divisions = [copied, *(divided(loop.extent) for loop in outer)]
    bound = offset_bound(moved, [loop.extent for loop in moved.loops]) + _MAX_GROUP
    nest = nest._replace(loops=(whole, *outer))
    return lower_nest(nest, pattern, divisions, numbers, bound=bound)


_FUNCTIONS = (
    # bytes `first` to `last` are wanted: a pair of words is loaded if it has one of them
    "uint4 load(__global const uchar *src, index_t from, int first, int last) {",
    "    const index_t low = (from + first) & ~(index_t)7, high = (from + last - 1) & ~(index_t)7;",
    "    const index_t middle = clamp((from & ~(index_t)7) + 8, low, high);",
    "    return shifted(*(__global const uint2 *)(src + low),",
    "                   *(__global const uint2 *)(src + middle),",
    "                   *(__global const uint2 *)(src + high), ((uint)from & 7) * 8);",
    "}",
    "uint4 joined(uint4 a, uint4 b, int count)",
    "{ return first_bits(a, count * 8) | (b ^ first_bits(b, count * 8)); }",
)


@dataclass(frozen=True)
class RowCopy(Body):
    """A copy in vectors aligned in dst, where `depth` loops are contiguous; the first is a row."""

    depth: int

    def param_names(self) -> list[str]:
        """Return the parameters of the rows."""
        loops = [f"{field}{k}" for k in range(1, self.depth) for field in ("count", "step")]
        return ["length", "inverse", "row_shift", *loops, "src_end"]

    def functions(self, pattern: Pattern) -> Iterator[str]:
        """Return the loads of shifted vectors, and the offset of a row."""
        yield from SHIFTS
        yield from _FUNCTIONS
        yield "index_t row_offset(uint row, const params_t p) {"
        yield "    index_t offset = 0;"
        for k in range(1, self.depth):
            is_last = k == self.depth - 1
            digit = "row" if is_last else f"row % (uint)p.count{k}"
            yield f"    offset += (index_t)({digit}) * p.step{k};"
            if not is_last:
                yield f"    row /= (uint)p.count{k};"
        yield "    return offset;"
        yield "}"
        yield from super().functions(pattern)

    def lines(self, pattern: Pattern) -> Iterator[str]:
        """Return the body: each work item loads its vectors, then stores them."""
        yield from index_lines(pattern)
        for side in ("src", "dst"):
            yield f"const index_t {side}_offset = {offset_at(side, indices_of(pattern, 1))};"
        steps = range(pattern.loops[0].steps)
        for t in steps:
            item = f"(i0 + ({t} << p.shift0))" if t else "i0"
            yield f"const int at{t} = (int){item} * 16 - (int)(dst_offset & 15);"
            yield f"int is_whole{t} = at{t} >= 0 && at{t} + 16 <= (int)p.extent0;"
            yield f"uint4 v{t} = 0;"
            yield f"if (is_whole{t}) {{"
            yield from (f"    {line}" for line in _load_lines(t, self.depth))
            yield "}"
        for t in steps:
            yield f"if (is_whole{t}) *(__global uint4 *)(dst + (dst_offset + at{t})) = v{t};"
            # the ends of what is contiguous in dst, and the end of src
            yield f"else for (int j = max(-at{t}, 0); j < min(16, (int)p.extent0 - at{t}); ++j) {{"
            yield f"    const uint row = {_row(f'at{t} + j')};"
            yield f"    const int column = at{t} + j - (int)row * (int)p.length;"
            place = "src_offset + row_offset(row, p) + column"
            yield f"    dst[dst_offset + at{t} + j] = src[{place}];"
            yield "}"


def _row(at: str) -> str:
    """Return the row of a byte: a product with the inverse of the length, rounded down."""
    return f"mul_hi((uint)({at}), (uint)p.inverse) >> p.row_shift"


def _load_lines(t: int, depth: int) -> Iterator[str]:
    """Return the loads of a vector, from one row or two."""
    yield f"const uint row = {_row(f'at{t}')};"
    yield f"const int column = at{t} - (int)row * (int)p.length;"
    yield "const int count = min(16, (int)p.length - column);"
    yield "const index_t from = src_offset + row_offset(row, p) + column;"
    inside = f"+ {PAIRS_NBYTES} <= p.src_end"
    yield f"if (from {inside}) v{t} = load(src, from, 0, count);"
    yield f"else is_whole{t} = 0;"
    if depth > 1:
        yield "if (count < 16) {"
        yield "    const index_t next = src_offset + row_offset(row + 1, p) - count;"
        yield f"    if (next {inside}) v{t} = joined(v{t}, load(src, next, count, 16), count);"
        yield f"    else is_whole{t} = 0;"
        yield "}"
