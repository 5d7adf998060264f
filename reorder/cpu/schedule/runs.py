"""Runs in whole cache lines of dst, wherever they start, and in an order that prefetchers follow.

Runs that follow each other in dst share lines. Such a run is moved without its head, which is its
part of the first line, but with the head of the run after it, so that all of its lines are whole:

    runs of dst     |.....aaa|aaaaaaaa|aaaaabbb|bbbbbbbb|bbbbb...|
    joined                   |aaaaaaaa|aaaaabbb|                     and the same for b, c, ...

After a run comes the next step of the loop around it in dst, and after the last step of that loop
comes a step of the loop around both. Only the heads of the first runs, and the last runs, are boxes
of their own, of which the kernel writes the lines at both ends in part.

The offsets of boxes in dst count from the start of a line here.
"""

from collections.abc import Iterator
from functools import partial

from memdesc.dtypes import BYTE_BITS
from reorder.cpu.machine import LINE_NBYTES
from reorder.cpu.schedule.cuts import RUN_NBYTES, cut_to_fit, runs_in_turn
from reorder.cpu.schedule.loops import contiguous_loops, size_of
from reorder.cpu.schedule.select import (
    JOINED,
    MANY_LINES,
    RUN,
    TILE,
    WHOLE,
    ScheduledBox,
    select_kernel,
)
from reorder.plan.nodes import Box, Node
from reorder.plan.passes import moved


def join_runs(box: Box, bits: int) -> tuple[ScheduledBox, ...]:
    """Schedule runs of at least a line that follow each other in dst; empty for other boxes."""
    scheduled = select_kernel(box, bits)
    is_run = scheduled.micro_kernel == RUN and bits >= BYTE_BITS and box.nodes
    is_full = all(node.valid == node.extent for node in box.nodes)
    if not is_run or not is_full or scheduled.fills_lines():
        return ()
    *others, run = scheduled.as_bytes().box.nodes
    last_size = run.extent
    if run.extent > 2 * RUN_NBYTES:
        # pieces of the run, of which the last one is longer
        count, more = divmod(run.extent, RUN_NBYTES)
        run, last_size = Node(RUN_NBYTES, RUN_NBYTES, (1, 1)), RUN_NBYTES + more
        others.append(Node(count, count, (RUN_NBYTES, RUN_NBYTES)))
    chain = [others[k] for k in contiguous_loops(others, 1, run.extent)]
    chain = chain[:1] if last_size != run.extent else chain
    around = [node for node in others if node not in chain]
    joins = (
        chain
        and run.extent >= LINE_NBYTES
        and run.extent * size_of(chain) >= MANY_LINES * LINE_NBYTES
        and not any(node.strides[1] % LINE_NBYTES for node in around)
    )
    part = box._replace(nodes=(*others, run))
    return tuple(_joined_runs(part, chain, last_size)) if joins else ()


def _joined_runs(box: Box, chain: list[Node], last_size: int) -> Iterator[ScheduledBox]:
    """Schedule runs that the loops of a chain, innermost first, continue in dst.

    `last_size` is the length of the last run.
    """
    *others, run = box.nodes
    around = [node for node in others if node not in chain]
    inner, steps, order = runs_in_turn(box, BYTE_BITS, streams=True)
    if not inner or [*inner] != chain[: len(inner)]:
        inner = tuple(loop for k, loop in enumerate(chain) if size_of(chain[:k]) < TILE)
        steps, order = TILE, _in_dst
    *within, last = inner
    steps = min(steps, max(1, TILE // size_of(within)), last.extent)
    # pieces of the last of these loops that another piece follows, and the piece after them
    end = (last.extent - 1) // steps * steps
    pieces = Node(end // steps, end // steps, tuple(steps * stride for stride in last.strides))
    first, rest = ([*within, Node(size, size, last.strides)] for size in (steps, last.extent - end))
    # all steps of each loop that the next step follows; the loops before it are at their last steps
    levels = [(pieces, end // steps, first)]
    levels += [(loop, loop.extent - 1, rest) for loop in chain[len(inner) :]]
    levels += [(rest[k], rest[k].extent - 1, rest[:k]) for k in reversed(range(len(rest)))]
    outer, at = [node for node in others if node not in inner], box.offsets
    for loop, count, rows in levels:
        outer = [node for node in outer if node != loop]
        if count:
            loops = sorted([*outer, Node(count, count, loop.strides)], key=order)
            nodes = (*(node for node in (*loops, *rows[::-1]) if node.extent > 1), run)
            passed = sum((node.extent - 1) * node.strides[0] for node in rows)
            # in the piece that is left, the loops around start before it
            passed += at[0] - box.offsets[0] if len(rows) == len(inner) else 0
            schedule = partial(_joined_rows, follower=loop.strides[0] - passed)
            yield from cut_to_fit(schedule(Box(at, nodes)), schedule)
        at = moved(at, loop, count)
    # the heads of the first runs, and the last runs without theirs
    for offsets, start, stop in (
        (box.offsets, 0, -box.offsets[1] % LINE_NBYTES),
        (at, -at[1] % LINE_NBYTES, last_size),
    ):
        if start < stop:
            src, dst = offsets
            piece = Node(stop - start, stop - start, run.strides)
            part = Box((src + start, dst + start), (*around, piece))
            lines = WHOLE if stop - start >= LINE_NBYTES else 0
            yield select_kernel(part, BYTE_BITS)._replace(lines=lines)


def _joined_rows(box: Box, follower: int) -> ScheduledBox:
    return select_kernel(box, BYTE_BITS)._replace(lines=JOINED, follower=follower)


def _in_dst(node: Node) -> int:
    return -abs(node.strides[1])
