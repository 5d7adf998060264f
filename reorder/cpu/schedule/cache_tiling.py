"""Cache tiling: boxes are cut until the loops of a micro-kernel fit in the cache."""

from __future__ import annotations

from math import inf, prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.cpu.schedule.loops import size_of
from reorder.cpu.schedule.select import MAX_CALL_SIZE, TILE, ScheduledBox, select
from reorder.cpu.target import BYTE_BITS, LINE_NBYTES
from reorder.plan.nodes import Node
from reorder.plan.passes import split_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reorder.plan.nodes import Box

__all__ = ["tile_boxes"]

_ONE_STEP = Node(1, 1, (1, 1))
# Bytes of the pieces into which runs of more than twice this length are cut, so that threads get
# equal parts: each gets at least four. Shorter pieces were no faster on one thread.
_RUN_NBYTES = 1 << 14
# Elements of dst that are written in a row when runs are at most a line.
_SWEEP = 128


def tile_boxes(
    boxes: tuple[Box, ...],
    bits: int,
    element_stride: int = 1,
    *,
    sweeps_lines: bool = False,
) -> tuple[ScheduledBox, ...]:
    """Schedule boxes, cut so that the loops of a micro-kernel fit in the cache.

    Parameters
    ----------
    boxes : tuple of Box
        The boxes.
    bits : int
        The width of an element.
    element_stride : int, optional
        The stride between neighbouring elements.
    sweeps_lines : bool, optional
        Whether runs of one line are swept along src and dst, as shorter ones are: cache-resident
        lines are read again at once.
    """
    runs = _Runs(bits, element_stride, sweeps_lines)
    done: list[ScheduledBox] = []
    todo = [part for box in reversed(boxes) for part in _order_loops(box, runs)]
    while todo:
        scheduled = todo.pop()
        cut = _find_cut(scheduled, bits)
        if cut is None:
            done.append(scheduled)
        else:
            todo += [select(part, element_stride) for part in split_node(scheduled.box, *cut)]
    return tuple(done)


def _find_cut(scheduled: ScheduledBox, bits: int) -> tuple[Node, int] | None:
    """Return the loop at which a box is to be cut, and the steps of each piece.

    In this order: a run that is too long; a loop group of two sides of a cache tile or more; a loop
    around the transposed groups that is too long for one call.
    """
    is_transposed = scheduled.is_transposed
    groups = [scheduled.columns, scheduled.rows] if is_transposed else [scheduled.rows]
    sizes = [*map(size_of, groups)]
    long = next(
        (group for group, size in zip(groups, sizes, strict=True) if size >= 2 * TILE), None
    )
    steps = 0
    if long:
        # a tile that is narrow on one side may be longer on the other, for the same area
        limit = 4 * TILE if min(sizes) <= TILE // 4 else TILE
        # all steps of the inner loops, and as many of the outermost one as fit
        steps = max(1, limit // size_of(long[:-1]))
    run = _RUN_NBYTES * BYTE_BITS // bits
    if not is_transposed and scheduled.columns[0].extent > 2 * run:
        long, steps = scheduled.columns, run
    if long is None and scheduled.repeat:
        long, steps = (scheduled.repeat,), max(1, MAX_CALL_SIZE // prod(sizes))
    return None if long is None or steps >= long[-1].extent else (long[-1], steps)


class _Runs(NamedTuple):
    """How runs are ordered: the arguments of `tile_boxes`."""

    bits: int
    element_stride: int
    sweeps_lines: bool


def _order_loops(box: Box, runs: _Runs) -> Iterable[ScheduledBox]:
    """Schedule a box of runs so that cache lines of src and of dst are used while cached."""
    scheduled = select(box, runs.element_stride)
    *outer, run = box.nodes or (_ONE_STEP,)
    nbytes = run.extent * runs.bits // BYTE_BITS
    is_short = nbytes < LINE_NBYTES or (nbytes == LINE_NBYTES and runs.sweeps_lines)
    if scheduled.is_transposed or box.is_zero or not is_short or not outer[1:]:
        return (scheduled,)
    src_loop = min(outer, key=lambda node: abs(node.strides[0]) or inf)
    if src_loop.valid < src_loop.extent:
        return (scheduled,)
    return tuple(_sweep_both_sides(box, src_loop, runs)) or (scheduled,)


def _sweep_both_sides(box: Box, src_loop: Node, runs: _Runs) -> Iterator[ScheduledBox]:
    """Schedule a box of runs of at most a line, several of which may share lines of src and dst.

    The loop of the smallest stride in src becomes the inner one of the loop of the smallest
    stride in dst, and both are cut. Yields nothing if it already is.
    """
    *_, dst_loop, run = box.nodes
    if src_loop is dst_loop or abs(src_loop.strides[0]) >= abs(dst_loop.strides[0]):
        return
    # steps of the dst loop in each sweep over the src loop
    across = max(1, _SWEEP // run.extent)
    for part in split_node(box, dst_loop, across) if dst_loop.extent > across else (box,):
        if part.is_zero:
            yield select(part, runs.element_stride)
            continue
        along = max(1, TILE // min(across, dst_loop.extent))
        for whole in split_node(part, src_loop, along) if src_loop.extent > along else (part,):
            inner = next(node for node in whole.nodes if node.strides == src_loop.strides)
            rest = tuple(node for node in whole.nodes if node != inner)
            swept = whole._replace(nodes=(*rest[:-2], inner, *rest[-2:]))
            yield select(swept, runs.element_stride)
