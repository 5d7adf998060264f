"""The order of src: loops around a transposition in the order of their strides in src.

A call of the transposing kernel reads some pieces of src and writes some of dst. Lines at the ends
of pieces, and what prefetchers read ahead of them, are used only if one of the next calls goes on
there. So the loops around a call are in the order of that side whose pieces are shorter; and if it
is src, pieces are read from as many pages as the caches or the prefetchers serve.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from reorder.cpu.schedule.reads import rows_at_once
from reorder.cpu.schedule.scheduled_box import ScheduledBox
from reorder.cpu.schedule.select import Choice
from reorder.cpu.target import BYTE_BITS, LINE_NBYTES
from reorder.plan.passes import split_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reorder.plan.nodes import Box, Node

__all__ = ["along_src", "contiguous_size", "cut_group", "follow_shorter_pieces"]

# Rows are not cut to pieces of dst that are shorter than this: their lines would cost more than
# what the prefetchers save.
_MIN_PIECE_NBYTES = 8 * LINE_NBYTES


def follow_shorter_pieces(
    scheduled: ScheduledBox, bits: int, pages: int
) -> tuple[ScheduledBox, ...]:
    """Return a box, or its parts, whose outer loops have the order of the side of short pieces.

    Elements have some bits; rows are read from about as many pages of src in turn as `pages`.
    """
    choice = scheduled.choice
    if not scheduled.is_transposed or bits < BYTE_BITS or not choice.outer:
        return (scheduled,)
    inner = (*choice.rows, *choice.columns)
    from_src, from_dst = (contiguous_size(inner, side, scheduled.unit) for side in (0, 1))
    if from_src >= from_dst:
        return (scheduled,)
    box, rows, step = scheduled.box, choice.rows, bits // BYTE_BITS
    limit = rows_at_once(rows, 1, step // scheduled.unit, pages)
    # pieces of nearly equal length, so that none of a few steps is left
    limit = -(-rows[-1].extent // max(1, round(rows[-1].extent / limit)))
    nbytes = prod(node.extent for node in rows[:-1]) * limit * step
    is_cut = nbytes >= _MIN_PIECE_NBYTES and rows[-1].valid == rows[-1].extent
    parts = cut_group(box, rows, limit) if is_cut else ((box, rows),)
    return tuple(
        along_src(part, choice.micro_kernel, (group, choice.columns), scheduled.unit)
        for part, group in parts
    )


def contiguous_size(nodes: Iterable[Node], side: int, unit: int) -> int:
    """Return how many elements of some loops are one behind the other on a side."""
    left = list(nodes)
    size = 1
    while True:
        follower = next((node for node in left if node.strides[side] == size * unit), None)
        if follower is None:
            return size
        left.remove(follower)
        size *= follower.extent


def cut_group(
    box: Box, group: tuple[Node, ...], steps: int
) -> Iterator[tuple[Box, tuple[Node, ...]]]:
    """Cut the outermost loop of a group; yields the pieces of the box, and the group of each."""
    *inner, node = group
    if node.extent < 2 * steps:
        yield box, group
        return
    for part in split_node(box, node, steps):
        # the inner one of the two loops: with single steps both have the strides of the node
        piece = next(other for other in part.nodes[::-1] if other.strides == node.strides)
        yield part, (*inner, piece)


def along_src(
    box: Box, micro_kernel: int, groups: tuple[tuple[Node, ...], tuple[Node, ...]], unit: int
) -> ScheduledBox:
    """Return a box whose outer loops are in the order of src, around its rows and columns."""
    inner = {node for group in groups for node in group}
    outer = [node for node in box.nodes if node not in inner]
    outer.sort(key=lambda node: -abs(node.strides[0]))
    nodes = (*outer, *(node for node in box.nodes if node in inner))
    rows, columns = groups
    choice = Choice(micro_kernel, tuple(outer), rows, columns)
    return ScheduledBox(box._replace(nodes=nodes), choice, unit)
