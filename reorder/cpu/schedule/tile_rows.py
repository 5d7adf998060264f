"""Rows of a tile: the elements along its innermost nodes, where each row starts, and its operands.

`strides` are the strides of the tile's nodes in one operand, outermost first.

Here an operand is what arithmetic reads besides the elements: scales, zero points, or the old dst.
An operation finds it in one of three ways:

* in place (`operand_rows`): a value for each element of a row, one value for the row, or values
  that repeat along it;
* if that makes rows short, and all tiles have the same operands, such as those of few channels: in
  a table with a value for each element (`spread_operands`);
* if that makes rows short otherwise: in a slot of scratch, into which they are gathered in the
  order in which the tile is converted (`gathered_operands`). An example is scales in groups along
  dim b of `ab` if dst is `ba`: adjacent elements of a row of dst have different scales, which are
  far apart. Only one value is gathered for each group.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.cpu.schedule.loops import count_contiguous, offset_table
from reorder.cpu.schedule.post_ops import PERIOD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reorder.plan.nodes import Node


# Values of `CombineTable.operand_mask`.
_EACH, _ONE = -1, 0


class TileRows(NamedTuple):
    """Rows that are contiguous on all sides, and how an element finds its value of an operand."""

    # offsets of the rows on each side
    tables: list[list[int]]
    columns: int
    # the `operand_mask` of a `CombineTable`
    mask: int = _EACH
    # the values are stored repeatedly in periods of this length; 0: not in periods
    period: int = 0

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.tables[0])

    @property
    def shift(self) -> int:
        """Log2 of how often a period is stored: offsets of values are shifted left by it."""
        return (2 * PERIOD // self.period).bit_length() - 1 if self.period else 0

    def with_operand(self, offsets: list[int], **how: int) -> TileRows:
        """Return the rows with a table of an operand."""
        return self._replace(tables=[*self.tables, offsets], **how)


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


# Operands that repeat after fewer elements than this gain nothing from a repeated table.
_MIN_PERIOD = 8


def operand_rows(
    nodes: tuple[Node, ...], sides: tuple[list[int], list[int], list[int]], period: int
) -> TileRows:
    """Return the rows of a tile, whose operand is found in one of three ways.

    Tried in this order, each replaces the one before it if its rows are longer: a value for each
    element; one value for the row; values that repeat along the row. `sides` are the strides of
    src, dst and operand; `period` is that of `operand_period`.
    """
    *both, strides = sides
    found = tile_rows(nodes, sides)
    one = tile_rows(nodes, both, _constant_nodes(nodes, strides, 1))
    if one.columns > found.columns or found.columns == 1:
        found = one.with_operand(row_offsets(nodes, strides, one.columns), mask=_ONE)
    if not _MIN_PERIOD <= period <= PERIOD:
        return found
    again = tile_rows(nodes, both, _constant_nodes(nodes, strides, period))
    if again.columns <= found.columns:
        return found
    again = again._replace(mask=PERIOD - 1, period=period)
    offsets = row_offsets(nodes, strides, again.columns)
    return again.with_operand([offset << again.shift for offset in offsets])


def operand_period(
    nodes: tuple[Node, ...], strides: list[int], outer_strides: tuple[int, ...]
) -> int:
    """Return the period of an operand: how many values it has along the innermost nodes.

    0 if that is not a power of two, or if another stride of the nodes or of `outer_strides` is not
    a multiple of it.
    """
    inner = contiguous_nodes(nodes, strides)
    period = prod(node.valid for node in nodes[len(nodes) - inner :])
    outside = [*outer_strides, *strides[: len(nodes) - inner]]
    is_power = not period & (period - 1)
    return period if is_power and not any(stride % period for stride in outside) else 0


def _constant_nodes(nodes: tuple[Node, ...], strides: list[int], period: int) -> int:
    """Return the number of innermost nodes along which an operand has at most `period` values."""
    size, inner = 1, 0
    for node, stride in zip(reversed(nodes), reversed(strides), strict=True):
        if size < period:
            size *= node.valid
        elif stride:
            break
        inner += 1
    return inner


# Rows of fewer elements than this take longer than gathering their operands.
_SHORT_COLUMNS = 32
# Rows that are written by non-temporal stores should have at least this many elements. Shorter ones
# may begin and end inside a cache line, which is then written in parts: 4096 x 4096 f32 in groups
# of 32, 64 and 128 took 3.1, 2.1 and 1.7 times as long as without groups, and 1.2 times with
# gathered operands.
_LONG_STREAMED_COLUMNS = 256


def spread_operands(
    nodes: tuple[Node, ...], sides: tuple[list[int], list[int], list[int]], rows: TileRows
) -> TileRows | None:
    """Return rows with a value for each element, or None if that does not make rows longer."""
    src, dst, _ = sides
    found = operand_rows(nodes, (src, dst, dense_strides(nodes)), 0)
    is_longer = rows.columns < min(_SHORT_COLUMNS, found.columns)
    return found if is_longer else None


def gathered_operands(
    nodes: tuple[Node, ...],
    sides: tuple[list[int], list[int], list[int]],
    rows: TileRows,
    *,
    streams: bool,
) -> TileRows | None:
    """Return rows with gathered operands, or None if `rows`, with operands in place, are enough.

    `sides` as for `operand_rows`; `streams` says that dst is written by non-temporal stores.
    """
    src, dst, strides = sides
    columns = rows.columns
    if columns >= _SHORT_COLUMNS:
        if not streams or columns >= _LONG_STREAMED_COLUMNS:
            return None
        columns = _LONG_STREAMED_COLUMNS - 1
    found = operand_rows(nodes, (src, dst, _gathered_strides(nodes, strides)), 0)
    return found if found.columns > columns else None


def _gathered_strides(nodes: tuple[Node, ...], strides: list[int]) -> list[int]:
    """Return the strides of operands without gaps, in the order of the nodes.

    Nodes along which an operand does not change have stride 0.
    """
    extents = [node.valid if stride else 1 for node, stride in zip(nodes, strides, strict=True)]
    return [prod(extents[k + 1 :]) if stride else 0 for k, stride in enumerate(strides)]
