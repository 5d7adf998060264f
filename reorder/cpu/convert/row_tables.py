"""Rows of a tile: the elements along its innermost nodes, and tables of where each row starts.

`strides` are the strides of the tile's nodes in one operand, outermost first.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reorder.plan.nodes import Node

__all__ = ["RowTables", "contiguous_nodes", "dense_strides", "offset_table", "row_tables"]


class RowTables(NamedTuple):
    """Rows that are contiguous on all sides: a table of offsets for each side, and their length."""

    tables: list[list[int]]
    columns: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.tables[0])


def contiguous_nodes(nodes: tuple[Node, ...], strides: list[int]) -> int:
    """Return how many of the innermost nodes are contiguous together."""
    size = 1
    for count, (node, stride) in enumerate(zip(reversed(nodes), reversed(strides), strict=True)):
        if stride != size and node.valid != 1:
            return count
        size *= node.valid
    return len(nodes)


def dense_strides(nodes: tuple[Node, ...]) -> list[int]:
    """Return the strides of a tile whose data lies without gaps, in the order of the nodes."""
    return [prod(node.valid for node in nodes[k + 1 :]) for k in range(len(nodes))]


def row_tables(
    nodes: tuple[Node, ...], sides: Iterable[list[int]], max_nodes: int | None = None
) -> RowTables:
    """Return the longest rows that are contiguous on all sides, of at most `max_nodes` nodes."""
    sides = list(sides)
    inner = min(contiguous_nodes(nodes, strides) for strides in sides)
    inner = inner if max_nodes is None else min(inner, max_nodes)
    columns = prod(node.valid for node in nodes[len(nodes) - inner :])
    return RowTables([offset_table(nodes, strides, columns) for strides in sides], columns)


def offset_table(nodes: tuple[Node, ...], strides: list[int], columns: int) -> list[int]:
    """Return where each row of `columns` elements starts."""
    offsets = np.zeros(1, np.int64)
    size = 1
    for node, stride in zip(reversed(nodes), reversed(strides), strict=True):
        if size >= columns:
            starts = np.arange(node.valid, dtype=np.int64)[:, None] * stride
            offsets = (starts + offsets).ravel()
        size *= node.valid
    return [int(offset) for offset in offsets]
