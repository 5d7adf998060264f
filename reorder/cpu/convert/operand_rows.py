"""Rows of a tile with an operand: a value for each element, one for a row, or a repeating one."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.cpu.convert.operation import PERIOD
from reorder.cpu.convert.row_tables import contiguous_nodes, offset_table, row_tables

if TYPE_CHECKING:
    from reorder.cpu.convert.row_tables import RowTables
    from reorder.plan.nodes import Node

__all__ = ["OperandRows", "operand_period", "operand_rows"]

# Operands that repeat after fewer elements than this gain nothing from a repeated table.
_MIN_PERIOD = 8
# Values of `CombineRecord.operand_mask`.
_EACH, _ONE = -1, 0


class OperandRows(NamedTuple):
    """Rows of src, dst and operand, and how an element finds its value of the operand."""

    rows: RowTables
    # the `operand_mask` of a `CombineRecord`
    mask: int
    # the values are stored repeatedly in periods of this length; 0: each is stored once
    period: int = 0

    @property
    def shift(self) -> int:
        """Log2 of how often a period is stored: offsets of values are shifted left by it."""
        return (2 * PERIOD // self.period).bit_length() - 1 if self.period else 0


def operand_rows(
    nodes: tuple[Node, ...], sides: tuple[list[int], list[int], list[int]], period: int
) -> OperandRows:
    """Return the rows of a tile whose operand is found in one of three ways.

    Tried in this order, each replaces the one before it if its rows are longer: a value for each
    element; one value for the row; values that repeat along the row.

    Parameters
    ----------
    nodes : tuple of Node
        The nodes of the tile.
    sides : tuple of list of int
        Strides of src, dst and operand.
    period : int
        Number of elements after which the operand repeats, see `operand_period`; 0: it does not.
    """
    *both, strides = sides
    found = OperandRows(row_tables(nodes, sides), _EACH)
    one = row_tables(nodes, both, _constant_nodes(nodes, strides, 1))
    if one.columns > found.rows.columns or found.rows.columns == 1:
        table = offset_table(nodes, strides, one.columns)
        found = OperandRows(one._replace(tables=[*one.tables, table]), _ONE)
    if not _MIN_PERIOD <= period <= PERIOD:
        return found
    again = row_tables(nodes, both, _constant_nodes(nodes, strides, period))
    if again.columns <= found.rows.columns:
        return found
    repeating = OperandRows(again, PERIOD - 1, period)
    table = [offset << repeating.shift for offset in offset_table(nodes, strides, again.columns)]
    return repeating._replace(rows=again._replace(tables=[*again.tables, table]))


def operand_period(
    nodes: tuple[Node, ...], strides: list[int], outer_strides: tuple[int, ...]
) -> int:
    """Return the period of an operand: how many values it has along the innermost nodes.

    0 if that is no power of two, or if another stride of the nodes or of `outer_strides` is not
    a multiple of it.
    """
    inner = contiguous_nodes(nodes, strides)
    period = prod(node.valid for node in nodes[len(nodes) - inner :])
    others = [*outer_strides, *strides[: len(nodes) - inner]]
    is_power = not period & (period - 1)
    return period if is_power and not any(stride % period for stride in others) else 0


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
