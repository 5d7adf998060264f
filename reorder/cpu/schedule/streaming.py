"""Tiling for non-temporal stores: large transpositions in an order that prefetchers can follow.

Lines of dst are complete when they are stored and do not stay in the caches, so their order matters
little. The order of the reads matters: the L2 prefetcher reads ahead in a limited number of pages,
as long as loads continue in them. So the rows of a tile lie in at most that many pages of src, and
tiles follow the order of src.
"""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING

from reorder.cpu.caches import PAGE_NBYTES, PREFETCHED_PAGES
from reorder.cpu.schedule.loops import contiguous_loops, size_of
from reorder.cpu.schedule.select import TILE, TRANSPOSED, ScheduledBox, select
from reorder.cpu.target import BYTE_BITS, LINE_BITS
from reorder.plan.passes import split_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.plan.nodes import Box, Node

__all__ = ["stream_box"]

# Most steps of a loop group in a tile; a loop of fewer than twice the steps of a tile is not cut.
_MAX_STEPS = 4 * TILE


def stream_box(box: Box, bits: int, element_stride: int = 1) -> tuple[ScheduledBox, ...]:
    """Schedule a transposition that writes whole cache lines by non-temporal stores.

    Parameters
    ----------
    box : Box
        A box whose src and dst exceed the caches.
    bits : int
        The width of its elements.
    element_stride : int
        The stride between neighbouring elements.

    Returns
    -------
    tuple of ScheduledBox
        Its tiles; none if it is not a transposition of whole lines, or holds padding.
    """
    scheduled = select(box, element_stride)
    has_padding = any(node.valid < node.extent for node in box.nodes)
    if bits < BYTE_BITS or has_padding or not scheduled.is_transposed:
        return ()
    if not scheduled.fills_lines(bits):
        scheduled = _with_longer_rows(scheduled)
        if not scheduled.fills_lines(bits):
            return ()
    size = bits // BYTE_BITS
    rows_limit = _rows_at_once(scheduled.rows, LINE_BITS // bits, size // element_stride)
    return tuple(
        _along_src(tile, (rows, columns), element_stride)
        for part, rows in _cut_group(box, scheduled.rows, rows_limit)
        for tile, columns in _cut_group(part, scheduled.columns, _most_steps(scheduled.columns))
    )


def _with_longer_rows(scheduled: ScheduledBox) -> ScheduledBox:
    """Return a transposition whose rows include the loop that continues them in dst, if any.

    Rows of 36 elements, 3 x 3 pixels of 4 channels, end within lines; twelve together do not.
    """
    outer, rows = scheduled.outer, scheduled.rows
    k = next(contiguous_loops(outer, 1, size_of(rows) * scheduled.element_stride), None)
    if k is None:
        return scheduled
    return scheduled._replace(outer=outer[:k] + outer[k + 1 :], rows=(*rows, outer[k]))


def _rows_at_once(rows: tuple[Node, ...], line: int, step: int) -> int:
    """Return how many steps of the outermost loop of a group of rows a tile takes.

    The model: the rows of a tile start in no more pages of src than prefetchers follow, and fill
    whole lines of dst.

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
    >>> _rows_at_once((Node(4096, 4096, (4096, 1)),), 16, 4)
    32
    >>> _rows_at_once((Node(3136, 3136, (16, 1)),), 16, 4)
    1024
    """
    *inner, outermost = rows
    inside = prod(max(1, min(node.extent, _span(node, step) // PAGE_NBYTES)) for node in inner)
    stride = min(max(1, abs(outermost.strides[0]) * step), PAGE_NBYTES)
    steps = max(1, PREFETCHED_PAGES // inside) * (PAGE_NBYTES // stride)
    grain = line // gcd(line, size_of(inner))
    limit = min(steps, _most_steps(rows))
    return max(1, limit // grain) * grain


def _span(node: Node, step: int) -> int:
    """Return the bytes of src between the first step of a loop and the end of the last one."""
    return node.extent * abs(node.strides[0]) * step


def _most_steps(group: tuple[Node, ...]) -> int:
    """Return how many steps of the outermost loop of a group fit in a tile."""
    return max(1, _MAX_STEPS // size_of(group[:-1]))


def _cut_group(
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


def _along_src(
    box: Box, groups: tuple[tuple[Node, ...], tuple[Node, ...]], element_stride: int
) -> ScheduledBox:
    """Return a transposition whose outer loops are in the order of src."""
    rows, columns = groups
    inner = {*rows, *columns}
    outer = [node for node in box.nodes if node not in inner]
    outer.sort(key=lambda node: -abs(node.strides[0]))
    nodes = (*outer, *(node for node in box.nodes if node in inner))
    ordered = box._replace(nodes=nodes)
    return ScheduledBox(ordered, element_stride, TRANSPOSED, tuple(outer), rows, columns)
