"""Rows of a tile: the elements along its innermost nodes, and where each row starts.

`strides` are the strides of the tile's nodes in one operand, outermost first.
"""

from collections.abc import Iterable
from math import prod

from memdesc.tuples import NamedTuple
from reorder.cpu.schedule.loops import count_contiguous, offset_table
from reorder.plan.nodes import Node


class TileRows(NamedTuple):
    """Rows that are contiguous on all sides."""

    # offsets of the rows on each side
    tables: list[list[int]]
    columns: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.tables[0])


def contiguous_nodes(nodes: tuple[Node, ...], strides: list[int]) -> int:
    """Return how many of the innermost nodes are contiguous together."""
    return count_contiguous([node.valid for node in reversed(nodes)], strides[::-1])


def dense_strides(nodes: tuple[Node, ...]) -> list[int]:
    """Return the strides of a tile whose data has no gaps, in the order of the nodes."""
    return [prod(node.valid for node in nodes[k + 1 :]) for k in range(len(nodes))]


def tile_rows(
    nodes: tuple[Node, ...], sides: Iterable[list[int]], max_nodes: int | None = None
) -> TileRows:
    """Return the longest rows that are contiguous on all sides, of at most `max_nodes` nodes."""
    sides = list(sides)
    inner = min(contiguous_nodes(nodes, strides) for strides in sides)
    inner = inner if max_nodes is None else min(inner, max_nodes)
    columns = prod(node.valid for node in nodes[len(nodes) - inner :])
    return TileRows([row_offsets(nodes, strides, columns) for strides in sides], columns)


def row_offsets(nodes: tuple[Node, ...], strides: list[int], columns: int) -> list[int]:
    """Return where each row of `columns` elements starts."""
    loops: list[tuple[int, int]] = []
    size = 1
    for node, stride in zip(reversed(nodes), reversed(strides), strict=True):
        if size >= columns:
            loops.append((node.valid, stride))
        size *= node.valid
    return offset_table((extent for extent, _ in loops), (stride for _, stride in loops))
