"""Operands of a tile gathered into a slot of scratch, in the order in which the tile is converted.

Scales in groups along dim b of `ab` are an example, where dst is `ba`: neighbours along a row of
dst have different scales, which lie apart. Few values are gathered, one for each group. Those of
short groups along a row are repeated, so that a vector has its operands in a vector too. Where all
tiles have the same operands, such as those of few channels, a table holds one for each element.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.cpu.convert.moves import move
from reorder.cpu.convert.operand_rows import OperandRows, operand_rows
from reorder.cpu.convert.records import Base, RepeatRecord
from reorder.cpu.convert.repeat_rows import can_repeat
from reorder.cpu.convert.row_tables import dense_strides
from reorder.cpu.convert.stages import repeat_stage
from reorder.cpu.convert.step_writer import Code

if TYPE_CHECKING:
    from reorder.cpu.convert.step_writer import StepWriter, TileBuffer
    from reorder.plan.nodes import Node

__all__ = ["Gathered", "gather", "gathered_operands", "spread_operands"]

# Rows of fewer elements than this take longer than it takes to gather their operands.
_SHORT_COLUMNS = 32
# Rows that are written by non-temporal stores should have as many. Shorter ones may begin and end
# inside a cache line, which is written in parts then: 4096 x 4096 f32 in groups of 32, 64 and 128
# took 3.1, 2.1 and 1.7 times as long as without groups, and 1.2 times with gathered operands.
_LONG_STREAMED_COLUMNS = 256


class Gathered(NamedTuple):
    """Operands in a slot, and the rows of a tile that find them there."""

    rows: OperandRows
    # how often each value is stored
    times: int


def spread_operands(
    nodes: tuple[Node, ...], sides: tuple[list[int], list[int], list[int]], rows: OperandRows
) -> OperandRows | None:
    """Return the rows of a tile with a value for each element, or None if they are no longer.

    Parameters as for `gathered_operands`.
    """
    src, dst, _ = sides
    found = operand_rows(nodes, (src, dst, dense_strides(nodes)), 0)
    is_longer = rows.rows.columns < min(_SHORT_COLUMNS, found.rows.columns)
    return found if is_longer else None


def gathered_operands(
    nodes: tuple[Node, ...],
    sides: tuple[list[int], list[int], list[int]],
    rows: OperandRows,
    *,
    streams: bool,
) -> Gathered | None:
    """Return how operands are gathered, or None if rows with operands in place are long.

    Parameters
    ----------
    nodes : tuple of Node
        The nodes of the tile.
    sides : tuple of list of int
        Strides of src, dst and operand.
    rows : OperandRows
        Rows with operands in place.
    streams : bool
        Whether dst is written by non-temporal stores.
    """
    src, dst, strides = sides
    best, columns = None, rows.rows.columns
    if columns >= _SHORT_COLUMNS:
        if not streams or columns >= _LONG_STREAMED_COLUMNS:
            return None
        columns = _LONG_STREAMED_COLUMNS - 1
    for times in (1, _inner_repetitions(nodes, strides)):
        found = operand_rows(nodes, (src, dst, _dense_strides(nodes, strides, times)), 0)
        if found.rows.columns > columns:
            best, columns = Gathered(found, times), found.rows.columns
    return best


def _inner_repetitions(nodes: tuple[Node, ...], strides: list[int]) -> int:
    """Return how often an operand repeats along the innermost nodes, 1 if no code does that."""
    times = 1
    for node, stride in zip(reversed(nodes), reversed(strides), strict=True):
        if stride:
            break
        times *= node.valid
    return times if can_repeat(times) else 1


def _dense_strides(nodes: tuple[Node, ...], strides: list[int], times: int) -> list[int]:
    """Return the strides of operands without gaps, in the order of the nodes.

    Nodes along which an operand does not change have stride 0, except the innermost ones along
    which it is stored `times` times.
    """
    kept = [bool(stride) for stride in strides]
    for k in range(len(nodes) - 1, -1, -1):
        if times > 1 and not kept[k]:
            kept[k], times = True, times // nodes[k].valid
    extents = [node.valid if keep else 1 for node, keep in zip(nodes, kept, strict=True)]
    return [prod(extents[k + 1 :]) if keep else 0 for k, keep in enumerate(kept)]


def gather(writer: StepWriter, operand: TileBuffer, slot: Base, times: int) -> None:
    """Write the steps that move the operands of a tile into a slot, each `times` times."""
    kept = [k for k, stride in enumerate(operand.strides) if stride]
    parts = writer.reordered([writer.nodes[k] for k in kept])
    source = operand.reordered(kept)
    if times == 1:
        move(parts, source, parts.slot(slot, operand.dtype))
        return
    distinct = move(parts, source, parts.slot(Base.DISTINCT_OPERANDS, operand.dtype))
    record = RepeatRecord(prod(node.valid for node in parts.nodes), times)
    code = Code(repeat_stage(operand.dtype), writer.recipe.keep(record))
    writer.step(code, distinct, writer.slot(slot, operand.dtype))
