"""Loops that together form a contiguous run on one side of a box.

An element stride is the stride between neighbouring elements: wide elements that start at any byte
have strides in narrow ones.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from reorder.plan.nodes import Node

__all__ = ["contiguous_loops", "contiguous_size", "count_contiguous"]


def contiguous_loops(
    nodes: Sequence[Node], side: int, element_stride: int = 1, *, backwards: bool = False
) -> Iterator[int]:
    """Yield the numbers of the loops that form a contiguous run on a side, innermost first.

    With `backwards` a loop may go through the run in either direction.

    >>> from reorder.plan.nodes import Node
    >>> list(contiguous_loops((Node(8, 8, (4, 1)), Node(3, 3, (32, 99)), Node(4, 4, (1, 8))), 0))
    [2, 0, 1]
    """
    strides = [node.strides[side] for node in nodes]
    left = {k: abs(stride) if backwards else stride for k, stride in enumerate(strides)}
    size = element_stride
    while (k := next((k for k, stride in left.items() if stride == size), None)) is not None:
        yield k
        del left[k]
        size *= nodes[k].extent


def contiguous_size(nodes: Iterable[Node], side: int, element_stride: int = 1) -> int:
    """Return the length of the contiguous run that some loops form on a side."""
    loops = tuple(nodes)
    return prod(loops[k].extent for k in contiguous_loops(loops, side, element_stride))


def count_contiguous(extents: Sequence[int], strides: Sequence[int], size: int = 1) -> int:
    """Return how many of some loops, innermost first, continue a run of a size in this order.

    Loops of one step continue any run.
    """
    for count, (extent, stride) in enumerate(zip(extents, strides, strict=True)):
        if stride != size and extent != 1:
            return count
        size *= extent
    return len(extents)
