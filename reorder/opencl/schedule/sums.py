"""Launches that write the compensation behind int8 weights, once the weights are there."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memdesc.extra import FACTORS, compensation_layout
from reorder.opencl.codegen.params import param_names
from reorder.opencl.codegen.pattern import Access, AccessKind, Pattern, SumShape
from reorder.opencl.schedule.arguments import block_values
from reorder.opencl.schedule.lower import MAX_INT, Launch

if TYPE_CHECKING:
    from memdesc import MemoryDesc

__all__ = ["lower_sums"]

_MAX_WORK_ITEMS = 128


def lower_sums(desc: MemoryDesc, max_work_items: int) -> tuple[Launch, ...]:
    """Make a launch for each compensation of a descriptor; none without one."""
    return tuple(
        _launch(desc, name, start, min(max_work_items, _MAX_WORK_ITEMS))
        for name, (start, _) in desc.compensation_spans.items()
    )


def _launch(desc: MemoryDesc, name: str, start: int, max_work_items: int) -> Launch:
    assert desc.extra is not None  # noqa: S101 - for the type checker: there are spans
    mask = desc.extra.masks[name]
    layout, sums = desc.layout, compensation_layout(desc.layout, mask)
    kept = [dim for dim in range(desc.ndims) if mask >> dim & 1]
    blocks = [layout.axis_blocks(dim) for dim in range(desc.ndims)]
    summed = [sums.axis_blocks(k) for k in range(len(kept))]
    shape = SumShape(
        tuple(map(len, blocks)),
        tuple((dim, len(found)) for dim, found in zip(kept, summed, strict=True)),
    )
    values = {"start": start, "offset": desc.offset0, "factor": FACTORS[name]}
    values["count"] = prod(size for dim, size in enumerate(desc.dims) if dim not in kept)
    for dim, found in enumerate(blocks):
        values |= {f"size{dim}": desc.dims[dim], f"padded{dim}": desc.padded_dims[dim]}
        values |= block_values(f"dim{dim}", found)
    for dim, found in zip(kept, summed, strict=True):
        values |= block_values(f"sum{dim}", found)
    pattern = Pattern(
        Access(AccessKind.NONE, "b8"),
        Access(AccessKind.BUFFER, "b8"),
        (0,),
        (),
        1 << max_work_items.bit_length() - 1,
        is_wide=desc.nbytes > MAX_INT,
        sums=shape,
    )
    groups = prod(desc.padded_dims[dim] for dim in kept)
    return Launch(pattern, tuple(values[one] for one in param_names(pattern)), (groups, 1, 1))
