"""Boxes with small indirection tables: the steps of a table become rows or columns of a kernel.

The tables of larger boxes are computed as they run, and such a box runs once at each of its points.
"""

from collections.abc import Iterator
from itertools import chain

import numpy as np

from memdesc.dtypes import BYTE_BITS
from reorder.cpu.schedule.loops import size_of
from reorder.cpu.schedule.program import each_points, points_in_bytes
from reorder.cpu.schedule.select import (
    RUN,
    STRIDED,
    TILE,
    TRANSPOSED,
    ScheduledBox,
    Tables,
    contiguous_group,
    width_of,
)
from reorder.cpu.tables import Words
from reorder.plan.nodes import DST, NOWHERE, SRC, Box, Node
from reorder.plan.passes import zeros_of

# The most steps of tables that become part of a program.
_MAX_STEPS = 1 << 14
# The fewest steps of a table that are transposed together: each such part is an instruction.
_MIN_GROUP = 8


def has_table(box: Box) -> bool:
    """Whether the indirect loops of a box have so few steps that `schedule_table` takes it."""
    return size_of(box.indirect) <= _MAX_STEPS


def schedule_table(box: Box, bits: int) -> Iterator[ScheduledBox]:
    """Schedule a box with indirect loops of a few steps."""
    points = points_in_bytes(np.concatenate([*each_points(box.indirect)]), bits)
    is_data = (points[:, SRC] != NOWHERE) & (not box.is_zero)
    points[~is_data, SRC] = 0
    box = box._replace(indirect=())
    for part, rows in ((box, points[is_data]), (zeros_of(box), points[~is_data])):
        if len(rows):
            yield from _transposed(part, rows, bits) or _rows(part, rows, bits)


def _rows(box: Box, points: Words, bits: int) -> Iterator[ScheduledBox]:
    """Schedule a box at some points as rows, in the order of dst, so that its lines move once."""
    width = width_of(bits)
    *others, run = box.nodes or (Node(1, 1, (0, 0)),)
    is_run = run.strides[DST] == width and (box.is_zero or run.strides[SRC] == width)
    outer, points = _with_loops(points, others, 2 * TILE)
    points = points[np.argsort(points[:, DST], kind="stable")]
    for start in range(0, len(points), 2 * TILE):
        chunk = points[start : start + 2 * TILE]
        # in dst as if the rows were contiguous; no loop of the box has this stride in src
        row = Node(len(chunk), len(chunk), (NOWHERE, run.extent * run.strides[DST]))
        whole = box._replace(nodes=(*outer, row, run))
        tables = Tables(*(tuple(offsets) for offsets in chunk.T.tolist()))
        yield ScheduledBox(whole, bits, RUN if is_run else STRIDED, (row,), (run,), tables)


def _with_loops(points: Words, loops: list[Node], limit: int) -> tuple[list[Node], Words]:
    """Return the points of the innermost loops too, up to a limit, and the loops around them."""
    outer = [*loops]
    while outer and outer[-1].valid in (0, outer[-1].extent):
        node = outer[-1]
        if len(points) * node.extent > limit:
            break
        steps = np.arange(node.extent)[:, None, None] * np.array(outer.pop().strides)
        points = (points + steps).reshape(-1, 2)
    return outer, points


def _transposed(box: Box, points: Words, bits: int) -> list[ScheduledBox]:
    """Schedule a box as transpositions of points that are contiguous on a side; else none.

    The loops of the box that are contiguous on the other side are the other group.
    """
    width = width_of(bits)
    is_run = any(node.strides == (width, width) for node in box.nodes)
    if bits < BYTE_BITS or box.is_zero or is_run:
        return []
    for side in (SRC, DST):
        group = contiguous_group(box.nodes, 1 - side, bits)
        others = [node for node in box.nodes if node not in group]
        outer, rows = _with_loops(points, others, 8 * TILE)
        rows = rows[np.argsort(rows[:, side], kind="stable")]
        ends = 1 + np.flatnonzero(np.diff(rows[:, side]) != width)
        size = int(np.gcd.reduce([*ends, len(rows)]))
        if group and size >= _MIN_GROUP and size_of(group) < 2 * TILE:
            starts = (range(start, start + size, TILE) for start in range(0, len(rows), size))
            tables = np.split(rows, [*chain.from_iterable(starts)][1:])
            part = box._replace(nodes=(*outer, *group))
            return [_transposition(part, table, group, bits, side) for table in tables]
    return []


def _transposition(
    box: Box, points: Words, group: tuple[Node, ...], bits: int, side: int
) -> ScheduledBox:
    """Schedule a loop group of a box, and points that are contiguous on the other `side`."""
    (src, dst), table = box.offsets, tuple(points[:, 1 - side].tolist())
    start, count, rows, columns = int(points[0, side]), len(points), group, group
    if side == SRC:
        offsets, tables = (src + start, dst), Tables(dst=table)
        columns = (Node(count, count, (width_of(bits), 0)),)
    else:
        offsets, tables = (src, dst + start), Tables(src=table)
        rows = (Node(count, count, (0, width_of(bits))),)
    outer = (node for node in box.nodes if node not in group)
    part = Box(offsets, (*outer, *rows, *columns))
    return ScheduledBox(part, bits, TRANSPOSED, rows, columns, tables)
