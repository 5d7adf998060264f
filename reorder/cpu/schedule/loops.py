"""Facts about groups of loops: their number of steps, contiguous runs and offset tables.

A side is 0 for src and 1 for dst.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import prod

import numpy as np

from reorder.plan.nodes import IndirectLoop, Node


def size_of(loops: Iterable[Node | IndirectLoop]) -> int:
    """Return how many steps a nest of these loops has."""
    return prod(node.extent for node in loops)


def contiguous_loops(
    nodes: Sequence[Node], side: int, size: int = 1, *, backwards: bool = False
) -> Iterator[int]:
    """Yield the indices of the loops that extend a contiguous run of `size`, innermost first.

    With `backwards` a loop may go through the run in either direction.

    >>> from reorder.plan.nodes import Node
    >>> list(contiguous_loops((Node(8, 8, (4, 1)), Node(3, 3, (32, 99)), Node(4, 4, (1, 8))), 0))
    [2, 0, 1]
    """
    left: list[int | None] = [node.strides[side] for node in nodes]
    if backwards:
        left = [abs(node.strides[side]) for node in nodes]
    while size in left:
        k = left.index(size)
        yield k
        left[k] = None
        size *= nodes[k].extent


def contiguous_size(nodes: Iterable[Node], side: int, width: int = 1) -> int:
    """Return the length of the contiguous run that loops form on a side, in elements."""
    loops = tuple(nodes)
    return size_of(loops[k] for k in contiguous_loops(loops, side, width))


def count_contiguous(extents: Sequence[int], strides: Sequence[int], size: int = 1) -> int:
    """Return how many of these loops, innermost first, extend a contiguous run of `size`.

    A loop of one step extends any run.
    """
    for count, (extent, stride) in enumerate(zip(extents, strides, strict=True)):
        if stride != size and extent != 1:
            return count
        size *= extent
    return len(extents)


def offset_table(extents: Iterable[int], strides: Iterable[int]) -> list[int]:
    """Return the offset of each step of a loop nest, which is given innermost loop first.

    >>> offset_table((2, 3), (1, 10))
    [0, 1, 10, 11, 20, 21]
    """
    offsets = np.zeros(1, np.int64)
    for extent, stride in zip(extents, strides, strict=True):
        offsets = (np.arange(extent, dtype=np.int64)[:, None] * stride + offsets).ravel()
    table: list[int] = offsets.tolist()
    return table
