"""Tiling for non-temporal stores: large transpositions, in an order that prefetchers can follow.

Lines of dst are complete when they are stored and do not stay in the caches, so their order costs
little. What costs is the order of the reads: the L2 prefetcher reads ahead in a limited number of
pages, as long as loads go on in them. So the rows of a tile lie in at most as many pages of src,
and tiles are in the order of src.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from reorder.cpu.schedule.reads import MAX_STEPS, rows_at_once, steps_of
from reorder.cpu.schedule.scheduled_box import schedule
from reorder.cpu.schedule.source_order import along_src, cut_group
from reorder.cpu.target import BYTE_BITS, LINE_BITS

if TYPE_CHECKING:
    from reorder.cpu.schedule.scheduled_box import ScheduledBox
    from reorder.plan.nodes import Box

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
    scheduled = schedule(box, bits, unit)
    has_padding = any(node.valid < node.extent for node in box.nodes)
    if bits < BYTE_BITS or has_padding or not scheduled.is_transposed:
        return ()
    if not scheduled.fills_lines(bits):
        scheduled = _with_longer_rows(scheduled)
        if not scheduled.fills_lines(bits):
            return ()
    choice = scheduled.choice
    size = bits // BYTE_BITS
    rows_limit = rows_at_once(choice.rows, LINE_BITS // bits, size // unit)
    return tuple(
        along_src(tile, choice.micro_kernel, (rows, columns), unit)
        for part, rows in cut_group(box, choice.rows, rows_limit)
        for tile, columns in cut_group(part, choice.columns, steps_of(choice.columns, MAX_STEPS))
    )


def _with_longer_rows(scheduled: ScheduledBox) -> ScheduledBox:
    """Return a transposition whose rows take the loop that continues them in dst too, if any.

    Example: rows of 36 elements, 3 x 3 pixels of 4 channels, end within lines; twelve of them do
    not.
    """
    choice = scheduled.choice
    size = prod(node.extent for node in choice.rows) * scheduled.unit
    follower = next((node for node in choice.outer if node.strides[1] == size), None)
    if follower is None:
        return scheduled
    outer = tuple(node for node in choice.outer if node != follower)
    return scheduled._replace(choice=choice._replace(outer=outer, rows=(*choice.rows, follower)))
