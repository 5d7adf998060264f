"""Boxes from layouts: the padded space of dst, cut so that every side has strides.

For each group of dims the steps of all sides' blocks are merged into one chain of
divisors; the chain cuts the padded range into runs (whole blocks, then the ragged one,
recursively); the boxes are the product of the groups' runs. Blocks that do not divide
each other are cut wherever one of them ends, which repeats with their least common multiple; where
that makes too many boxes they become lookups.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise, product
from math import lcm, prod
from typing import TYPE_CHECKING, NamedTuple

from memdesc.layout import block_offset
from reorder.plan.nodes import Box, Lookup, Node
from reorder.plan.passes import simplify, zeros_beyond

if TYPE_CHECKING:
    from memdesc import Axis, Block, Layout, MemoryDesc
    from reorder.values.binding import ParameterLayout

    _Side = Layout | ParameterLayout

__all__ = ["boxes_of", "padding_boxes"]

_Loops = list[tuple[int, int, int]]

# More boxes than this cost more to start than they save; then dims are looked up.
_MAX_BOXES = 64


@lru_cache(maxsize=4096)
def padding_boxes(desc: MemoryDesc) -> tuple[Box, ...]:
    """Return boxes of one operand that together cover the padding of a descriptor.

    Each covers what is padding in one axis, and all that the other axes hold there;
    where two axes are padded, boxes meet.
    """
    if not desc.has_padding or not desc.nelems:
        return ()
    whole: list[list[_Piece]] = []
    partly: list[list[_Piece]] = []
    for k, axis in enumerate(desc.axes):
        blocks = _join(desc.layout, axis.dims, axis.dims) or ()
        whole.append(_cut(axis.padded, axis.padded, blocks))
        partly.append(_cut(axis.padded, desc.layout.axis_size(k), blocks))
    boxes: list[Box] = []
    for k, pieces in enumerate(partly):
        for choice in product(*whole[:k], pieces, *whole[k + 1 :]):
            offset = desc.offset0 + sum(piece.offsets[0] for piece in choice)
            nodes = tuple(node for piece in choice for node in piece.nodes)
            boxes += zeros_beyond(Box((offset,), nodes), [node.valid for node in nodes])
    return simplify(tuple(boxes))


class _Piece(NamedTuple):
    """A part of one group's padded range, as loops."""

    offsets: tuple[int, ...]
    nodes: tuple[Node, ...]
    lookup: tuple[Lookup, ...] = ()


def boxes_of(*sides: _Side) -> tuple[Box, ...]:
    """Cut the padded space of dst, which is the second side, so that every side has strides."""
    groups = [(_pieces(sides, own), own) for own in _groups(sides)]
    # each group multiplies the boxes; the ones that multiply most are looked up
    while prod(len(pieces) for pieces, _ in groups) > _MAX_BOXES:
        k = max(range(len(groups)), key=lambda k: len(groups[k][0]))
        groups[k] = ([_lookup(sides, groups[k][1])], groups[k][1])
    boxes = []
    start = tuple(side.offset0 for side in sides)
    for pieces in product(*(pieces for pieces, _ in groups)):
        offsets = tuple(map(sum, zip(start, *(piece.offsets for piece in pieces), strict=True)))
        nodes = tuple(node for piece in pieces for node in piece.nodes)
        boxes.append(
            Box(offsets, nodes, tuple(lookup for piece in pieces for lookup in piece.lookup))
        )
    return tuple(boxes)


def _groups(sides: tuple[_Side, ...]) -> list[tuple[int, ...]]:
    """Split the dims into the smallest sets that no axis of any side crosses."""
    groups = [{dim} for dim in range(len(sides[1].dims))]
    for axis in (axis for side in sides for axis in side.axes):
        if len(axis.dims) > 1:
            touched = [group for group in groups if not group.isdisjoint(axis.dims)]
            groups = [group for group in groups if group.isdisjoint(axis.dims)] + [
                set().union(*touched)
            ]
    return [tuple(sorted(group)) for group in groups]


def _blocks_of(side: _Side, dims: tuple[int, ...]) -> tuple[tuple[Axis, tuple[Block, ...]], ...]:
    return tuple(
        (axis, side.axis_blocks(k)) for k, axis in enumerate(side.axes) if axis.dims[0] in dims
    )


def _lookup(sides: tuple[_Side, ...], dims: tuple[int, ...]) -> _Piece:
    src, dst, *others = (_blocks_of(side, dims) for side in sides)
    sizes = tuple((dim, sides[1].dims[dim]) for dim in dims)
    return _Piece((0,) * len(sides), (), (Lookup(sizes, src, dst, tuple(others)),))


def _pieces(sides: tuple[_Side, ...], dims: tuple[int, ...]) -> list[_Piece]:
    """Cut the padded range of a group of dims into loops."""
    src, dst, *_ = sides
    # one index for the group, in the order of the axis that covers it
    order = next(
        (
            axis.dims
            for axis in (*dst.axes, *src.axes)
            if len(axis.dims) == len(dims) and axis.dims[0] in dims
        ),
        None,
    )
    if order is None:
        return [_lookup(sides, dims)]
    joined = [_join(side, dims, order) for side in sides]
    if None in joined or not _is_cut_alike(dst, dims, order):
        return [_lookup(sides, dims)]
    size = prod(dst.dims[dim] for dim in dims)
    pieces = _cut(
        prod(axis.padded for axis, _ in _blocks_of(dst, dims)), size, *filter(None, joined)
    )
    return pieces or [_lookup(sides, dims)]


def _cut(padded: int, size: int, *sides: tuple[Block, ...]) -> list[_Piece]:
    """Cut a padded range into loops over the blocks of all sides; nothing if that takes too many."""
    chain = sorted({block.step for blocks in sides for block in blocks}, reverse=True)
    odd = [step for step in chain if any(max(step, other) % min(step, other) for other in chain)]
    if not odd:
        runs = _runs(chain, 0, padded, size)
    elif chain[0] > odd[0] or sum(lcm(*odd) // step for step in odd) > _MAX_BOXES:
        return []
    else:
        below = [step for step in chain if step < odd[-1]]
        runs = _periods(odd, below, padded, size)
        chain = [lcm(*odd), *below]
    strides = {step: tuple(block_offset(blocks, step) for blocks in sides) for step in chain}
    pieces = []
    for start, loops in runs:
        nodes = tuple(Node(extent, valid, strides[step]) for step, extent, valid in loops)
        pieces.append(_Piece(tuple(block_offset(blocks, start) for blocks in sides), nodes))
    return pieces


def _periods(odd: list[int], below: list[int], padded: int, size: int) -> list[tuple[int, _Loops]]:
    """Cut a padded range where any of some steps ends that do not divide each other.

    The cuts repeat with the least common multiple of the steps, so that one loop over it takes all
    stretches that lie at one place in it. `below` are the smaller steps, which divide all of those.
    """
    period = lcm(*odd)
    ends = sorted({min(end, padded) for step in odd for end in range(step, period + 1, step)})
    runs: list[tuple[int, _Loops]] = []
    for begin, end in pairwise([0, *ends]):
        length = end - begin
        # how often the stretch is there, and how often as data, as a whole
        there, full = (max(0, (limit - end) // period + 1) for limit in (padded, size))
        # (first period, how many, length, how much of it is data)
        parts = [(0, full, length, length)]
        at = full
        start = full * period + begin
        if start < min(size, padded):
            parts.append((at, 1, min(length, padded - start), size - start))
            at += 1
        parts.append((at, there - at, length, 0))
        start = max(at, there) * period + begin
        if start < padded:
            parts.append((max(at, there), 1, padded - start, 0))
        for first, count, extent, valid in parts:
            if count > 0:
                inner = _runs(below, first * period + begin, extent, valid)
                runs += [(own, [(period, count, count), *loops]) for own, loops in inner]
    return runs


def _join(layout: _Side, dims: tuple[int, ...], order: tuple[int, ...]) -> tuple[Block, ...] | None:
    """Return a side's blocks over the row-major index of `order`, neighbours merged.

    None if the side's own axes are no runs of that order, or an inner one is cut so
    that its blocks do not end where its size does.
    """
    joined: list[Block] = []
    for axis, blocks in _blocks_of(layout, dims):
        place = order.index(axis.dims[0])
        if order[place : place + len(axis.dims)] != axis.dims:
            return None
        size = prod(layout.dims[dim] for dim in axis.dims)
        inside = prod(layout.dims[dim] for dim in order[place + len(axis.dims) :])
        if place and blocks[0].step * -(-size // blocks[0].step) != size:
            return None
        extent = -(-size // blocks[0].step)
        joined += [
            b._replace(step=b.step * inside, extent=b.extent if k else extent)
            for k, b in enumerate(blocks)
        ]
    # of several blocks that hold one step each, the one that padding extends is the first
    joined.sort(key=lambda block: (-block.step, layout.axes[block.axis].dims[0] != order[0]))
    merged = [joined[0]]
    for block in joined[1:]:
        if block.extent == 1:
            continue
        if merged[-1].extent == 1 and merged[-1].step == block.step:
            merged[-1] = block
        elif (
            merged[-1].stride == block.extent * block.stride
            and merged[-1].step == block.step * block.extent
        ):
            merged[-1] = block._replace(extent=merged[-1].extent * block.extent)
        else:
            merged.append(block)
    return tuple(merged)


def _is_cut_alike(dst: _Side, dims: tuple[int, ...], order: tuple[int, ...]) -> bool:
    """Whether dst pads the joint index at its end only."""
    return all(
        axis.dims[0] == order[0] or axis.padded == prod(dst.dims[dim] for dim in axis.dims)
        for axis, _ in _blocks_of(dst, dims)
    )


def _runs(chain: list[int], start: int, length: int, valid: int) -> list[tuple[int, _Loops]]:
    """Cut `length` indices from `start`, of which `valid` hold data, into loop nests.

    A nest is a list of (step, extent, valid) along the chain, which falls to 1.
    """
    step, *inside = chain
    if not inside:
        return [(start, [(1, length, valid)])]
    whole = [(small, large // small, large // small) for large, small in pairwise(chain)]
    runs: list[tuple[int, _Loops]] = []
    count, rest = divmod(length, step)
    full, ragged = divmod(valid, step)
    if not ragged:
        if count:
            runs.append((start, [(step, count, min(full, count)), *whole]))
    else:
        if full:
            runs.append((start, [(step, full, full), *whole]))
        runs += _runs(inside, start + full * step, min(step, length - full * step), ragged)
        if count > full + 1:
            runs.append((start + (full + 1) * step, [(step, count - full - 1, 0), *whole]))
    if rest and not (ragged and full == count):
        runs += _runs(inside, start + count * step, rest, max(0, valid - count * step))
    return runs
