"""Boxes of the padding of one descriptor, to be cleared or checked."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

from reorder.plan.nodes import Box
from reorder.plan.passes import simplify, zeros_beyond
from reorder.plan.ranges import join_blocks, split_range

if TYPE_CHECKING:
    from memdesc import MemoryDesc

__all__ = ["padding_boxes"]


@lru_cache(maxsize=4096)
def padding_boxes(desc: MemoryDesc) -> tuple[Box, ...]:
    """Return boxes of one operand that together cover the padding of a descriptor.

    Each covers the padding of one axis, with the whole padded range of the others, so boxes
    overlap where two axes are padded.
    """
    if not desc.has_padding or not desc.nelems:
        return ()
    layout = desc.layout
    blocks = [join_blocks(layout, axis.dims, axis.dims) or () for axis in layout.axes]
    # the range of each axis without padding: each box below has padding in one axis only
    whole = [
        split_range(axis.padded, axis.padded, [axis_blocks])
        for axis, axis_blocks in zip(layout.axes, blocks, strict=True)
    ]
    boxes: list[Box] = []
    for k, axis in enumerate(layout.axes):
        pieces = split_range(axis.padded, layout.axis_size(k), [blocks[k]])
        for choice in product(*whole[:k], pieces, *whole[k + 1 :]):
            offset = layout.offset0 + sum(piece.offsets[0] for piece in choice)
            nodes = tuple(node for piece in choice for node in piece.nodes)
            boxes += zeros_beyond(Box((offset,), nodes), [node.valid for node in nodes])
    return simplify(tuple(boxes))
