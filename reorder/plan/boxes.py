"""Boxes from layouts: the padded space of dst, split so that every operand has constant strides.

Dims are divided into the smallest groups such that every axis of every operand is within one
group. Each group is one range of indices, which `reorder.plan.ranges` splits into boxes; the boxes
of a plan are the product of those of all groups. If that makes too many, or if the dims of a group
are fused in different ways, the group becomes an indirect loop.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from reorder.plan.nodes import Box, IndirectLoop
from reorder.plan.passes import simplify, zeros_beyond
from reorder.plan.ranges import blocks_over, join_blocks, split_range

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from reorder.plan.ranges import OperandLayout

# A plan with more boxes than this is slower than one with an indirect loop.
_MAX_BOXES = 64


def boxes_of(*operands: OperandLayout) -> tuple[Box, ...]:
    """Return boxes over the padded space of dst, which is the second operand."""
    groups = _groups(operands)
    boxes = [_boxes_of_group(operands, dims) for dims in groups]
    # if there are too many, the group with the most boxes becomes an indirect loop
    while prod(map(len, boxes)) > _MAX_BOXES:
        k = max(range(len(groups)), key=lambda k: len(boxes[k]))
        boxes[k] = [_indirect_loop(operands, groups[k])]
    start = tuple(operand.offset0 for operand in operands)
    return tuple(_nested(start, choice) for choice in product(*boxes))


def _nested(start: tuple[int, ...], boxes: tuple[Box, ...]) -> Box:
    """Return the loops of boxes over different dims as one nest."""
    return Box(
        tuple(map(sum, zip(start, *(box.offsets for box in boxes), strict=True))),
        tuple(node for box in boxes for node in box.nodes),
        tuple(loop for box in boxes for loop in box.indirect),
    )


def _groups(operands: tuple[OperandLayout, ...]) -> list[tuple[int, ...]]:
    """Divide the dims into the smallest groups such that every axis is within one group."""
    groups = [{dim} for dim in range(len(operands[1].dims))]
    for axis in (axis for operand in operands for axis in operand.axes):
        if len(axis.dims) > 1:
            touched = [group for group in groups if not group.isdisjoint(axis.dims)]
            apart = [group for group in groups if group.isdisjoint(axis.dims)]
            groups = [*apart, set().union(*touched)]
    return [tuple(sorted(group)) for group in groups]


def _boxes_of_group(operands: tuple[OperandLayout, ...], dims: tuple[int, ...]) -> list[Box]:
    """Split the padded range of a group of dims into boxes, or make it an indirect loop."""
    src, dst, *_ = operands
    # one index for the group, in the order of the axis that covers it
    order = next(
        (
            axis.dims
            for axis in (*dst.axes, *src.axes)
            if len(axis.dims) == len(dims) and axis.dims[0] in dims
        ),
        None,
    )
    if order is None or not _is_padded_at_end(dst, dims, order):
        return [_indirect_loop(operands, dims)]
    joined = []
    for operand in operands:
        blocks = join_blocks(operand, dims, order)
        if blocks is None:
            return [_indirect_loop(operands, dims)]
        joined.append(blocks)
    padded = prod(axis.padded for axis, _ in blocks_over(dst, dims))
    size = prod(dst.dims[dim] for dim in dims)
    return split_range(padded, size, joined, _MAX_BOXES) or [_indirect_loop(operands, dims)]


def _is_padded_at_end(dst: OperandLayout, dims: tuple[int, ...], order: tuple[int, ...]) -> bool:
    """Whether dst pads the joint index of a group at its end only."""
    return all(
        axis.dims[0] == order[0] or axis.padded == prod(dst.dims[dim] for dim in axis.dims)
        for axis, _ in blocks_over(dst, dims)
    )


def _indirect_loop(operands: tuple[OperandLayout, ...], dims: tuple[int, ...]) -> Box:
    """Return a group of dims as one loop over indirection tables."""
    src, dst, *params = (blocks_over(operand, dims) for operand in operands)
    sizes = tuple((dim, operands[1].dims[dim]) for dim in dims)
    return Box((0,) * len(operands), (), (IndirectLoop(sizes, src, dst, tuple(params)),))


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
    # the range of each axis as if all of it held data: a box below has padding in one axis only
    whole = [
        split_range(axis.padded, axis.padded, [axis_blocks])
        for axis, axis_blocks in zip(layout.axes, blocks, strict=True)
    ]
    boxes: list[Box] = []
    for k, axis in enumerate(layout.axes):
        padded = split_range(axis.padded, layout.axis_size(k), [blocks[k]])
        for choice in product(*whole[:k], padded, *whole[k + 1 :]):
            box = _nested((layout.offset0,), choice)
            boxes += zeros_beyond(box, [node.valid for node in box.nodes])
    return simplify(tuple(boxes))
