"""The program of the interpreter of boxes: scheduled boxes as a flat table of int64.

The program is bytecode, one instruction for each box, so a new layout needs no new code, only
another program. The instruction of a box is

* `BoxHead`;
* for each outer loop, outermost first, `LoopHead` and its stride in each operand;
* for runs and strided elements `RowsHead` and two tables, the offsets of the rows in dst and in
  src; for transpositions `TransposeHead`, `KernelLoop` and two tables, the offsets of the columns
  in dst and of the rows in src.

All offsets and strides are in bytes, so that rows may start between two elements; those of 4-bit
elements are in elements. A program runs once at each `Point`: one for each step of the indirect
loops of its boxes.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, islice, product, takewhile
from math import prod

import numpy as np

from memdesc.tuples import NamedTuple
from reorder.cpu.machine import LANE_BITS, LINE_BITS, LINE_NBYTES, Instructions
from reorder.cpu.schedule.cuts import rows_collide
from reorder.cpu.schedule.loops import count_contiguous, offset_table, size_of
from reorder.cpu.schedule.partition import Workload
from reorder.cpu.schedule.select import (
    FEW_COLUMNS,
    MAX_CALL_SIZE,
    MAX_INTERLEAVED,
    PERMUTED,
    RUN,
    Part,
    Permutation,
    ScheduledBox,
    parts_for,
    width_of,
)
from reorder.cpu.tables import Words, fields_of
from reorder.plan.nodes import NOWHERE, IndirectLoop, Node

# Columns of a transposition are divided among threads in multiples of the width of a tile: this
# many bytes of src, and at least this many columns.
_GRAIN_NBYTES, _GRAIN_COLUMNS = LINE_NBYTES, 16


class BoxHead(NamedTuple):
    """The start of the instruction of a box."""

    # one of `select.MICRO_KERNELS`
    micro_kernel: int
    # offsets of the box in src and dst
    src: int
    dst: int
    # number of outer loops
    outer: int
    # src must not be read from this byte on
    src_end: int


class LoopHead(NamedTuple):
    """An outer loop; one stride for each operand follows."""

    extent: int
    # steps that hold data: the first ones
    valid: int


class RowsHead(NamedTuple):
    """The fields of the kernels of runs, of strided elements and of permuted lines.

    Both tables of rows follow, and for permuted lines up to two lines that say where in src each
    byte, or each two, come from: `valid` counts the bytes that are loaded then.
    """

    # rows, and how many of them hold data: the first ones
    rows: int
    valid_rows: int
    # the loop of the columns
    extent: int
    valid: int
    src_stride: int
    dst_stride: int
    # the largest offset in src, from the first row, of a row that holds data
    src_span: int
    # see `ScheduledBox`: 0 or 1
    joins: int
    # how many pieces each row is put together from, if it is: then tables of `JoinedRow` follow,
    # each after its number of rows, for steps that start in the first 1 << `place_shift` bytes of a
    # line, in the next ones, and so on
    pieces: int
    place_shift: int


class JoinedRow(NamedTuple):
    """A row of joined runs, before its pieces: lines of the first run, then a line of all pieces.

    Only the rows of a box that `joins` have that last line.
    """

    # where the first line starts in dst, and the bytes of the lines before the last one
    dst: int
    nbytes: int


class LinePiece(NamedTuple):
    """A part of a line that is a part of src; the other bytes of the line are zeros."""

    # where the row would start in src, and which bytes of its last line the piece has: a bit for
    # each
    src: int
    mask: int


class TransposeHead(NamedTuple):
    """The fields of the transposing kernel; `KernelLoop` and both tables follow."""

    # columns, and how many of them hold data: the first ones
    columns: int
    valid_columns: int
    # columns come in runs of this length, within which each starts `rows` elements after the
    # previous one in dst; 0: no runs
    column_run: int
    # the same for rows: within a run each starts `columns` elements after the previous one in src;
    # rows of padding, which come after the first `valid_rows`, are `NOWHERE` in their table
    rows: int
    valid_rows: int
    row_run: int
    # the largest offset in src, from the first row, of a row that holds data
    src_span: int
    # whether lines of dst are prefetched: 0 or 1
    prefetches_dst: int
    # how many rows tiles as high as a cache line may move twice
    repeated: int
    # whether the first-level cache is too small to hold a line of each row of a tile: 0 or 1
    rows_collide: int
    # 1 if the bytes of rows of src are permuted, 2 if those of columns of dst are: then the table
    # of rows goes on with the first ones, for a line, and after it a line of bytes says which byte
    # each one comes from
    permuted: int
    # the number in `WAYS` of the part that moves it
    way: int


class KernelLoop(NamedTuple):
    """The loop around columns and rows; a single step if there is none."""

    extent: int
    src_stride: int
    dst_stride: int


def encode(
    boxes: Iterable[ScheduledBox],
    src_end: int,
    instructions: Instructions,
    place: int = 0,
    *,
    is_large: bool = False,
) -> tuple[Words, list[Workload], tuple[Part, ...]]:
    """Encode boxes; return the program, how it can be cut, and the parts of a kernel that it needs.

    Bytes of src from `src_end` on must not be read. The offsets of the boxes in dst count from the
    start of a cache line, `place` bytes before dst. For `is_large` see `prefetches_dst`; the parts
    are those for a processor with `instructions`.
    """
    program: list[int] = []
    workloads = []
    parts: set[Part] = set()
    for scheduled in boxes:
        outer, kernel_loop = scheduled.outer, scheduled.kernel_loop
        if kernel_loop and kernel_loop.extent > MAX_CALL_SIZE // scheduled.inner_size:
            kernel_loop = None
        if kernel_loop:
            outer = outer[:-1]
        start = len(program)
        src, dst = scheduled.box.offsets
        program += BoxHead(scheduled.micro_kernel, src, dst - place, len(outer), src_end)
        for node in outer:
            program += [*LoopHead(node.extent, node.valid), *node.strides]
        if scheduled.is_transposed:
            head, words = _encode_transpose(scheduled, kernel_loop, is_large=is_large)
            program += *head, *words
            parts |= _parts_of(scheduled, head, instructions)
            grain = max(_GRAIN_COLUMNS, _GRAIN_NBYTES // scheduled.width)
            group = scheduled.columns
        else:
            program += _encode_rows(scheduled)
            part = {RUN: Part.RUNS, PERMUTED: Part.PERMUTED_LINES}.get(scheduled.micro_kernel)
            parts |= {part} if part else set()
            group, grain = scheduled.rows, 1
        inner, steps = map(size_of, (group, outer))
        shared_lines = scheduled.shared_lines(n for n in scheduled.box.nodes if n not in outer)
        size = scheduled.box.size
        coarse_steps = _coarse_steps(outer, group[-1])
        workloads.append(Workload(start, steps, inner, grain, size, coarse_steps, shared_lines))
    needed = tuple(part for part in Part if part in parts)
    return np.array(program, dtype=np.int64), workloads, needed


def _coarse_steps(outer: tuple[Node, ...], inner: Node) -> int:
    """Return the number of steps of the outer loops with larger strides in dst than a loop."""
    stride = abs(inner.strides[1])
    return prod(
        node.extent for node in takewhile(lambda node: abs(node.strides[1]) > stride, outer)
    )


def _encode_rows(scheduled: ScheduledBox) -> list[int]:
    rows, (run,) = scheduled.rows, scheduled.columns
    pieces = 0
    dst_table: Sequence[int] = ()
    if scheduled.tables.joined:
        src_table, pieces = _joined_tables(scheduled)
    else:
        src_table, dst_table = _tables(scheduled, rows)
    valid_rows, valid = _count_valid(rows), run.valid
    picks: list[int] = []
    if scheduled.permutation:
        valid = scheduled.permutation.loaded_nbytes
        picks = _words_of(scheduled.permutation)
    head = RowsHead(
        rows=size_of(rows),
        valid_rows=valid_rows,
        extent=run.extent,
        valid=valid,
        src_stride=run.strides[0],
        dst_stride=run.strides[1],
        src_span=max(src_table[:valid_rows], default=0),
        joins=int(scheduled.joins),
        pieces=pieces,
        place_shift=(LINE_NBYTES // (len(scheduled.tables.joined) or 1)).bit_length() - 1,
    )
    return [*head, *dst_table, *src_table, *picks]


def _words_of(permutation: Permutation) -> list[int]:
    """Return lines that say which byte, or which two, each one comes from."""
    picks = np.array(permutation.picks, f"u{permutation.unit}").tobytes()
    picks = picks.ljust(-(-len(picks) // LINE_NBYTES) * LINE_NBYTES, b"\0")
    words: list[int] = np.frombuffer(picks, np.int64).tolist()
    return words


def _joined_tables(scheduled: ScheduledBox) -> tuple[Sequence[int], int]:
    """Return tables of `JoinedRow` and pieces, each after its number of rows, and count the pieces.

    All have the same length, and so do all rows: nothing is read from the pieces that fill them up.
    """
    tables = scheduled.tables.joined
    pieces = max(len(row) for table in tables for row in table) // 2 - 1
    words: list[int] = []
    for table in tables:
        words.append(len(table))
        for at, nbytes, *own in table:
            words += at, nbytes, *own, *(own[0], 0) * (pieces - len(own) // 2)
        words += [0] * (size_of(scheduled.rows) - len(table)) * (2 * pieces + 2)
    return words, pieces


def _parts_of(
    scheduled: ScheduledBox, head: TransposeHead, instructions: Instructions
) -> set[Part]:
    """Return the parts of a kernel that a transposition needs."""
    if head.way:
        return {WAYS[head.way]}
    parts = {Part.TILES}
    if min(head.rows, head.columns) <= MAX_INTERLEAVED:
        parts.add(Part.INTERLEAVED)
    if head.rows_collide:
        parts.add(Part.WIDE_TILES)
    return parts.intersection(parts_for(scheduled.bits, instructions))


# With `TILES` the kernel finds the way, and may need other parts too.
WAYS = Part.TILES, Part.FEW_COLUMNS, Part.BLOCKS, Part.PERMUTED
# Tiles as high as a cache line may move up to this share of the rows twice. Of large data, more:
# tiles of half a line wait for each line of dst, which is not prefetched for them.
_SHARE, _LARGE_SHARE = 8, 3


def _way_of(scheduled: ScheduledBox, repeated: int, *, follow: bool, collide: bool) -> Part:
    """Return which part moves two groups: if all columns hold data, it may be one without sweeps.

    Up to `repeated` rows may be moved twice. `follow` says that the columns follow each other in
    dst, `collide` that lines of rows collide.
    """
    rows, columns = scheduled.rows, scheduled.columns
    height, width, line = size_of(rows), size_of(columns), LINE_BITS // scheduled.bits
    has_rows, has_columns = (
        all(node.valid == node.extent for node in group) for group in (rows, columns)
    )
    least = max(MAX_INTERLEAVED + 1, LANE_BITS // scheduled.bits)
    if not has_columns or height <= MAX_INTERLEAVED or width < least:
        return Part.TILES
    has_tiles = height >= line and -height % line <= repeated
    if has_rows and has_tiles and width <= FEW_COLUMNS:
        return Part.FEW_COLUMNS
    is_block = follow and height <= line and height & (height - 1) == 0 and not collide
    return Part.BLOCKS if is_block else Part.TILES


def _encode_transpose(
    scheduled: ScheduledBox, kernel_loop: Node | None, *, is_large: bool
) -> tuple[TransposeHead, list[int]]:
    rows, columns, permutation = scheduled.rows, scheduled.columns, scheduled.permutation
    src_table, dst_table = _tables(scheduled, columns)
    column_run, row_run = (
        _run_length(group, side, scheduled.width * size_of(other))
        for group, other, side in ((columns, rows, 1), (rows, columns, 0))
    )
    collide = rows_collide(src_table[: LINE_BITS // scheduled.bits])
    follow = not scheduled.tables.dst and column_run >= size_of(columns)
    most = size_of(rows) // (_LARGE_SHARE if is_large else _SHARE)
    way = Part.PERMUTED if permutation else _way_of(scheduled, most, follow=follow, collide=collide)
    head = TransposeHead(
        columns=size_of(columns),
        valid_columns=_count_valid(columns),
        column_run=0 if scheduled.tables.dst else column_run,
        rows=len(src_table),
        valid_rows=_count_valid(rows),
        row_run=0 if scheduled.tables.src else row_run,
        src_span=max((at for at in src_table if at != NOWHERE), default=0),
        prefetches_dst=int(scheduled.prefetches_dst(is_large=is_large)),
        repeated=most,
        rows_collide=int(collide),
        permuted=1 + permutation.side if permutation else 0,
        way=WAYS.index(way),
    )
    words = [*dst_table, *src_table]
    loop = KernelLoop(kernel_loop.extent, *kernel_loop.strides) if kernel_loop else (1, 0, 0)
    if permutation:
        words += islice(cycle(src_table), LINE_BITS // scheduled.bits)
        words += _words_of(permutation)
    return head, [*loop, *words]


def _tables(
    scheduled: ScheduledBox, group: tuple[Node, ...]
) -> tuple[Sequence[int], Sequence[int]]:
    """Return the tables of a box: of the rows in src, and of a group in dst."""
    src, valid = _offsets(scheduled.rows, 0), _count_valid(scheduled.rows)
    src[valid:] = [NOWHERE] * (len(src) - valid)
    return scheduled.tables.src or src, scheduled.tables.dst or _offsets(group, 1)


def _count_valid(group: tuple[Node, ...]) -> int:
    """Return how many steps of a loop group hold data: only its outermost loop may be padded."""
    return size_of(group[:-1]) * group[-1].valid


def _run_length(group: tuple[Node, ...], side: int, size: int) -> int:
    """Return the length of the runs of a loop group on the side of the other one, or 0.

    On that side the other group is contiguous, and within a run the offsets of successive steps
    differ by the size of that group.
    """
    extents = [node.extent for node in group]
    count = count_contiguous(extents, [node.strides[side] for node in group], size)
    run = prod(extents[:count])
    return run if run > 1 else 0


def _offsets(group: tuple[Node, ...], side: int) -> list[int]:
    """Return the offset of each step of a loop group on a side."""
    strides = (node.strides[side] for node in group)
    return offset_table((node.extent for node in group), strides)


# Most points of one table, so that it stays in the cache while an interpreter reads it.
_MAX_POINTS = 1 << 13


class Point(NamedTuple):
    """The offsets of a box in src and dst; the interpreter of boxes reads a table of points."""

    # in bytes, those of 4-bit elements in elements; `NOWHERE` in src: zeros are written
    src: int
    dst: int


_POINT = fields_of(Point)


def each_points(indirect: tuple[IndirectLoop, ...]) -> Iterator[Words]:
    """Yield the points of all steps of indirect loops, in tables of bounded size.

    A row has the offset in each operand, in elements: src, dst, then those of the parameters.
    """
    space = _MAX_POINTS
    steps = []
    for loop in reversed(indirect):
        steps.append(max(1, min(loop.extent, space)))
        space //= steps[-1]
    ranges = [
        range(0, loop.extent, step) for loop, step in zip(indirect, reversed(steps), strict=True)
    ]
    for starts in product(*ranges):
        points = np.zeros((1, len(_POINT) + len(indirect[0].params)), np.int64)
        for loop, start, range_of_loop in zip(indirect, starts, ranges, strict=True):
            stop = min(start + range_of_loop.step, loop.extent)
            offsets = np.stack(loop.tables(start, stop), axis=1)
            src = points[:, None, _POINT.src]
            is_padding = (src == NOWHERE) | (offsets[:, _POINT.src] == NOWHERE)
            points = points[:, None] + offsets
            points[..., _POINT.src][is_padding] = NOWHERE
            points = points.reshape(-1, offsets.shape[1])
        yield points


def points_in_bytes(points: Words, bits: int) -> Words:
    """Return points of `bits`-bit elements as a table of `Point`."""
    offsets = points[:, : len(_POINT)]
    scaled = np.ascontiguousarray(offsets * width_of(bits))
    scaled[offsets[:, _POINT.src] == NOWHERE, _POINT.src] = NOWHERE
    return scaled
