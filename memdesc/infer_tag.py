"""Layout to tag: the one that a dense layout of the same order has, and whether a tag is that of a layout."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memdesc.build import layout_by_tag
from memdesc.errors import MemdescError
from memdesc.layout import memory_order
from memdesc.tags import Digit, FormatTag

if TYPE_CHECKING:
    from memdesc.layout import Layout

__all__ = ["dense_tag", "is_laid_out_by"]


def is_laid_out_by(layout: Layout, tag: FormatTag) -> bool:
    """Whether a tag lays the dims of a layout out like it."""
    if len(tag.digits) != len(layout.blocks) or tag.ndims != layout.ndims:
        return False
    try:
        return layout_by_tag(tag, layout.dims).key() == layout.key()
    except MemdescError:  # another tag can pad these dims beyond int64
        return False


def dense_tag(layout: Layout) -> FormatTag:
    """Return the tag that a dense layout of the same order has."""
    axes = layout.axes
    tile = prod(block.extent for block in layout.inner())
    # the stride of a unit dim is anything, even one that lies inside the tile
    order = sorted(
        layout.blocks,
        key=lambda block: memory_order(
            block._replace(stride=max(block.stride, tile))
            if block.extent == axes[block.axis].padded == 1
            else block
        ),
    )
    outer = {layout.outer(k) for k in range(len(axes))}
    digits = [
        Digit(block.axis, block.step, 0 if block in outer else block.extent) for block in order
    ]
    whole = [layout.outer(k).step for k in range(len(axes))]
    align = tuple(
        1 if axis.padded == -(-layout.axis_size(k) // whole[k]) * whole[k] else axis.padded or 1
        for k, axis in enumerate(axes)
    )
    return FormatTag(tuple(axis.dims for axis in axes), tuple(digits), align)
