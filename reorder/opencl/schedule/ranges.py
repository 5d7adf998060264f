"""The launch that finds the ranges of a tensor on a device, one for each scale."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from reorder.opencl.codegen.params import param_names
from reorder.opencl.codegen.pattern import Access, AccessKind, Pattern, RangeShape
from reorder.opencl.schedule.arguments import block_values
from reorder.opencl.schedule.lower import MAX_INT, Launch

if TYPE_CHECKING:
    from memdesc import MemoryDesc

__all__ = ["lower_ranges"]

_MAX_WORK_ITEMS, _MAX_PARTS = 256, 1024
# Work-groups that fill a device, and elements that make one worth its start.
_GROUPS, _MIN_ELEMENTS = 1024, 4096


def lower_ranges(
    desc: MemoryDesc, counts: list[int], inside: list[int], max_work_items: int
) -> tuple[Launch, int]:
    """Return the launch, and the work-groups of each scale; each writes two numbers.

    Parameters
    ----------
    desc : MemoryDesc
        Of floats.
    counts, inside : list of int
        For each dim the number of scales, and how many neighbours share one.
    max_work_items : int
        The largest work-group of the device.
    """
    layout, groups, total = desc.layout, prod(counts), prod(inside)
    blocks = [layout.axis_blocks(j) for j in range(len(layout.axes))]
    parts = max(min(_GROUPS // groups, total // _MIN_ELEMENTS, _MAX_PARTS), 1)
    shape = RangeShape(
        desc.dtype.name,
        "f64" if desc.dtype.name == "f64" else "f32",
        tuple((axis.dims, len(found)) for axis, found in zip(layout.axes, blocks, strict=True)),
    )
    values = {"offset": desc.offset0, "total": total, "parts": parts}
    for dim, size in enumerate(desc.dims):
        values |= {f"count{dim}": counts[dim], f"inside{dim}": inside[dim], f"size{dim}": size}
    for j, found in enumerate(blocks):
        values |= block_values(f"axis{j}", found)
    element = f"b{desc.dtype.bits}"
    work_items = 1 << min(max_work_items, _MAX_WORK_ITEMS).bit_length() - 1
    pattern = Pattern(
        Access(AccessKind.BUFFER, element),
        Access(AccessKind.BUFFER, "b32"),
        (0,),
        (),
        work_items,
        # of elements that a stride of 0 repeats there are more than bytes
        is_wide=max(desc.min_nbytes, total) + work_items * parts > MAX_INT,
        ranges=shape,
    )
    params = tuple(values[name] for name in param_names(pattern))
    return Launch(pattern, params, (groups, parts, 1)), parts
