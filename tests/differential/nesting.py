"""oneDNN's rule for strides, which refuses more than overlap."""

from collections.abc import Iterable
from math import prod
from typing import Any

from memdesc import MemoryDesc, memory_desc
from memdesc.errors import OverlapError
from memdesc.int64 import INT64_MAX
from memdesc.layout import Layout, dim_name


def strict_desc(dims: Iterable[int], dtype: object, *layout: Any, **strides: Any) -> MemoryDesc:
    """Describe memory; refuse strides that oneDNN refuses."""
    desc = memory_desc(dims, dtype, *layout, **strides)
    check_nesting(desc.layout, desc.dtype.bits)
    return desc


def check_nesting(layout: Layout, bits: int) -> None:
    """Refuse strides that oneDNN refuses: each must cover the ones inside it.

    Dims are visited from the smallest stride outwards; of dims with equal strides, those with a
    single block come first. `covered` is the number of elements that the dims so far take.
    Source: oneDNN 3.13, `memory_desc.cpp`. Broadcasts pass. Some layouts without overlap are
    refused, such as dims (2, 2, 2) with strides (3, 1, 5).
    """
    if not all(layout.padded_dims()):
        return
    tile = covered = prod(block.extent for block in layout.tile())
    outer_blocks = (layout.outer(k) for k in range(layout.ndims))
    for outer in sorted(outer_blocks, key=lambda outer: (outer.stride, outer.extent)):
        stride = outer.stride
        if stride == 0 or layout.axes[outer.axis].padded == 1:
            continue
        name = dim_name(outer.axis)
        if stride < covered:
            msg = f"stride {stride} of {name} does not cover the {covered} elements inside it"
            raise OverlapError(msg)
        if bits == 4 and stride != 1 and stride % 2:
            msg = (
                f"stride {stride} of {name} is odd, so rows of 4-bit elements "
                "would start inside a byte"
            )
            raise OverlapError(msg)
        if stride * tile * outer.extent > INT64_MAX:
            msg = f"stride {stride} of {name} times its extent exceeds the range of int64"
            raise OverlapError(msg)
        covered = stride * outer.extent
