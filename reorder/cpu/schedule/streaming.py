"""Tiling for non-temporal stores: large transpositions, in an order that prefetchers can follow.

Lines of dst are complete when they are stored and do not stay in the caches, so their order costs
little. What costs is the order of the reads: the L2 prefetcher reads ahead in a limited number of
pages, as long as loads go on in them. So the rows of a tile lie in at most as many pages of src,
and tiles are in the order of src.
"""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING

from reorder.cpu.schedule.scheduled_box import ScheduledBox, schedule
from reorder.cpu.schedule.select import TILE, Choice
from reorder.cpu.target import BYTE_BITS, LINE_BITS
from reorder.plan.passes import split_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.plan.nodes import Box, Node

__all__ = ["rows_at_once", "stream_box"]

# Most pages of src that a tile reads: as many as the L2 prefetcher follows (32 in processors of
# Intel since 2008).
_PAGES = 32
_PAGE_NBYTES = 4096
# Most steps of a loop group in a tile; a loop of less than twice the steps of a tile is not cut.
_MAX_STEPS = 4 * TILE


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
        for tile, columns in _cut(part, choice.columns, _steps_of(choice.columns, _MAX_STEPS))
    )


def rows_at_once(rows: tuple[Node, ...], line: int, step: int) -> int:
    """Return how many steps of the outermost loop of a group of rows a tile takes.

    The model: rows of a tile start in at most 32 pages of src, and fill whole lines of dst.

    Parameters
    ----------
    rows : tuple of Node
        The loops, innermost first.
    line : int
        Elements of a cache line.
    step : int
        Bytes of a stride of 1.

    Examples
    --------
    >>> from reorder.plan.nodes import Node
    >>> rows_at_once((Node(4096, 4096, (4096, 1)),), 16, 4)
    32
    >>> rows_at_once((Node(3136, 3136, (16, 1)),), 16, 4)
    1024
    """
    *inner, outermost = rows
    pages = prod(max(1, min(node.extent, _span(node, step) // _PAGE_NBYTES)) for node in inner)
    stride = min(max(1, abs(outermost.strides[0]) * step), _PAGE_NBYTES)
    steps = max(1, _PAGES // pages) * (_PAGE_NBYTES // stride)
    grain = line // gcd(line, prod(node.extent for node in inner))
    limit = min(steps, _steps_of(rows, _MAX_STEPS))
    return max(1, limit // grain) * grain


def _span(node: Node, step: int) -> int:
    """Return the bytes of src between the first step of a loop and the end of the last one."""
    return node.extent * abs(node.strides[0]) * step


def _steps_of(group: tuple[Node, ...], size: int) -> int:
    """Return how many steps of the outermost loop of a group are about `size` steps of it all."""
    return max(1, size // prod(node.extent for node in group[:-1]))


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
