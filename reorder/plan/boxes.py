"""Boxes from layouts: the padded space of dst, split so that every operand has constant strides.

Dims are divided into the smallest groups such that every axis of every operand is within one
group. Each group is one padded range of indices, which is split into boxes; the boxes of a plan are
the product of those of all groups. If that makes too many, the group with the most boxes becomes an
indirect loop. So does a group whose dims are fused in different ways.

A range is split into boxes in which every operand has constant strides: the block steps of all
operands are merged into one chain of divisors, which splits the range into whole blocks and a tail,
recursively. If some steps conflict, which means that neither divides the other, the range is split
wherever a block of any operand ends; these ends repeat with the least common multiple.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from itertools import pairwise, product
from math import lcm, prod
from typing import TYPE_CHECKING

from memdesc.layout import Block, block_offset
from reorder.plan.nodes import Box, IndirectLoop, Node
from reorder.plan.passes import simplify, zeros_beyond
from reorder.plan.swizzle import TooManyBoxesError, granule_boxes, swizzled_boxes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memdesc import Axis, Layout, MemoryDesc
    from reorder.values.binding import Operand

    OperandLayout = Layout | Operand

# A plan with more boxes than this is slower than one with an indirect loop.
_MAX_BOXES = 64


def planned_boxes(src: MemoryDesc, dst: MemoryDesc, varying: Iterable[Operand]) -> tuple[Box, ...]:
    """Return the boxes of a plan between two descriptors."""
    return simplify(boxes_of(src.layout, dst.layout, *varying)) if dst.nelems else ()


def boxes_of(src: Layout, dst: Layout, *params: Operand) -> tuple[Box, ...]:
    """Return boxes over the padded space of dst."""
    bases: tuple[OperandLayout, ...] = (src.base(), dst.base(), *params)
    boxes = _boxes_of_bases(*bases)
    if not (src.xor or dst.xor):
        return boxes
    for apply in (swizzled_boxes, granule_boxes):
        with suppress(TooManyBoxesError):
            return apply(boxes, (src.xor, dst.xor))
    # all dims as one indirect loop, whose tables have the offsets after the XOR
    (loop,) = _indirect_loop(bases, tuple(range(len(dst.dims)))).indirect
    xor = (src.offset0, src.xor), (dst.offset0, dst.xor)
    return (Box((0,) * len(bases), (), (loop._replace(xor=xor),)),)


def _boxes_of_bases(*operands: OperandLayout) -> tuple[Box, ...]:
    groups = _groups(operands)
    boxes = []
    for dims in groups:
        ranges = _ranges_of(operands, dims)
        split = _split_range(*ranges, _MAX_BOXES) if ranges else []
        boxes.append(split or [_indirect_loop(operands, dims)])
    # if there are too many boxes, the group with the most becomes an indirect loop
    while prod(map(len, boxes)) > _MAX_BOXES:
        k = max(range(len(groups)), key=lambda k: len(boxes[k]))
        boxes[k] = [_indirect_loop(operands, groups[k])]
    start = tuple(operand.offset0 for operand in operands)
    return tuple(_nested(start, choice) for choice in product(*boxes))


def _nested(start: tuple[int, ...], boxes: tuple[Box, ...]) -> Box:
    """Combine boxes over different dims into one nest."""
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


def whole_box(src: Layout, dst: Layout, *params: Operand) -> tuple[Box, tuple[int, ...]] | None:
    """Return one box over the padded space of dst, and sizes; None if one is not enough.

    For each group of dims that dst pads, the box has one more operand: the index of an element in
    the group, which holds data if it is below the size of the group. dst has elements.

    Examples
    --------
    >>> import memdesc
    >>> src, dst = (memdesc.memory_desc((3, 2), "f32", tag).layout for tag in ("ab", "Ab2a"))
    >>> box, sizes = whole_box(src, dst)
    >>> print(box, sizes)
    @0:0:0 2:4:4:2 2:1:2:0 2:2:1:1 (3,)
    """
    operands: tuple[OperandLayout, ...] = (src.base(), dst.base(), *params)
    groups = [_ranges_of(operands, dims) for dims in _groups(operands)]
    ranges = [group for group in groups if group is not None]
    if src.xor or dst.xor or len(ranges) < len(groups):
        return None
    sizes = tuple(size for padded, size, _ in ranges if size < padded)
    boxes: list[Box] = []
    for padded, size, joined in ranges:
        moves = [size < padded and k == len(boxes) for k in range(len(ranges))]
        index = [
            (Block(0, 1, padded, int(move)),)
            for move, (length, count, _) in zip(moves, ranges, strict=True)
            if count < length
        ]
        split = _split_range(padded, padded, [*joined, *index])
        if len(split) != 1:
            return None
        boxes += split
    start = (*(operand.offset0 for operand in operands), *(0 for _ in sizes))
    return simplify((_nested(start, tuple(boxes)),))[0], sizes


def _ranges_of(
    operands: tuple[OperandLayout, ...], dims: tuple[int, ...]
) -> tuple[int, int, list[tuple[Block, ...]]] | None:
    """Return a group's padded length, size, and each operand's blocks; None without an order."""
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
    over_dst = [axis for axis, _ in _blocks_over(dst, dims)]
    if order is None or any(
        axis.dims[0] != order[0] and axis.padded != prod(dst.dims[dim] for dim in axis.dims)
        for axis in over_dst
    ):
        return None  # or dst pads the joint index elsewhere than at its end
    joined = []
    for operand in operands:
        blocks = _join_blocks(operand, dims, order)
        if blocks is None:
            return None
        joined.append(blocks)
    padded = prod(axis.padded for axis in over_dst)
    size = prod(dst.dims[dim] for dim in dims)
    return padded, size, joined


def _indirect_loop(operands: tuple[OperandLayout, ...], dims: tuple[int, ...]) -> Box:
    """Return a group of dims as one loop over indirection tables."""
    src, dst, *params = (_blocks_over(operand, dims) for operand in operands)
    sizes = tuple((dim, operands[1].dims[dim]) for dim in dims)
    return Box((0,) * len(operands), (), (IndirectLoop(sizes, src, dst, tuple(params)),))


# A loop before its strides are known: the step of its block, its extent, its valid extent.
_Loop = tuple[int, int, int]


def _blocks_over(
    operand: OperandLayout, dims: tuple[int, ...]
) -> tuple[tuple[Axis, tuple[Block, ...]], ...]:
    """Return the axes of an operand over some dims, each with its blocks."""
    return tuple(
        (axis, operand.axis_blocks(k))
        for k, axis in enumerate(operand.axes)
        if axis.dims[0] in dims
    )


def _join_blocks(
    operand: OperandLayout, dims: tuple[int, ...], order: tuple[int, ...]
) -> tuple[Block, ...] | None:
    """Return an operand's blocks over the row-major index of the dims in `order`.

    Blocks that are equivalent to one block are merged. None if the dims of an axis are not
    contiguous in that order, or if an axis other than the first is padded.
    """
    joined: list[Block] = []
    for axis, blocks in _blocks_over(operand, dims):
        first = order.index(axis.dims[0])
        after = first + len(axis.dims)
        if order[first:after] != axis.dims:
            return None
        size = prod(operand.dims[dim] for dim in axis.dims)
        inside = prod(operand.dims[dim] for dim in order[after:])
        count = -(-size // blocks[0].step)
        if first and blocks[0].step * count != size:
            return None
        joined += [
            block._replace(step=block.step * inside, extent=block.extent if k else count)
            for k, block in enumerate(blocks)
        ]
    # among equal steps, the block of the first dim comes first, since padding extends it
    joined.sort(key=lambda block: (-block.step, operand.axes[block.axis].dims[0] != order[0]))
    merged = [joined[0]]
    for block in joined[1:]:
        outer = merged[-1]
        if block.extent == 1:
            continue
        if outer.extent == 1 and outer.step == block.step:
            merged[-1] = block
        elif (
            outer.stride == block.extent * block.stride and outer.step == block.step * block.extent
        ):
            merged[-1] = block._replace(extent=outer.extent * block.extent)
        else:
            merged.append(block)
    return tuple(merged)


def _split_range(
    padded: int, size: int, operands: list[tuple[Block, ...]], most: int | None = None
) -> list[Box]:
    """Split a padded range into boxes that loop over the blocks of all operands.

    `padded` is the length of the range, `size` how many of its indices hold data; `operands` has
    the blocks of each operand, from `_join_blocks`. The result is empty if steps conflict and need
    more than `most` boxes (None: no limit), or if the largest step is not one of those that
    conflict.
    """
    chain = sorted({block.step for blocks in operands for block in blocks}, reverse=True)
    conflicting = [
        step for step in chain if any(max(step, other) % min(step, other) for other in chain)
    ]
    if not conflicting:
        nests = _split(chain, 0, padded, size)
    elif chain[0] > conflicting[0] or (
        most and sum(lcm(*conflicting) // step for step in conflicting) > most
    ):
        return []
    else:
        inner = [step for step in chain if step < conflicting[-1]]
        nests = _split_periods(conflicting, inner, padded, size)
        chain = [lcm(*conflicting), *inner]
    # the stride of a loop is the offset of the index that equals its step
    strides = {step: tuple(block_offset(blocks, step) for blocks in operands) for step in chain}
    boxes = []
    for start, loops in nests:
        nodes = tuple(Node(extent, valid, strides[step]) for step, extent, valid in loops)
        boxes.append(Box(tuple(block_offset(blocks, start) for blocks in operands), nodes))
    return boxes


def _split_periods(
    conflicting: list[int], inner: list[int], padded: int, size: int
) -> list[tuple[int, list[_Loop]]]:
    """Split a padded range wherever a block of one of the conflicting steps ends.

    The ends repeat with the least common multiple of the steps. One loop over these periods covers
    an interval in all of them. `inner` holds the smaller steps, which divide all conflicting ones.
    """
    period = lcm(*conflicting)
    ends = sorted(
        {min(end, padded) for step in conflicting for end in range(step, period + 1, step)}
    )
    nests: list[tuple[int, list[_Loop]]] = []
    for begin, end in pairwise([0, *ends]):
        length = end - begin
        # the number of periods in which the interval is whole, and in which it is all data
        whole, full = (max(0, (limit - end) // period + 1) for limit in (padded, size))
        # (first period, number of periods, length, length of the data)
        parts = [(0, full, length, length)]
        first = full
        start = full * period + begin
        if start < min(size, padded):
            parts.append((first, 1, min(length, padded - start), size - start))
            first += 1
        parts.append((first, whole - first, length, 0))
        first = max(first, whole)
        start = first * period + begin
        if start < padded:
            parts.append((first, 1, padded - start, 0))
        for first, count, extent, valid in parts:
            if count > 0:
                split = _split(inner, first * period + begin, extent, valid)
                nests += [(at, [(period, count, count), *loops]) for at, loops in split]
    return nests


def _split(chain: list[int], start: int, length: int, valid: int) -> list[tuple[int, list[_Loop]]]:
    """Split `length` indices from `start` into loop nests; the first `valid` indices hold data.

    Return the first index of each nest, and its loops: one for each step of the chain, which ends
    with 1.
    """
    step, *inner = chain
    if not inner:
        return [(start, [(1, length, valid)])]
    whole = [(small, large // small, large // small) for large, small in pairwise(chain)]
    nests: list[tuple[int, list[_Loop]]] = []
    count, rest = divmod(length, step)
    full, tail = divmod(valid, step)
    if not tail:
        if count:
            nests.append((start, [(step, count, min(full, count)), *whole]))
    else:
        if full:
            nests.append((start, [(step, full, full), *whole]))
        nests += _split(inner, start + full * step, min(step, length - full * step), tail)
        if count > full + 1:
            nests.append((start + (full + 1) * step, [(step, count - full - 1, 0), *whole]))
    if rest and not (tail and full == count):
        nests += _split(inner, start + count * step, rest, max(0, valid - count * step))
    return nests


@lru_cache(maxsize=4096)
def padding_boxes(desc: MemoryDesc) -> tuple[Box, ...]:
    """Return boxes of zeros that together cover the padding of a descriptor, which is dst.

    Their offsets are those before its XOR terms. Each covers the padding of one axis, with the
    whole padded range of the others, so boxes overlap where two axes are padded.
    """
    if not desc.has_padding or not desc.nelems:
        return ()
    layout = desc.layout.base()
    blocks = [_join_blocks(layout, axis.dims, axis.dims) or () for axis in layout.axes]
    # the range of each axis as if all of it held data: each box below has padding in one axis only
    whole = [
        _split_range(axis.padded, axis.padded, 2 * [axis_blocks])
        for axis, axis_blocks in zip(layout.axes, blocks, strict=True)
    ]
    boxes: list[Box] = []
    for k, axis in enumerate(layout.axes):
        padded = _split_range(axis.padded, layout.axis_size(k), 2 * [blocks[k]])
        for choice in product(*whole[:k], padded, *whole[k + 1 :]):
            box = _nested((layout.offset0, layout.offset0), choice)
            boxes += zeros_beyond(box, [node.valid for node in box.nodes])
    return simplify(tuple(boxes))
