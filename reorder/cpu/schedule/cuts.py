"""Cuts of a move: boxes are cut until the loops of a micro-kernel fit in the cache.

Large transpositions by non-temporal stores are tiled in an order that prefetchers can follow. Lines
of dst are complete when they are stored and do not stay in the caches, so their order matters
little. The order of the reads matters: the L2 prefetcher reads ahead in a limited number of pages,
as long as loads continue in them. So the rows of a tile are in at most that many pages of src, and
tiles follow the order of src.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import gcd, inf, prod

from memdesc.dtypes import BYTE_BITS
from reorder.cpu.machine import (
    CACHE_WAYS,
    LINE_BITS,
    LINE_NBYTES,
    PAGE_NBYTES,
    PREFETCHED_PAGES,
)
from reorder.cpu.schedule.loops import count_contiguous, size_of
from reorder.cpu.schedule.select import (
    MANY_LINES,
    MAX_CALL_SIZE,
    MAX_INTERLEAVED,
    TILE,
    ScheduledBox,
    line_of,
    select_kernel,
)
from reorder.plan.nodes import NOWHERE, Box, Node
from reorder.plan.passes import moved, split_node

# Runs of more than twice this many bytes are cut into pieces of this length, so that threads get
# equal parts: each gets at least four. Shorter pieces were no faster on one thread.
RUN_NBYTES = 1 << 14
# Elements of dst in a piece of runs of less than a line, and lines of dst in one of runs of a line.
_PIECE, _PIECE_LINES = 128, 32
# Lines of src that are read again after this many runs are still in the first-level cache; after
# the second number of runs, in the second-level cache. Threads that divide pieces write parts of
# the same lines, which costs more than reading from there.
_NEAR_RUNS, _NEAR_RUNS_SHARED = 32, 1 << 10


def tile_boxes(
    boxes: tuple[Box, ...], bits: int, *, is_shared: bool = False
) -> tuple[ScheduledBox, ...]:
    """Schedule boxes, cut so that the loops of a micro-kernel fit in the cache.

    Runs of at most a line are moved so that lines of both sides are used while they are cached;
    `is_shared` says that threads will divide them.
    """
    done: list[ScheduledBox] = []
    for box in boxes:
        ordered = _in_pieces(box, bits, is_shared=is_shared)
        for scheduled in reversed([*ordered] or [select_kernel(box, bits)]):
            done += cut_to_fit(scheduled, partial(select_kernel, bits=bits))
    return tuple(done)


def cut_to_fit(
    scheduled: ScheduledBox, schedule: Callable[[Box], ScheduledBox], kept: Node | None = None
) -> Iterator[ScheduledBox]:
    """Cut a box so that the loops of its micro-kernel fit in the cache, but not the loop `kept`."""
    cut = find_cut(scheduled)
    if turns := _in_turns(scheduled):
        yield from turns
    elif cut is None or cut[0] == kept:
        yield scheduled
    else:
        for part in reversed([*split_node(scheduled.box, *cut)]):
            yield from cut_to_fit(schedule(part), schedule, kept)


def _in_turns(scheduled: ScheduledBox) -> list[ScheduledBox]:
    """Cut interleaved rows whose columns are pieces of dst that the next outer step continues.

    Before the kernel takes the next line of each row, it takes this one in all steps of a call, so
    it writes a few pieces in turn. The model: these should be several lines long, because the next
    call writes into the last line of each. Returns nothing for other boxes, or if a single piece
    has that many lines.
    """
    rows, columns, outer = scheduled.rows, scheduled.columns, scheduled.outer
    if not scheduled.is_transposed or size_of(rows) > MAX_INTERLEAVED or not outer:
        return []
    extents = [node.extent for node in columns]
    size = size_of(rows) * scheduled.width
    near = count_contiguous(extents, [node.strides[1] for node in columns], size)
    piece, column, last = size * prod(extents[:near]), columns[-1], outer[-1]
    is_whole = all(node.valid == node.extent for node in (*rows, *columns, last))
    if not 0 < near < len(columns) or last.strides[1] != piece or not is_whole:
        return []
    steps = min(last.extent, MANY_LINES * line_of(scheduled.bits) // piece)
    if steps <= 1:
        return []
    most = max(1, MAX_CALL_SIZE // (steps * size_of((*rows, *columns[:-1]))))
    # parts of nearly equal length
    most = -(-column.extent // -(-column.extent // most))
    turns = []
    for part in parts_of(scheduled.box, column, most):
        inner = next(node for node in part.nodes[::-1] if node.strides == column.strides)
        turns += [
            scheduled._replace(box=turn, columns=(*columns[:-1], inner))
            for turn in parts_of(part, last, steps)
        ]
    return turns


def parts_of(box: Box, node: Node, steps: int) -> Iterable[Box]:
    """Split a box along one of its loops into parts of at most this many steps."""
    return split_node(box, node, steps) if steps < node.extent else (box,)


def rows_collide(rows: Iterable[int]) -> bool:
    """Whether lines at these bytes need more ways of a first-level cache set than it has."""
    lines = {at // LINE_NBYTES for at in rows if at != NOWHERE}
    sets = Counter(line % (PAGE_NBYTES // LINE_NBYTES) for line in lines)
    return max(sets.values(), default=0) > CACHE_WAYS


def find_cut(scheduled: ScheduledBox) -> tuple[Node, int] | None:
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
    run = RUN_NBYTES * BYTE_BITS // scheduled.bits
    if not is_transposed and scheduled.columns[0].extent > 2 * run:
        long, steps = scheduled.columns, run
    if long is None and scheduled.kernel_loop:
        long, steps = (scheduled.kernel_loop,), max(1, MAX_CALL_SIZE // prod(sizes))
    return None if long is None or steps >= long[-1].extent else (long[-1], steps)


def _in_pieces(box: Box, bits: int, *, is_shared: bool) -> Iterator[ScheduledBox]:
    """Schedule a box of runs of at most a line in pieces of dst, whose runs are moved along src.

    Yields nothing for other boxes, or for boxes that need no other order.
    """
    scheduled = select_kernel(box, bits)
    if scheduled.is_transposed or box.is_zero or len(box.nodes) < 2:  # noqa: PLR2004 - around it
        return
    *outer, last, run = box.nodes
    src_loop = min((*outer, last), key=lambda node: abs(node.strides[0]) or inf)
    is_short = run.extent * bits <= LINE_BITS and src_loop.valid == src_loop.extent
    if not outer or not is_short or abs(src_loop.strides[0]) >= abs(last.strides[0]):
        return
    steps = _short_runs_at_once(box, src_loop, bits, is_shared=is_shared)
    for part in parts_of(box, last, steps) if steps else ():
        *others, inner, _ = part.nodes
        others.sort(key=lambda node: node.strides == src_loop.strides)
        yield select_kernel(part._replace(nodes=(*others, inner, run)), bits)


def _short_runs_at_once(box: Box, src_loop: Node, bits: int, *, is_shared: bool) -> int:
    """Return how many runs of at most a line a piece of dst has; 0 if all belong in one piece."""
    *_, last, run = box.nodes
    nbits = run.extent * bits
    runs = size_of(box.nodes[box.nodes.index(src_loop) + 1 : -1])
    if runs <= _NEAR_RUNS:
        return 0
    if nbits == LINE_BITS:
        return min(last.extent, _PIECE_LINES)
    if box.offsets[1] % line_of(bits):
        is_left = is_shared and runs <= _NEAR_RUNS_SHARED
        return 0 if is_left else min(last.extent, MANY_LINES * LINE_BITS // nbits)
    return min(last.extent, max(2, _PIECE // run.extent))


def steps_of(box: Box, node: Node, start: int, count: int) -> Box:
    """Return a box with some steps of one of its loops; if it is a single step, the loop goes."""
    k = box.nodes.index(node)
    valid = min(max(0, node.valid - start), count)
    loop = (Node(count, valid, node.strides),) if count > 1 or not valid else ()
    nodes = (*box.nodes[:k], *loop, *box.nodes[k + 1 :])
    return box._replace(offsets=moved(box.offsets, node, start), nodes=nodes)


# Most steps of a loop group in a tile; a loop of fewer than twice the steps of a tile is not cut.
_MAX_STEPS = 4 * TILE


def rows_at_once(rows: tuple[Node, ...], line: int) -> int:
    """Return how many steps of the outermost loop of a group of rows a tile takes.

    The model: the rows of a tile start in no more pages of src than prefetchers follow, and fill
    whole lines of dst, of `line` elements.

    >>> from reorder.plan.nodes import Node
    >>> rows_at_once((Node(4096, 4096, (16384, 4)),), 16)
    32
    >>> rows_at_once((Node(3136, 3136, (64, 4)),), 16)
    1024
    """
    *inner, outermost = rows
    inside = 1
    for node in inner:
        span = node.extent * abs(node.strides[0])
        inside *= max(1, min(node.extent, span // PAGE_NBYTES))
    stride = min(max(1, abs(outermost.strides[0])), PAGE_NBYTES)
    steps = max(1, PREFETCHED_PAGES // inside) * (PAGE_NBYTES // stride)
    grain = line // gcd(line, size_of(inner))
    limit = min(steps, most_steps(rows))
    return max(1, limit // grain) * grain


def most_steps(group: tuple[Node, ...]) -> int:
    """Return how many steps of the outermost loop of a group fit in a tile."""
    return max(1, _MAX_STEPS // size_of(group[:-1]))
