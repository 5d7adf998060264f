"""Boxes as the flat table of int64 that the compiled walker reads.

A record of a box is [kernel, src, dst, outer loops, end of src], four numbers for each
outer loop (extent, valid, src stride, dst stride; outermost first), and what the kernel
takes: [rows, valid] with the loop of the columns, two tables, src and dst offsets of the
rows, and how far the last row starts behind the first; or for transposed nests [columns,
valid, rows, valid, run of the columns in dst, run of the rows in src, how far the last row
starts behind the first, is src far] and two tables, dst offsets of the columns and src
offsets of the rows, with the loop around both behind them: [extent, src stride, dst
stride]. A task is [start of a record, first, last, low, high]: a range of the steps of all
outer loops and one of the kernel's rows or columns.
A point is [src, dst]: where a box is placed; src `NOWHERE` there means zeros.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reorder.cpu.schedule.select import STRIDED, TILE, TRANSPOSED, Choice, choose
from reorder.cpu.target import LINE_BITS
from reorder.plan.nodes import NOWHERE
from reorder.plan.passes import split_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from reorder.plan.nodes import Box, Lookup, Node

__all__ = ["HEAD", "LOOP", "Record", "encode", "fills_lines", "points", "split", "tile"]

# numbers in front of the loops of a record, and numbers of a loop
HEAD, LOOP = 5, 4

# Tiles have so many bits of a row, or more.
_LANE_BITS = 128
# Threads share what the transposing kernel takes in whole cache lines.
_GRAIN = 64
# What the transposing kernel moves at once, the loop around its nests with them.
_AROUND = 1 << 12
# How often boxes take turns.
_MAX_TURNS = 16
# Runs are short up to so many elements.
_SHORT_RUN = 128
# Longer runs are cut, so that threads can share them.
_MAX_RUN = 1 << 15
# Lookups are laid out in pieces, so that their tables stay in the cache.
_MAX_POINTS = 1 << 13


class Record(NamedTuple):
    """Where a box stands in the program, and how it can be shared."""

    start: int
    outer: int
    inner: int
    grain: int
    size: int


def tile(boxes: tuple[Box, ...]) -> tuple[Box, ...]:
    """Cut what a kernel takes at once to what the cache holds."""
    done: list[Box] = []
    todo = [part for box in reversed(boxes) for part in _near(box)]
    while todo:
        box = todo.pop()
        choice = choose(box)
        nests = [choice.rows] if choice.kernel != TRANSPOSED else [choice.columns, choice.rows]
        sizes = [prod(node.extent for node in nest) for nest in nests]
        long = next((nest for nest, own in zip(nests, sizes, strict=True) if own >= 2 * TILE), None)
        # a slim tile may be longer: what counts is its area
        room = 4 * TILE if min(sizes) <= TILE // 4 else TILE
        # whole inner nodes, and as many steps of the last one as fit
        size = max(1, room // prod(node.extent for node in long[:-1])) if long else 0
        if choice.kernel != TRANSPOSED and choice.columns[0].extent > 2 * _MAX_RUN:
            long, size = choice.columns, _MAX_RUN
        around = _around(choice)
        if long is None and around:
            long, size = (around,), max(1, _AROUND // prod(sizes))
        if long is None or size >= long[-1].extent:
            done.append(box)
        else:
            todo += split_node(box, long[-1], size)
    return tuple(done)


def _around(choice: Choice) -> Node | None:
    """Return the loop that the transposing kernel runs around small nests, all of which is data."""
    size = prod(node.extent for node in (*choice.rows, *choice.columns))
    if choice.kernel != TRANSPOSED or 2 * size > _AROUND or not choice.outer:
        return None
    last = choice.outer[-1]
    return last if last.valid == last.extent else None


def _near(box: Box) -> Iterator[Box]:
    """Order the loops around short runs so that steps that are near in src, and others near in dst, follow each other.

    Either side is then used by whole cache lines soon after each other, though each is
    contiguous along another loop.
    """
    choice = choose(box)
    run = choice.columns[0]
    outer = box.nodes[:-1]
    if choice.kernel == TRANSPOSED or box.is_zero or run.extent > _SHORT_RUN or len(outer) < 2:  # noqa: PLR2004 - of two loops one is nearer
        yield box
        return
    near_dst = outer[-1]
    near_src = min(outer, key=lambda node: abs(node.strides[0]) or 2**63)
    if (
        near_src is near_dst
        or near_src.valid < near_src.extent
        or abs(near_src.strides[0]) >= abs(near_dst.strides[0])
    ):
        yield box
        return
    # what is swept at once: some steps of one loop, inside of some of the other
    across = max(1, _SHORT_RUN // run.extent)
    for part in split_node(box, near_dst, across) if near_dst.extent > across else (box,):
        if part.is_zero:
            yield part
            continue
        along = max(1, TILE // min(across, near_dst.extent))
        for whole in split_node(part, near_src, along) if near_src.extent > along else (part,):
            inner = next(node for node in whole.nodes if node.strides == near_src.strides)
            rest = tuple(node for node in whole.nodes if node != inner)
            yield whole._replace(nodes=(*rest[:-2], inner, *rest[-2:]))


def fills_lines(box: Box, bits: int) -> bool:
    """Whether a box writes whole cache lines only, if dst starts with one."""
    line = LINE_BITS // bits
    choice = choose(box)
    if (
        choice.kernel == TRANSPOSED
        and prod(node.extent for node in choice.columns) < _LANE_BITS // bits
    ):
        # tiles are wider, and what is too much of them is no line of its own
        return False
    inner = choice.rows if choice.kernel == TRANSPOSED else choice.columns
    others = [node.strides[-1] for node in box.nodes if node not in inner]
    numbers = [prod(node.extent for node in inner), box.offsets[-1], *others]
    return choice.kernel != STRIDED and not any(number % line for number in numbers)


def encode(
    boxes: tuple[Box, ...], end: int, *, is_far: bool
) -> tuple[NDArray[np.int64], list[Record]]:
    """Write the records of boxes; elements of src from `end` on must not be read.

    With `is_far` no cache has src, so that kernels ask early for what they read next.
    """
    program: list[int] = []
    records = []
    for box in boxes:
        choice = choose(box)
        kernel, outer, rows, columns = choice
        around = _around(choice)
        if around and around.extent > _AROUND // prod(node.extent for node in (*rows, *columns)):
            around = None
        if around:
            outer = outer[:-1]
        start = len(program)
        program += [kernel, *box.offsets, len(outer), end]
        for node in outer:
            program += _numbers(node)
        if kernel == TRANSPOSED:
            to, fro = _table(columns, 1), _table(rows, 0)
            program += [
                len(to),
                _valid(columns),
                len(fro),
                _valid(rows),
                _run(columns, rows, 1),
                _run(rows, columns, 0),
                max(fro),
                int(is_far),
                *to,
                *fro,
                *((around.extent, *around.strides) if around else (1, 0, 0)),
            ]
            inner, grain = len(to), _GRAIN
        else:
            fro, to = _table(rows, 0), _table(rows, 1)
            program += [len(to), _valid(rows), *_numbers(columns[0]), *fro, *to, max(fro)]
            inner, grain = len(to), 1
        records.append(Record(start, prod(node.extent for node in outer), inner, grain, box.size))
    return np.array(program, dtype=np.int64), records


def _numbers(node: Node) -> tuple[int, ...]:
    return node.extent, node.valid, *node.strides


def _valid(nest: tuple[Node, ...]) -> int:
    """Return how many elements of a nest hold data: only its last node is ever ragged."""
    return prod(node.extent for node in nest[:-1]) * nest[-1].valid


def _run(nest: tuple[Node, ...], other: tuple[Node, ...], side: int) -> int:
    """Return how many elements of a nest follow each other on a side with no gap but the other nest's size, or 0."""
    size = prod(node.extent for node in other)
    run = 1
    for node in nest:
        if node.strides[side] != run * size:
            break
        run *= node.extent
    return run if run > 1 else 0


def _table(nest: tuple[Node, ...], side: int) -> list[int]:
    offsets = np.zeros(1, np.int64)
    for node in nest:
        offsets = (
            np.arange(node.extent, dtype=np.int64)[:, None] * node.strides[side] + offsets
        ).ravel()
    return [int(offset) for offset in offsets]


def split(records: list[Record], parts: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Share the boxes out: tasks, and the first task of each part and one past the last.

    Boxes are cut along their outer loops, taken as one, or along what the kernel takes
    where those have fewer steps than there are parts. They take turns, since what one
    reads the other may have brought near.
    """
    total = sum(record.size for record in records)
    turns = max(1, min(_MAX_TURNS, total // (_AROUND * len(records)))) if len(records) > 1 else 1
    tasks: list[tuple[int, ...]] = []
    bounds = [0]
    done = 0
    for turn, record in product(range(turns), records):
        is_outer = record.outer >= parts or record.outer >= -(-record.inner // record.grain)
        extent = record.outer if is_outer else -(-record.inner // record.grain)
        at, end = (extent * step // turns for step in (turn, turn + 1))
        while at < end:
            room = -(-total * len(bounds) // parts) - done
            take = (
                end - at
                if len(bounds) == parts
                else min(end - at, max(1, -(-room * extent // record.size)))
            )
            first, last = at, at + take
            if is_outer:
                tasks.append((record.start, first, last, 0, record.inner))
            else:
                tasks.append(
                    (
                        record.start,
                        0,
                        record.outer,
                        first * record.grain,
                        min(last * record.grain, record.inner),
                    )
                )
            at += take
            done += take * record.size // extent
            if done >= -(-total * len(bounds) // parts) and len(bounds) < parts:
                bounds.append(len(tasks))
    bounds += [len(tasks)] * (parts + 1 - len(bounds))
    return np.array(tasks, dtype=np.int64).reshape(-1, 5), np.array(bounds, dtype=np.int64)


def points(lookups: tuple[Lookup, ...]) -> Iterator[NDArray[np.int64]]:
    """Return where a box with lookups is placed in every operand, in pieces of bounded size."""
    room = _MAX_POINTS
    steps = []
    for lookup in reversed(lookups):
        steps.append(max(1, min(lookup.extent, room)))
        room //= steps[-1]
    ranges = [
        range(0, lookup.extent, step) for lookup, step in zip(lookups, reversed(steps), strict=True)
    ]
    for starts in product(*ranges):
        places = np.zeros((1, 2 + len(lookups[0].others)), np.int64)
        for lookup, start, loop in zip(lookups, starts, ranges, strict=True):
            own = np.stack(lookup.tables(start, min(start + loop.step, lookup.extent)), axis=1)
            is_padding = (places[:, None, 0] == NOWHERE) | (own[:, 0] == NOWHERE)
            places = places[:, None] + own
            places[..., 0] = np.where(is_padding, NOWHERE, places[..., 0])
            places = places.reshape(-1, own.shape[1])
        yield places
