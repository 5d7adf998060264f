"""Tiling for non-temporal stores: large transpositions, in an order that prefetchers can follow.

Lines of dst are complete when they are stored and do not stay in the caches, so their order costs
little. What costs is the order of the reads: the L2 prefetcher reads ahead in a limited number of
pages, as long as loads go on in them. So the rows of a tile lie in at most as many pages of src,
and tiles are in the order of src.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.cpu.schedule.reads import MAX_STEPS, rows_at_once, steps_of
from reorder.cpu.schedule.scheduled_box import ScheduledBox, schedule
from reorder.cpu.schedule.select import Choice
from reorder.cpu.target import BYTE_BITS, LINE_BITS
from reorder.plan.passes import split_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.plan.nodes import Box, Node

__all__ = ["stream_box"]


def stream_box(box: Box, bits: int, unit: int = 1) -> tuple[ScheduledBox, ...]:
    """Schedule a transposition that writes whole cache lines by non-temporal stores.

    Parameters
    ----------
    box : Box
        A box whose src and dst exceed the caches.
    bits : int
        The width of its elements.
    unit : int
        The stride between neighbouring elements.

    Returns
    -------
    tuple of ScheduledBox
        Its tiles; none if it is no transposition of whole lines, or holds padding.
    """
    scheduled = schedule(box, unit)
    has_padding = any(node.valid < node.extent for node in box.nodes)
    if (
        bits < BYTE_BITS
        or has_padding
        or not scheduled.is_transposed
        or not scheduled.fills_lines(bits)
    ):
        return ()
    choice = scheduled.choice
    size = bits // BYTE_BITS
    rows_limit = rows_at_once(choice.rows, LINE_BITS // bits, size // unit)
    return tuple(
        _along_src(tile, choice.micro_kernel, (rows, columns), unit)
        for part, rows in _cut(box, choice.rows, rows_limit)
        for tile, columns in _cut(part, choice.columns, steps_of(choice.columns, MAX_STEPS))
    )


def _cut(box: Box, group: tuple[Node, ...], steps: int) -> Iterator[tuple[Box, tuple[Node, ...]]]:
    """Cut the outermost loop of a group; yields the pieces of the box, and the group of each."""
    *inner, node = group
    if node.extent < 2 * steps:
        yield box, group
        return
    for part in split_node(box, node, steps):
        # the inner one of the two loops: with single steps both have the strides of the node
        piece = next(other for other in part.nodes[::-1] if other.strides == node.strides)
        yield part, (*inner, piece)


def _along_src(
    box: Box, micro_kernel: int, groups: tuple[tuple[Node, ...], tuple[Node, ...]], unit: int
) -> ScheduledBox:
    """Return a box whose outer loops are in the order of src, around its two groups."""
    inner = {node for group in groups for node in group}
    outer = [node for node in box.nodes if node not in inner]
    outer.sort(key=lambda node: -abs(node.strides[0]))
    nodes = (*outer, *(node for node in box.nodes if node in inner))
    rows, columns = groups
    choice = Choice(micro_kernel, tuple(outer), rows, columns)
    return ScheduledBox(box._replace(nodes=nodes), choice, unit)
