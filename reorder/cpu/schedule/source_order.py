"""The order of src: loops around a transposition in the order of their strides in src.

A call of the transposing kernel reads some pieces of src and writes some of dst. Beyond the caches,
lines at the ends of pieces, and what prefetchers read ahead of them, are used only if one of the
next calls goes on there. So the loops around a call are in the order of that side whose pieces are
shorter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.cpu.schedule.scheduled_box import ScheduledBox, contiguous_size
from reorder.cpu.schedule.select import Choice
from reorder.plan.passes import split_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.plan.nodes import Box, Node

__all__ = ["along_src", "cut_group", "follow_shorter_pieces"]


def follow_shorter_pieces(scheduled: ScheduledBox) -> ScheduledBox:
    """Return a box whose outer loops have the order of the side on which pieces are shorter."""
    choice = scheduled.choice
    if not scheduled.is_transposed:
        return scheduled
    groups = choice.rows, choice.columns
    inner = (*choice.rows, *choice.columns)
    from_src, from_dst = (contiguous_size(inner, side, scheduled.unit) for side in (0, 1))
    if from_src >= from_dst:
        return scheduled
    return along_src(scheduled.box, choice.micro_kernel, groups, scheduled.unit)


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
