"""Layouts without blocks: what systems that know only strides can express."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc.exchange.system import cannot
from memdesc.layout import dim_name

if TYPE_CHECKING:
    from memdesc.desc import MemoryDesc

__all__ = ["order_of", "strides_of"]


def strides_of(system: str, desc: MemoryDesc) -> tuple[int, ...]:
    """Return the stride of each dim, in elements; refuse blocks, fused dims and padding."""
    layout = desc.layout
    for k, axis in enumerate(layout.axes):
        blocks = layout.axis_blocks(k)
        name = dim_name(axis.dims[0])
        if len(axis.dims) > 1:
            reason = f"dims {', '.join(map(dim_name, axis.dims))} are fused"
        elif len(blocks) > 1:
            sizes = " of ".join(str(block.extent) for block in blocks[1:])
            reason = f"{name} is blocked, by {sizes}"
        elif axis.padded != layout.axis_size(k):
            reason = f"{name} of size {layout.axis_size(k)} is padded to {axis.padded}"
        else:
            continue
        raise cannot(system, desc, f"{reason}, and it has one stride for each dim")
    return layout.strides()


def order_of(desc: MemoryDesc, strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dims from the outermost to the innermost; equal strides by size, then in order."""
    return tuple(sorted(range(desc.ndims), key=lambda dim: (-strides[dim], -desc.dims[dim], dim)))
