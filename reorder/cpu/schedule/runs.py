"""Whole cache lines of dst, wherever it starts, in rows that follow each other.

Rows that follow each other in dst share lines. Such a row is moved without its head, which is its
part of the first line, but with the head of the row after it, so that all of its lines are whole:

    rows of dst     |.....aaa|aaaaaaaa|aaaaabbb|bbbbbbbb|bbbbb...|
    moved                    |aaaaaaaa|aaaaabbb|                     and the same for b, c, ...

After a row comes the next step of the loop around it in dst, and after the last step of that loop
comes a step of the loop around both. `pieces_of` finds for each piece of these rows what comes
after it. Runs, which are copied, are *joined*: the table of their offsets in src goes on with the
runs after them, and the kernel puts each line together from as many runs as it has bytes of. For
transpositions see `rotation`.

The offsets of boxes in dst count from the start of a line here.
"""

from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from math import gcd

from memdesc.dtypes import BYTE_BITS
from memdesc.tuples import NamedTuple
from reorder.cpu.machine import LINE_NBYTES, Instructions
from reorder.cpu.schedule.cuts import RUN_NBYTES, parts_of, steps_of, tile_boxes
from reorder.cpu.schedule.loops import contiguous_loops, offset_table, size_of
from reorder.cpu.schedule.select import (
    MANY_LINES,
    RUN,
    ScheduledBox,
    Tables,
    select_kernel,
)
from reorder.plan.nodes import NOWHERE, Box, Node
from reorder.plan.passes import moved

# How many runs are read in turn: prefetchers follow few, and the order in which whole lines are
# written matters little. How many rows the table of a call has: few, to leave room in the
# first-level cache.
_RUNS, _ROWS = 8, 128
# Where steps start at more places of a line than this, the tables of a call are shorter: there is
# one for each place. The second number is for runs of less than a line: their rows have more
# pieces.
_FEW_PLACES, _FEW_PLACES_SHORT = 8, 2


class RowPiece(NamedTuple):
    """Equal pieces of rows, and what comes after each in dst."""

    # the loops around them, from where the first one starts
    box: Box
    # steps of the outermost loop of the rows
    steps: int
    # the distance in src to the piece after it in dst; None: nothing comes after it
    follower: int | None
    # the same for all that is left from here on, as one piece of the last rows
    rest: Box


def pieces_of(
    box: Box, rows: tuple[Node, ...], around: Iterable[Node], steps: int, last: int
) -> Iterator[RowPiece]:
    """Yield the pieces of rows, a loop group of a box that is contiguous in dst.

    Each has `steps` steps of the outermost loop of the rows, or what these leave, but the last one
    has `last`. The rows go on in the next step of the loops `around`, innermost first.
    """
    outermost = rows[-1]
    skipped = outermost.extent - last
    others = tuple(node for node in box.nodes if node not in rows)
    rest = Box(moved(box.offsets, outermost, skipped), others)
    begin = 0
    for length in (min(steps, skipped), skipped % steps):
        count = (skipped - begin) // length if length else 0
        if count:
            stride = tuple(length * step for step in outermost.strides)
            loops = (Node(count, count, stride),) if count > 1 else ()
            part = Box(moved(box.offsets, outermost, begin), (*others, *loops))
            yield RowPiece(part, length, stride[0], rest)
            begin += count * length
    passed = skipped * outermost.strides[0]
    for loop in around:
        count = loop.extent - 1
        yield RowPiece(steps_of(rest, loop, 0, count), last, loop.strides[0] - passed, rest)
        rest = steps_of(rest, loop, count, 1)
        passed += count * loop.strides[0]
    yield RowPiece(rest, last, None, rest)


def slices_of(box: Box, row: tuple[Node, ...], start: int, stop: int) -> Iterator[Box]:
    """Yield boxes of some successive steps of a loop group of a box."""
    *inner, outermost = row
    size = size_of(inner)
    first, last = -(-start // size), stop // size
    if start >= stop:
        return
    if first > last:
        step = steps_of(box, outermost, last, 1)
        yield from slices_of(step, tuple(inner), start % size, stop % size)
        return
    if start % size:
        step = steps_of(box, outermost, first - 1, 1)
        yield from slices_of(step, tuple(inner), start % size, size)
    if first < last:
        yield steps_of(box, outermost, first, last - first)
    if stop % size:
        yield from slices_of(steps_of(box, outermost, last, 1), tuple(inner), 0, stop % size)


def join_runs(
    box: Box, bits: int, instructions: Instructions, *, streams: bool, exceeds: bool
) -> tuple[ScheduledBox, ...]:
    """Schedule runs that follow each other in dst as whole lines; empty for other boxes.

    The model: in the caches, putting a line together costs more than a store that crosses lines,
    so this pays from two lines on, up to many, which have few such stores. It pays from one line on
    with non-temporal stores, and from half a line, or if runs end in zeros, for data that `exceeds`
    all caches. Without masked loads it costs more, and pays only for full lines and such stores.
    """
    scheduled = select_kernel(box, bits)
    if scheduled.micro_kernel != RUN or not box.nodes or not (streams or instructions.masks):
        return ()
    box = scheduled.as_bytes().box
    *others, run = box.nodes
    head, size, is_full = -box.offsets[1] % LINE_NBYTES, run.extent, run.valid == run.extent
    chain = [others[k] for k in contiguous_loops(others, 1, size)]
    takes_parts = exceeds and instructions.masks
    least = LINE_NBYTES // 2 if takes_parts else LINE_NBYTES if streams else 2 * LINE_NBYTES
    joins = (
        size >= least
        and (streams or size < MANY_LINES * LINE_NBYTES)
        and (is_full or (takes_parts and 0 < run.valid < size <= LINE_NBYTES))
        and not (scheduled.fills_lines() and not (is_full and streams))
        and size * size_of(chain) >= MANY_LINES * LINE_NBYTES
        and all(node.valid == node.extent for node in others)
        and not any(node.strides[1] % LINE_NBYTES for node in others if node not in chain)
    )
    if not joins:
        return ()
    is_long = size > 2 * RUN_NBYTES or not chain
    parts = [*islice(_even_parts(box, run), LINE_NBYTES + 1)] if is_long else []
    if 0 < len(parts) <= LINE_NBYTES:
        pieces: list[Box] = []
        for part in parts:
            head = -part.offsets[1] % LINE_NBYTES
            cuts = 0, head, size - (size - head) % LINE_NBYTES, size
            pieces += (piece for cut in pairwise(cuts) for piece in slices_of(part, (run,), *cut))
        return tile_boxes(tuple(pieces), BYTE_BITS)
    counts = range(1, len(chain))
    count = next((k for k in counts if size_of(chain[:k]) >= _RUNS), len(chain))
    *inner, outermost = chain[:count]
    rows, most = (run, *inner, outermost), _RUNS
    if size < LINE_NBYTES:
        # runs that share lines of src are moved together
        loops = (node for node in others if node not in rows)
        shared = min(loops, key=lambda node: abs(node.strides[0]), default=run)
        most = max(_RUNS, _ROWS * (LINE_NBYTES // size) // shared.extent)
    steps = max(1, most // size_of(inner))
    if steps < outermost.extent:
        steps = min(steps, -(-outermost.extent // 2))
    # each piece has the two runs or more that a line may go on with
    last = (outermost.extent - 2) % steps + 2
    done: list[ScheduledBox] = []
    for piece in pieces_of(box, rows, chain[count:], steps, last):
        extents = [*(node.extent for node in inner), piece.steps]
        starts = offset_table(extents, [node.strides[0] for node in rows[1:]])
        after = [] if piece.follower is None else [at + piece.follower for at in starts[:2]]
        done += _joined_boxes(piece.box, run, starts, after)
    # the heads of the first runs, and the end of the last ones
    first, end = (
        Box(offsets, (*piece.rest.nodes, *rows[::-1]))
        for offsets in (box.offsets, piece.rest.offsets)
    )
    stop = len(starts) * size
    start = stop - (end.offsets[1] + stop) % LINE_NBYTES
    ends = *slices_of(first, rows, 0, head), *slices_of(end, rows, start, stop)
    return (*done, *(select_kernel(part, BYTE_BITS) for part in ends))


def _even_parts(box: Box, kept: Node) -> Iterator[Box]:
    """Yield parts of a box in which all steps start at the same place within a line of dst.

    The steps of the loop `kept` may start anywhere.
    """
    uneven = (node for node in box.nodes if node != kept and node.strides[1] % LINE_NBYTES)
    if (loop := next(uneven, None)) is None:
        yield box
        return
    for k in (0, 1):
        # every other step
        count = (loop.extent + 1 - k) // 2
        part = Node(count, count, tuple(2 * stride for stride in loop.strides))
        nodes = (*[part] * (count > 1), *(node for node in box.nodes if node != loop))
        yield from _even_parts(Box(moved(box.offsets, loop, k), nodes), kept)


def _joined_boxes(
    box: Box, run: Node, starts: list[int], after: list[int]
) -> Iterator[ScheduledBox]:
    """Schedule runs for all steps of the loops of a box, which are those around them.

    The runs start at `starts` in src, and go on in dst with those that start at `after`.
    """

    def stride(node: Node) -> int:
        return abs(node.strides[0])

    inner = min(box.nodes, key=stride, default=Node(1, 1, (0, 0)))
    outer = sorted((node for node in box.nodes if node != inner), key=stride, reverse=True)
    # calls start at places in a line that differ by multiples of this; steps within start anywhere
    grain = gcd(LINE_NBYTES, *(node.strides[1] for node in outer))
    size, period = min(run.extent, LINE_NBYTES), grain // gcd(grain, inner.strides[1])
    few = _FEW_PLACES if size == LINE_NBYTES else _FEW_PLACES_SHORT
    lines = min(_ROWS, few * _ROWS * grain // LINE_NBYTES)
    steps = -(-lines * LINE_NBYTES // (len(starts) * size * period)) * period
    for part in parts_of(box._replace(nodes=(*outer, inner)), inner, steps):
        *around, within = part.nodes
        tables: list[tuple[tuple[int, ...], ...]] = []
        for place in range(part.offsets[1] % grain, LINE_NBYTES, grain):
            places = [moved((0, place), within, k) for k in range(within.extent)]
            table = [row for at in places for row in _joined_rows(run, starts, after, at)]
            if size < LINE_NBYTES:
                table.sort(key=lambda row: row[2])
            tables.append(tuple((at - place, *rest) for at, *rest in table))
        joins = any(row[3:] != (-1,) for table in tables for row in table)
        if not joins:
            tables = [tuple((at, n + LINE_NBYTES, *own) for at, n, *own in rows) for rows in tables]
        # about as many whole lines as rows have
        nbytes = max(1, run.extent // LINE_NBYTES) * LINE_NBYTES
        count, line = max(map(len, tables)), Node(nbytes, nbytes, (1, 1))
        row = Node(count, count, (NOWHERE, nbytes))
        whole = part._replace(nodes=(*around, row, line))
        if count:
            groups = (row,), (line,)
            yield ScheduledBox(whole, BYTE_BITS, RUN, *groups, Tables(joined=tuple(tables)), joins)


def _joined_rows(
    run: Node, starts: list[int], after: list[int], offsets: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    """Yield `JoinedRow` and its pieces for each run in which a line of dst starts.

    The first run is at these offsets in src and dst; the latter counts from the start of a line.
    """
    size, runs, (src, dst) = run.extent, [*starts, *after], offsets
    for k in range(len(starts)):
        begin = -(dst + k * size) % LINE_NBYTES
        last = begin + max(0, size - begin - 1) // LINE_NBYTES * LINE_NBYTES
        if last + LINE_NBYTES > (len(runs) - k) * size:
            last -= LINE_NBYTES
        if begin <= last < size:
            pieces: list[int] = []
            for n, start in enumerate(runs[k : k + 3]):
                at = n * size - last
                low, high = max(0, at), min(at + run.valid, LINE_NBYTES)
                if low < high:
                    mask = (1 << high) - (1 << low)
                    # as int64
                    pieces += src + start - at - last + begin, mask - (mask >> 63 << 64)
            yield dst + k * size + begin, last - begin, *(pieces or (src + starts[k], 0))
