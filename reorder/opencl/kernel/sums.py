"""The sums behind int8 weights, their compensation: one work-group for each sum.

They are computed after the weights, and the zeros of their padding, are written. There is an
indirection table for each dim, with the offsets of its indices in the weights, and then one for
each dim of the mask, in the sums. Parameters, for dim d: start (the first byte of the sums), offset
(of the first weight), factor, count (weights in a sum), size{d}, padded{d}.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from memdesc.layout import block_offset
from reorder.opencl.kernel.access import Access, Mode
from reorder.opencl.kernel.launch import Body, Pattern, floor_log2, make_launch
from reorder.values.compensation import FACTORS, compensation_layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memdesc import MemoryDesc
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
    sums = compensation_layout(desc.layout, mask)
    kept = tuple(dim for dim in range(desc.ndims) if mask >> dim & 1)
    values = {"start": start, "offset": desc.offset0, "factor": FACTORS[name]}
    values["count"] = prod(size for dim, size in enumerate(desc.dims) if dim not in kept)
    for dim, (size, padded) in enumerate(zip(desc.dims, desc.padded_dims, strict=True)):
        values |= {f"size{dim}": size, f"padded{dim}": padded}
    axes = [(dim, desc.layout.axis_blocks(dim)) for dim in range(desc.ndims)]
    axes += [(dim, sums.axis_blocks(k)) for k, dim in enumerate(kept)]
    tables = [block_offset(blocks, np.arange(desc.padded_dims[dim])) for dim, blocks in axes]
    pattern = Pattern(
        Access(Mode.NONE, 8),
        Access(Mode.ELEMENTS, 8),
        Sums(desc.ndims, kept),
        1 << floor_log2(max_work_items),
        indirect=len(tables),
    )
    groups = prod(desc.padded_dims[dim] for dim in kept)
    return make_launch(pattern, values, (groups, 1, 1), desc.nbytes, tables)


@dataclass(frozen=True)
class Sums(Body):
    """The structure of a compensation: how many dims the weights have, and those of its mask."""

    ndims: int
    kept: tuple[int, ...]

    def lines(self, pattern: Pattern) -> Iterator[str]:
        """Return the body: each work item sums some weights, then the group adds up their sums."""
        yield f"__local uint parts[{pattern.work_items}];"
        yield "const uint item = get_local_id(0);"
        yield "index_t rest = get_group_id(0), offset = p.offset, at = 0;"
        for k, dim in reversed(list(enumerate(self.kept, self.ndims))):
            yield f"const index_t i{dim} = rest % p.padded{dim}; rest /= p.padded{dim};"
            yield f"offset += table{dim}[i{dim}]; at += table{k}[i{dim}];"
        yield "uint sum = 0;"
        yield f"for (index_t k = item; k < p.count; k += {pattern.work_items}) {{"
        yield "index_t rest = k, from = offset;"
        for dim in reversed(range(self.ndims)):
            if dim not in self.kept:
                yield f"from += table{dim}[rest % p.size{dim}]; rest /= p.size{dim};"
        yield "sum += (uint)(int)as_char(dst[from]);"
        yield "}"
        yield "parts[item] = sum;"
        width = pattern.work_items // 2
        while width:
            yield "barrier(CLK_LOCAL_MEM_FENCE);"
            yield f"if (item < {width}) parts[item] += parts[item + {width}];"
            width //= 2
        yield "if (item == 0) ((__global uint *)(dst + p.start))[at] = parts[0] * (uint)p.factor;"
