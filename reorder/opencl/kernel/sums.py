"""The sums behind int8 weights, their compensation: one work-group for each sum.

They are computed after the weights are written. Parameters, for dim d and block b: start (the first
byte of the sums), offset (of the first weight), factor, count (weights in a sum), size{d},
padded{d}, dim{d}_step{b}, dim{d}_extent{b}, dim{d}_stride{b}, and for the dims of the mask
sum{d}_step{b} and so on, in the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from memdesc.extra import FACTORS, compensation_layout
from reorder.opencl.kernel.access import Access, Mode
from reorder.opencl.kernel.launch import Body, Pattern, floor_log2, make_launch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memdesc import Block, MemoryDesc
    from reorder.opencl.kernel.launch import Launch

_MAX_WORK_ITEMS = 128


def lower_sums(desc: MemoryDesc, max_work_items: int) -> tuple[Launch, ...]:
    """Make a launch for each compensation of a descriptor."""
    return tuple(
        _sum_launch(desc, name, start, min(max_work_items, _MAX_WORK_ITEMS))
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
        values |= _block_params(f"dim{dim}", digits)
    for dim, digits in zip(kept, summed, strict=True):
        values |= _block_params(f"sum{dim}", digits)
    pattern = Pattern(
        Access(Mode.NONE, 8),
        Access(Mode.ELEMENTS, 8),
        body,
        1 << floor_log2(max_work_items),
    )
    groups = prod(desc.padded_dims[dim] for dim in kept)
    return make_launch(pattern, values, (groups, 1, 1), desc.nbytes)._replace(is_later=True)


def _block_params(prefix: str, blocks: tuple[Block, ...]) -> dict[str, int]:
    """Return the steps, extents and strides of blocks by name, the outermost block first."""
    return {
        f"{prefix}_{field}{b}": getattr(block, field)
        for b, block in enumerate(sorted(blocks, key=lambda block: -block.step))
        for field in ("step", "extent", "stride")
    }


def _block_offset(axis: str, params: str, blocks: int) -> str:
    """Return the offset of an index of an axis; its outermost block, the first, has no modulus."""
    digits = [
        f"{axis} / {params}_step{b}{f' % {params}_extent{b}' if b else ''} * {params}_stride{b}"
        for b in range(blocks)
    ]
    return " + ".join(digits)


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
            yield f"offset += {_block_offset(f'i{dim}', f'p.dim{dim}', self.blocks[dim])};"
            yield f"at += {_block_offset(f'i{dim}', f'p.sum{dim}', kept[dim])};"
        yield "uint sum = 0;"
        yield "if (is_data) {"
        yield f"for (index_t k = item; k < p.count; k += {pattern.work_items}) {{"
        yield "index_t rest = k, from = offset;"
        for dim in reversed(range(len(self.blocks))):
            if dim not in kept:
                yield f"const index_t i{dim} = rest % p.size{dim}; rest /= p.size{dim};"
                yield f"from += {_block_offset(f'i{dim}', f'p.dim{dim}', self.blocks[dim])};"
        yield "sum += (uint)(int)as_char(dst[from]);"
        yield "} }"
        yield "parts[item] = sum;"
        width = pattern.work_items // 2
        while width:
            yield "barrier(CLK_LOCAL_MEM_FENCE);"
            yield f"if (item < {width}) parts[item] += parts[item + {width}];"
            width //= 2
        yield "if (item == 0) ((__global uint *)(dst + p.start))[at] = parts[0] * (uint)p.factor;"
