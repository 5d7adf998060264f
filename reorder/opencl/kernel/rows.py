"""A family of kernels that copies rows which start anywhere, in vectors aligned in dst.

Some loops are contiguous in dst, and become loop 0, in units: bytes, or elements of 4 bits. Work
items store 16 bytes each, which may hold the end of one row of src and the start of the next. Loads
are aligned too, and then shifted. Vectors near the end of src are moved unit by unit, so that
nothing beyond it is read. Parameters:

    length                    of a row
    inverse, row_shift        2^(32 + row_shift) / length, rounded up, in 32 bits
    count1, step1, ...        extent and stride in src of the loops around a row
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from memdesc.dtypes import BYTE_BITS
from reorder.opencl.kernel.access import (
    PAIRS_NBYTES,
    SHIFTS,
    VECTOR,
    Access,
    Mode,
    address_of,
    one_element,
    store_element,
)
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
from reorder.opencl.kernel.placement import Coords, Loop, Nest, are_apart, chain_of, without

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.kernel.launch import KernelTask, Launch

# The shortest row, in units, that is copied this way, by the bits of an element. Tiles keep
# shorter rows together, and wider elements move as fast one by one.
_LEAST_ROW = {4: 2 * VECTOR, 8: VECTOR, 16: 129}

# A contiguous part of dst need not be longer than the first number of units. Below the second it
# does not pay, since its ends are written unit by unit.
_ENOUGH, _LEAST = 1 << 14, 1 << 10

# Positions are counted in 32 bits, up to the end of the last group, whose size is limited.
_MAX_GROUP = 1 << 24
_MAX_UNITS = MAX_INT - _MAX_GROUP

# the most work items of a group, and the vectors of each
_WORK_ITEMS, _STEPS = 128, 2


def try_lower(task: KernelTask) -> tuple[Launch, ...]:
    """Make the launch of a nest that copies rows; empty if elements are as fast."""
    nest, bits = task.nest, task.bits[1]
    moves_bits = task.conversion is None or task.conversion.is_move
    if not moves_bits or task.has_image or not nest.is_plain or bits not in _LEAST_ROW:
        return ()
    is_small = nest.steps * bits < task.device.min_tiled * BYTE_BITS
    if is_small or any(loop.valid != loop.extent for loop in nest.moving):
        return ()
    unit, first = min(bits, BYTE_BITS), nest.along(0)
    length = 0 if first is None else first.extent * bits // unit
    if first is not nest.along(1) or not _LEAST_ROW[bits] <= length <= _MAX_UNITS:
        return ()
    row = Loop(length, length, ((1,), (1,)))
    loops = [
        loop._replace(strides=_in_units(loop.strides, bits // unit))
        for loop in without(nest.moving, (first,))
    ]
    every = [row, *loops]
    for limit in (_ENOUGH, _MAX_UNITS):
        chained = chain_of(every, 1, limit)
        chain = [] if chained is None else [every[k] for k in chained.run]
        if prod(loop.extent for loop in chain) > _MAX_UNITS:
            chain.pop()
        others, length = without(every, chain), prod(loop.extent for loop in chain)
        # no byte may have 4-bit elements of two runs
        starts = nest.starts[1][0], *(loop.stride(1) for loop in others)
        if bits >= BYTE_BITS or not any(at % 2 for at in starts) or are_apart(others, length):
            break
    else:
        return ()
    if length < _LEAST:
        return ()
    # groups that run at the same time read adjacent rows, which share sectors of memory
    outer = sorted(others, key=lambda loop: abs(loop.stride(0)))
    nest = nest._replace(starts=_in_units(nest.starts, bits // unit))
    # the loops of a row are one loop of the kernel
    body, items = RowCopy(len(chain), unit), task.work_items(_WORK_ITEMS)
    return (_launch(nest, chain, nest.filled(outer, 2), body, items),)


def _in_units(operands: tuple[Coords, ...], count: int) -> tuple[Coords, ...]:
    """Return offsets or strides in units instead of elements."""
    return tuple((offset * count,) for (offset,) in operands)


def _launch(
    nest: Nest, chain: list[Loop], outer: tuple[Loop, ...], body: RowCopy, work_items: int
) -> Launch:
    """Make the launch of loops that are contiguous in dst, and of those around them."""
    row, length = chain[0].extent, prod(loop.extent for loop in chain)
    moved = nest._replace(loops=(*chain, *outer))
    access = Access(Mode.ELEMENTS, BYTE_BITS)
    pattern = Pattern(access, access, body, work_items)
    # one vector more if dst does not start at a vector
    count = body.vector
    copied = divided(length + count - 1, floor_log2(work_items), _STEPS, length=count)
    row_shift = ceil_log2(row) - 1
    # at least 2^31: as a number of 32 bits with a sign it is negative
    inverse = -(-(1 << WORD_BITS + row_shift) // row) - (1 << WORD_BITS)
    numbers = {"length": row, "inverse": inverse, "row_shift": row_shift}
    numbers["src_end"] = end_of_src(moved)
    for k, loop in enumerate(chain[1:], 1):
        numbers |= {f"count{k}": loop.extent, f"step{k}": loop.stride(0)}
    whole = Loop(length, length, ((0,), (0,)))
    divisions = [copied, *(divided(loop.extent) for loop in outer)]
    bound = offset_bound(moved, [loop.extent for loop in moved.loops]) + _MAX_GROUP
    nest = nest._replace(loops=(whole, *outer))
    return lower_nest(nest, pattern, divisions, numbers, bound=bound)


@dataclass(frozen=True)
class RowCopy(Body):
    """A copy in vectors aligned in dst, where `depth` loops are contiguous; the first is a row.

    Lengths and offsets are in units of this many bits.
    """

    depth: int
    unit: int

    @property
    def vector(self) -> int:
        """Units of a vector."""
        return VECTOR * BYTE_BITS // self.unit

    def param_names(self) -> list[str]:
        """Return the parameters of the rows."""
        loops = [f"{field}{k}" for k in range(1, self.depth) for field in ("count", "step")]
        return ["length", "inverse", "row_shift", *loops, "src_end"]

    def functions(self, pattern: Pattern) -> Iterator[str]:
        """Return the loads of shifted vectors, and the offset of a row."""
        yield from SHIFTS
        unit, pair = self.unit, self.vector // 2
        # units `first` to `last` are wanted: a pair of words is loaded if it has one of them
        yield "uint4 load(__global const uchar *src, index_t from, int first, int last) {"
        yield f"    const index_t mask = ~(index_t){pair - 1};"
        yield "    const index_t low = (from + first) & mask, high = (from + last - 1) & mask;"
        yield f"    const index_t middle = clamp((from & mask) + {pair}, low, high);"
        for name in ("low", "middle", "high"):
            address = address_of("src", name, unit)
            yield f"    const uint2 {name}_words = *(__global const uint2 *)({address});"
        at = f"((uint)from & {pair - 1}) * {unit}"
        yield f"    return shifted(low_words, middle_words, high_words, {at});"
        yield "}"
        yield "uint4 joined(uint4 a, uint4 b, int count)"
        yield f"{{ return first_bits(a, count * {unit}) | (b ^ first_bits(b, count * {unit})); }}"
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
            yield f"const index_t {side}_offset = {offset_at(side, indices_of(pattern)[1:])};"
        steps, count, unit = range(pattern.loops[0].steps), self.vector, self.unit
        for t in steps:
            item = f"(i0 + ({t} << p.shift0))" if t else "i0"
            yield f"const int at{t} = (int){item} * {count} - (int)(dst_offset & {count - 1});"
            yield f"int is_whole{t} = at{t} >= 0 && at{t} + {count} <= (int)p.extent0;"
            yield f"uint4 v{t} = 0;"
            yield f"if (is_whole{t}) {{"
            yield from (f"    {line}" for line in self._load_lines(t))
            yield "}"
        for t in steps:
            to = address_of("dst", f"dst_offset + at{t}", unit)
            yield f"if (is_whole{t}) *(__global uint4 *)({to}) = v{t};"
            # the ends of what is contiguous in dst, and the end of src
            last = f"min({count}, (int)p.extent0 - at{t})"
            yield f"else for (int j = max(-at{t}, 0); j < {last}; ++j) {{"
            yield f"    const uint row = {_row(f'at{t} + j')};"
            yield f"    const int column = at{t} + j - (int)row * (int)p.length;"
            yield "    const index_t from = src_offset + row_offset(row, p) + column;"
            yield f"    const uint value = {one_element('src', 'from', unit)};"
            yield f"    {store_element('dst', f'dst_offset + at{t} + j', unit, 'value')}"
            yield "}"

    def _load_lines(self, t: int) -> Iterator[str]:
        """Return the loads of a vector, from one row or two."""
        count, inside = self.vector, f"+ {PAIRS_NBYTES * BYTE_BITS // self.unit} <= p.src_end"
        yield f"const uint row = {_row(f'at{t}')};"
        yield f"const int column = at{t} - (int)row * (int)p.length;"
        yield f"const int count = min({count}, (int)p.length - column);"
        yield "const index_t from = src_offset + row_offset(row, p) + column;"
        yield f"if (from {inside}) v{t} = load(src, from, 0, count);"
        yield f"else is_whole{t} = 0;"
        if self.depth > 1:
            yield f"if (count < {count}) {{"
            yield "    const index_t next = src_offset + row_offset(row + 1, p) - count;"
            loaded = f"load(src, next, count, {count})"
            yield f"    if (next {inside}) v{t} = joined(v{t}, {loaded}, count);"
            yield f"    else is_whole{t} = 0;"
            yield "}"


def _row(at: str) -> str:
    """Return the row of a byte: a product with the inverse of the length, rounded down."""
    return f"mul_hi((uint)({at}), (uint)p.inverse) >> p.row_shift"
