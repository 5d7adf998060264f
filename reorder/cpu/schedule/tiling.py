"""Cache tiling: boxes are cut until the loops of a micro-kernel fit the cache."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from reorder.cpu.schedule.scheduled_box import MAX_CALL_SIZE, ScheduledBox, schedule
from reorder.cpu.schedule.select import TILE
from reorder.plan.passes import split_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.plan.nodes import Box, Node

__all__ = ["tile_boxes"]

# The loops around runs of up to this many elements are reordered.
_SHORT_RUN = 128
# Elements of the pieces into which runs of more than twice this length are cut, so that threads
# can share them.
_MAX_RUN = 1 << 15
# Larger than the magnitude of every stride.
_MAX_STRIDE = 2**63


def tile_boxes(boxes: tuple[Box, ...], unit: int = 1) -> tuple[ScheduledBox, ...]:
    """Schedule boxes, cut so that the loops of a micro-kernel fit the cache.

    Neighbouring elements of the boxes are a `unit` apart.
    """
    done: list[ScheduledBox] = []
    todo = [part for box in reversed(boxes) for part in _sweep_both_sides(box, unit)]
    while todo:
        scheduled = todo.pop()
        cut = _find_cut(scheduled)
        if cut is None:
            done.append(scheduled)
        else:
            todo += [schedule(part, unit) for part in split_node(scheduled.box, *cut)]
    return tuple(done)


def _find_cut(scheduled: ScheduledBox) -> tuple[Node, int] | None:
    """Return the loop at which a box is to be cut, and the steps of each piece.

    In this order: a run that is too long; a loop group of two sides of a cache tile or more; a
    loop around the transposed groups that is too long for one call.
    """
    choice, is_transposed = scheduled.choice, scheduled.is_transposed
    groups = [choice.columns, choice.rows] if is_transposed else [choice.rows]
    sizes = [prod(node.extent for node in group) for group in groups]
    long = next(
        (group for group, size in zip(groups, sizes, strict=True) if size >= 2 * TILE), None
    )
    steps = 0
    if long:
        # a tile that is narrow on one side may be longer on the other, for the same area
        limit = 4 * TILE if min(sizes) <= TILE // 4 else TILE
        # all steps of the inner loops, and as many of the outermost one as fit
        steps = max(1, limit // prod(node.extent for node in long[:-1]))
    if not is_transposed and choice.columns[0].extent > 2 * _MAX_RUN:
        long, steps = choice.columns, _MAX_RUN
    if long is None and scheduled.repeat:
        long, steps = (scheduled.repeat,), max(1, MAX_CALL_SIZE // prod(sizes))
    return None if long is None or steps >= long[-1].extent else (long[-1], steps)


def _sweep_both_sides(box: Box, unit: int) -> Iterator[ScheduledBox]:
    """Schedule a box of short runs so that cache lines of src and of dst are used while cached.

    The loop of the smallest stride in src becomes the inner one of the loop of the smallest
    stride in dst, and both are cut.
    """
    scheduled = schedule(box, unit)
    run = scheduled.choice.columns[0]
    outer = box.nodes[:-1]
    if scheduled.is_transposed or box.is_zero or run.extent > _SHORT_RUN or not outer[1:]:
        yield scheduled
        return
    dst_loop = outer[-1]
    src_loop = min(outer, key=lambda node: abs(node.strides[0]) or _MAX_STRIDE)
    if (
        src_loop is dst_loop
        or src_loop.valid < src_loop.extent
        or abs(src_loop.strides[0]) >= abs(dst_loop.strides[0])
    ):
        yield scheduled
        return
    # steps of the dst loop in each sweep over the src loop
    across = max(1, _SHORT_RUN // run.extent)
    for part in split_node(box, dst_loop, across) if dst_loop.extent > across else (box,):
        if part.is_zero:
            yield schedule(part, unit)
            continue
        along = max(1, TILE // min(across, dst_loop.extent))
        for whole in split_node(part, src_loop, along) if src_loop.extent > along else (part,):
            inner = next(node for node in whole.nodes if node.strides == src_loop.strides)
            rest = tuple(node for node in whole.nodes if node != inner)
            swept = whole._replace(nodes=(*rest[:-2], inner, *rest[-2:]))
            yield schedule(swept, unit)
