"""Families of kernels that reduce a tensor to few numbers.

Sums: the compensation after int8 weights, one work-group for each sum, after the weights are
written. Parameters, for dim d and block b: start (the first byte of the sums), offset (of the first
weight), factor, count (weights in a sum), size{d}, padded{d}, dim{d}_step{b}, dim{d}_extent{b},
dim{d}_stride{b}, and for the dims of the mask sum{d}_step{b} and so on, in the sums.

Ranges: the lowest and the highest value of the elements of each scale, and of 0. A work-group takes
some of the elements that share a scale, and writes two numbers. If an element is not finite, the
highest value is infinite. Parameters, for dim d, axis j and block b: offset, total (elements
that share a scale), parts (work-groups for these), count{d} (scales along a dim), inside{d}
(adjacent elements that share one), size{d}, and of the blocks axis{j}_step{b}, axis{j}_extent{b},
axis{j}_stride{b}.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from memdesc.extra import FACTORS, compensation_layout
from reorder.opencl.kernel.access import Access, Mode
from reorder.opencl.kernel.formula import DIALECT, decoder_of
from reorder.opencl.kernel.launch import Body, Pattern, block_params, floor_log2, make_launch
from reorder.opencl.kernel.statements import block_offset
from reorder.values.codecs import magnitude_of
from reorder.values.expressions import name, number, select
from reorder.values.formats import FLOATS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memdesc import MemoryDesc
    from reorder.opencl.kernel.launch import Launch

_MAX_SUM_ITEMS, _MAX_RANGE_ITEMS, _MAX_PARTS = 128, 256, 1024

# Work-groups that fill a device, and the least elements of one.
_GROUPS, _MIN_ELEMENTS = 1024, 4096


def lower_sums(desc: MemoryDesc, max_work_items: int) -> tuple[Launch, ...]:
    """Make a launch for each compensation of a descriptor."""
    return tuple(
        _sum_launch(desc, name, start, min(max_work_items, _MAX_SUM_ITEMS))
        for name, (start, _) in desc.compensation_spans.items()
    )


def _sum_launch(desc: MemoryDesc, name: str, start: int, max_work_items: int) -> Launch:
    assert desc.extra is not None  # noqa: S101 - for the type checker: there are spans
    mask = desc.extra.masks[name]
    layout, sums = desc.layout, compensation_layout(desc.layout, mask)
    kept = [dim for dim in range(desc.ndims) if mask >> dim & 1]
    blocks = [layout.axis_blocks(dim) for dim in range(desc.ndims)]
    summed = [sums.axis_blocks(k) for k in range(len(kept))]
    body = Sums(
        tuple(map(len, blocks)),
        tuple((dim, len(digits)) for dim, digits in zip(kept, summed, strict=True)),
    )
    values = {"start": start, "offset": desc.offset0, "factor": FACTORS[name]}
    values["count"] = prod(size for dim, size in enumerate(desc.dims) if dim not in kept)
    for dim, digits in enumerate(blocks):
        values |= {f"size{dim}": desc.dims[dim], f"padded{dim}": desc.padded_dims[dim]}
        values |= block_params(f"dim{dim}", digits)
    for dim, digits in zip(kept, summed, strict=True):
        values |= block_params(f"sum{dim}", digits)
    pattern = Pattern(
        Access(Mode.NONE, 8),
        Access(Mode.ELEMENTS, 8),
        body,
        1 << floor_log2(max_work_items),
    )
    groups = prod(desc.padded_dims[dim] for dim in kept)
    return make_launch(pattern, values, (groups, 1, 1), desc.nbytes)._replace(is_later=True)


def lower_ranges(
    desc: MemoryDesc, counts: list[int], inside: list[int], max_work_items: int
) -> tuple[Launch, int]:
    """Return the launch, and the work-groups of each scale; each writes two numbers.

    For each dim, `counts` has the number of scales, and `inside` how many elements share one.
    """
    layout, groups, total = desc.layout, prod(counts), prod(inside)
    blocks = [layout.axis_blocks(j) for j in range(len(layout.axes))]
    parts = max(min(_GROUPS // groups, total // _MIN_ELEMENTS, _MAX_PARTS), 1)
    body = Ranges(
        desc.dtype.name,
        "f64" if desc.dtype.name == "f64" else "f32",
        tuple((axis.dims, len(digits)) for axis, digits in zip(layout.axes, blocks, strict=True)),
    )
    values = {"offset": desc.offset0, "total": total, "parts": parts}
    for dim, size in enumerate(desc.dims):
        values |= {f"count{dim}": counts[dim], f"inside{dim}": inside[dim], f"size{dim}": size}
    for j, digits in enumerate(blocks):
        values |= block_params(f"axis{j}", digits)
    work_items = 1 << floor_log2(min(max_work_items, _MAX_RANGE_ITEMS))
    pattern = Pattern(
        Access(Mode.ELEMENTS, desc.dtype.bits), Access(Mode.ELEMENTS, 32), body, work_items
    )
    # a stride of 0 repeats elements, so they may be more than the bytes
    bound = max(desc.min_nbytes, total) + work_items * parts
    return make_launch(pattern, values, (groups, parts, 1), bound), parts


@dataclass(frozen=True)
class Sums(Body):
    """The structure of a compensation: the blocks of each dim, and of the dims of its mask."""

    blocks: tuple[int, ...]
    sums: tuple[tuple[int, int], ...]

    def lines(self, pattern: Pattern) -> Iterator[str]:
        """Return the body: each work item sums some weights, then the group adds up their sums."""
        kept = dict(self.sums)
        yield f"__local uint parts[{pattern.work_items}];"
        yield "const uint item = get_local_id(0);"
        yield "index_t rest = get_group_id(0), offset = p.offset, at = 0;"
        yield "int is_data = 1;"
        for dim in sorted(kept, reverse=True):
            yield f"const index_t i{dim} = rest % p.padded{dim}; rest /= p.padded{dim};"
            yield f"is_data &= i{dim} < p.size{dim};"
            yield f"offset += {block_offset(f'i{dim}', f'p.dim{dim}', self.blocks[dim])};"
            yield f"at += {block_offset(f'i{dim}', f'p.sum{dim}', kept[dim])};"
        yield "uint sum = 0;"
        yield "if (is_data) {"
        yield f"for (index_t k = item; k < p.count; k += {pattern.work_items}) {{"
        yield "index_t rest = k, from = offset;"
        for dim in reversed(range(len(self.blocks))):
            if dim not in kept:
                yield f"const index_t i{dim} = rest % p.size{dim}; rest /= p.size{dim};"
                yield f"from += {block_offset(f'i{dim}', f'p.dim{dim}', self.blocks[dim])};"
        yield "sum += (uint)(int)as_char(dst[from]);"
        yield "} }"
        yield "parts[item] = sum;"
        yield from _reduced(pattern, "if (item < WIDTH) parts[item] += parts[item + WIDTH];")
        yield "if (item == 0) ((__global uint *)(dst + p.start))[at] = parts[0] * (uint)p.factor;"


@dataclass(frozen=True)
class Ranges(Body):
    """The structure of a search for ranges: the type, the working type, axes and their blocks."""

    dtype: str
    work: str
    axes: tuple[tuple[tuple[int, ...], int], ...]

    def functions(self, pattern: Pattern) -> Iterator[str]:  # noqa: ARG002 - nothing converts
        """Return the decoder of an element."""
        yield ""
        yield from decoder_of(self.dtype, self.work)

    def lines(self, pattern: Pattern) -> Iterator[str]:
        """Return the body: each work item compares some elements, then the group their results."""
        real, value = DIALECT.types[self.work], name("value", self.work)
        dims = range(sum(len(axis) for axis, _ in self.axes))
        yield f"__local {real} lows[{pattern.work_items}], highs[{pattern.work_items}];"
        yield "const uint item = get_local_id(0);"
        yield "index_t scale = get_group_id(0);"
        for dim in reversed(dims):
            yield f"const index_t g{dim} = scale % p.count{dim}; scale /= p.count{dim};"
        yield f"{real} low = 0, high = 0;"
        yield f"const index_t first = (index_t)get_group_id(1) * {pattern.work_items} + item;"
        yield f"for (index_t k = first; k < p.total; k += {pattern.work_items} * p.parts) {{"
        yield "index_t rest = k, at = p.offset;"
        for dim in reversed(dims):
            inside = f"p.inside{dim}"
            yield f"const index_t i{dim} = g{dim} * {inside} + rest % {inside}; rest /= {inside};"
        for j, (axis, blocks) in enumerate(self.axes):
            index = "0"
            for dim in axis:
                index = f"i{dim}" if index == "0" else f"({index} * p.size{dim} + i{dim})"
            yield f"at += {block_offset(index, f'p.axis{j}', blocks)};"
        yield f"{real} value = decode(src[at]);"
        infinity = FLOATS[self.work].overflow
        finite = select(
            magnitude_of(value) < infinity,
            value,
            number(infinity, value.bits().kind).value_of_bits(),
        )
        yield f"value = {DIALECT.text(finite)};"
        yield "low = fmin(low, value); high = fmax(high, value);"
        yield "}"
        yield "lows[item] = low; highs[item] = high;"
        yield from _reduced(
            pattern,
            "if (item < WIDTH) {",
            "lows[item] = fmin(lows[item], lows[item + WIDTH]);",
            "highs[item] = fmax(highs[item], highs[item + WIDTH]); }",
        )
        yield "if (item == 0) {"
        to = f"((__global {real} *)dst)"
        group = "(index_t)get_group_id(0) * p.parts + (index_t)get_group_id(1)"
        yield f"const index_t n = 2 * ({group});"
        yield f"{to}[n] = lows[0]; {to}[n + 1] = highs[0]; }}"


def _reduced(pattern: Pattern, *lines: str) -> Iterator[str]:
    """Return the reduction of a work-group's results to the first one, in halves of WIDTH."""
    width = pattern.work_items // 2
    while width:
        yield "barrier(CLK_LOCAL_MEM_FENCE);"
        yield from (line.replace("WIDTH", str(width)) for line in lines)
        width //= 2
