"""Boxes as the flat table of int64 that the compiled walker reads.

A record of a box is [kernel, src, dst, loops, inner loops], then four numbers a
loop: extent, valid, src stride, dst stride, outermost first. A task is [start of a
record, first, last]: a range of the outermost loop. A point is [src, dst]: where a
box is placed; src -1 there means zeros.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from reorder.nodes import Box, Lookup, Node

__all__ = ["HEAD", "KERNELS", "LOOP", "RUN", "STRIDED", "TRANSPOSED", "choose", "encode", "points", "split"]

RUN, STRIDED, TRANSPOSED = 0, 1, 2
# numbers in front of the loops of a record, and numbers of a loop
HEAD, LOOP = 5, 4
KERNELS = {RUN: "run", STRIDED: "strided", TRANSPOSED: "transposed"}

# Shorter runs are not worth a tile.
_SHORTEST_RUN = 4
# Lookups are laid out in pieces, so that their tables stay in the cache.
_MAX_POINTS = 1 << 15
_UNIT = (1, 1, 0, 0)


def choose(box: Box) -> tuple[int, tuple[Node, ...]]:
    """Choose the kernel for the innermost loops of a box, and order its loops for it."""
    nodes = box.nodes
    if not nodes or nodes[-1].strides == (1, 1):
        return RUN, nodes
    if nodes[-1].valid == 0 and nodes[-1].strides[1] == 1:
        return RUN, nodes
    rows = next((node for node in nodes if node.strides[0] == 1 and node.extent >= _SHORTEST_RUN), None)
    columns = next((node for node in nodes if node.strides[1] == 1 and node.extent >= _SHORTEST_RUN), None)
    if rows is None or columns is None:
        return STRIDED, nodes
    return TRANSPOSED, (*(node for node in nodes if node not in (rows, columns)), rows, columns)


def encode(boxes: tuple[Box, ...]) -> tuple[NDArray[np.int64], list[tuple[int, int, int]]]:
    """Return the records of boxes, and for each (start, extent of the outermost loop, elements)."""
    program: list[int] = []
    starts = []
    for box in boxes:
        kernel, nodes = choose(box)
        inner = 2 if kernel == TRANSPOSED else 1
        loops = [(node.extent, node.valid, *node.strides) for node in nodes] or [_UNIT]
        starts.append((len(program), loops[0][0], box.size))
        program += [kernel, *box.offsets, len(loops), inner]
        for loop in loops:
            program += loop
    return np.array(program, dtype=np.int64), starts


def split(starts: list[tuple[int, int, int]], parts: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Share the boxes out: tasks, and the first task of each part and one past the last.

    Boxes are cut along their outermost loop, so that parts write equally much.
    """
    total = sum(size for _, _, size in starts)
    tasks: list[tuple[int, int, int]] = []
    bounds = [0]
    done = 0
    for start, extent, size in starts:
        at = 0
        while at < extent:
            room = -(-total * len(bounds) // parts) - done
            take = extent - at if len(bounds) == parts else min(extent - at, max(1, -(-room * extent // size)))
            tasks.append((start, at, at + take))
            at += take
            done += take * size // extent
            if done >= -(-total * len(bounds) // parts) and len(bounds) < parts:
                bounds.append(len(tasks))
    bounds += [len(tasks)] * (parts + 1 - len(bounds))
    return np.array(tasks, dtype=np.int64).reshape(-1, 3), np.array(bounds, dtype=np.int64)


def points(lookups: tuple[Lookup, ...]) -> Iterator[NDArray[np.int64]]:
    """Return where a box with lookups is placed, in pieces of bounded size."""
    room = _MAX_POINTS
    steps = []
    for lookup in reversed(lookups):
        steps.append(max(1, min(lookup.extent, room)))
        room //= steps[-1]
    ranges = [range(0, lookup.extent, step) for lookup, step in zip(lookups, reversed(steps), strict=True)]
    for starts in product(*ranges):
        src = dst = np.zeros(1, dtype=np.int64)
        for lookup, start, loop in zip(lookups, starts, ranges, strict=True):
            own_src, own_dst = lookup.tables(start, min(start + loop.step, lookup.extent))
            is_padding = (src < 0)[:, None] | (own_src < 0)
            src = np.where(is_padding, -1, src[:, None] + own_src).ravel()
            dst = (dst[:, None] + own_dst).ravel()
        yield np.stack([src, dst], axis=1)
