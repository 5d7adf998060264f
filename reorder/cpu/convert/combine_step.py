"""The step that runs one operation: where its operand lies, and the record for it."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from memdesc import DATA_TYPES
from reorder.cpu.convert.gathered_operands import gather, gathered_operands, spread_operands
from reorder.cpu.convert.operand_rows import OperandRows, operand_period, operand_rows
from reorder.cpu.convert.operation import (
    SCALING,
    Numbers,
    Operation,
    has_exact_inverses,
    has_quotient,
    rounding_bits,
)
from reorder.cpu.convert.records import NO_OPERAND, Base, CombineRecord
from reorder.cpu.convert.row_tables import offset_table
from reorder.cpu.convert.scratch import SLOT_BITS
from reorder.cpu.convert.stages import combine_stage
from reorder.cpu.convert.step_writer import Code, StepOperand, TileBuffer

if TYPE_CHECKING:
    from reorder.cpu.convert.recipe import Calculation
    from reorder.cpu.convert.step_writer import StepWriter

__all__ = ["combine"]

# Operands with more values than this are not stored repeatedly in periods: that takes up to 16
# times the memory (2 * PERIOD / 8).
_MAX_REPEATED_VALUES = 1 << 14


class _Sides(NamedTuple):
    """What an operation reads and writes."""

    src: TileBuffer
    dst: TileBuffer
    # the working type
    work: str


def combine(
    writer: StepWriter,
    src: TileBuffer,
    dst: TileBuffer,
    calculation: Calculation,
    work: str,
    old: TileBuffer | None = None,
) -> TileBuffer:
    """Write the step of an operation; `old` holds the values of dst, for `ADD_PRODUCT`."""
    operation, kinds = _operation_of(writer, calculation, _Sides(src, dst, work))
    if operation not in SCALING and writer.zeroed_extent(dst):
        # a conversion or a move writes the zeros behind rows
        dst = writer.slot(Base.VALUES, work)
    if calculation.role is not None:
        rows, operand = _with_values(writer, _Sides(src, dst, work), calculation.role, kinds)
    elif operation is Operation.ADD_PRODUCT:
        assert old is not None  # noqa: S101 - there are values to add
        rows = operand_rows(writer.nodes, (src.strides, dst.strides, old.strides), 0)
        factor = writer.recipe.keep([calculation.number], work)
        operand = StepOperand(old.base, old.placed_by, 0, factor)
    else:
        rows = operand_rows(writer.nodes, (src.strides, dst.strides, [0] * len(writer.nodes)), 0)
        operand = StepOperand(writer.recipe.keep([calculation.number], work))
    tables = rows.rows
    distance = writer.prefetch_distance(src, tables)
    extent = writer.masked_extent(dst, tables.columns)
    record = CombineRecord(operation, tables.rows, tables.columns, extent, rows.mask, distance)
    program = writer.recipe.keep([*record, *(start for table in tables.tables for start in table)])
    streams = writer.streams(dst, tables.columns)
    stage = combine_stage(src.dtype, dst.dtype, work, streams=streams)
    return writer.step(Code(stage, program), src, dst, operand=operand)


def _operation_of(
    writer: StepWriter, calculation: Calculation, sides: _Sides
) -> tuple[Operation, tuple[Numbers, ...]]:
    """Return the operation that runs, and what each table of its numbers holds.

    Only `QUOTIENTS` have a second table.
    """
    operation, role, _ = calculation
    if operation is Operation.DIVIDE and role is not None:
        values = writer.recipe.values[role]
        if has_exact_inverses(values):
            return Operation.MULTIPLY, (Numbers.INVERSES,)
        if has_quotient(values, sides.work, sides.dst.dtype):
            if rounding_bits(sides.dst.dtype) is not None:
                return Operation.NARROW_QUOTIENT, (Numbers.LACKING, Numbers.INVERSES)
            return Operation.QUOTIENT, (Numbers.VALUES, Numbers.INVERSES)
    return operation, (Numbers.VALUES,)


def _with_values(
    writer: StepWriter, sides: _Sides, role: str, kinds: tuple[Numbers, ...]
) -> tuple[OperandRows, StepOperand]:
    """Return the rows and the operand for the values of a role, see `_operation_of`."""
    recipe, nodes = writer.recipe, writer.nodes
    values = recipe.values[role]
    placed_by, period, strides = NO_OPERAND, 0, [0] * len(nodes)
    if role in recipe.varying:
        # operands follow src and dst
        placed_by = 2 + recipe.varying.index(role)
        strides = [node.strides[placed_by] for node in nodes]
        if values.size <= _MAX_REPEATED_VALUES:
            period = operand_period(nodes, strides, writer.outer_strides[placed_by])
    strided = (sides.src.strides, sides.dst.strides, strides)
    rows = operand_rows(nodes, strided, period)
    spread = spread_operands(nodes, strided, rows)
    if spread is not None and not any(writer.outer_strides[placed_by][1:]):
        # all tiles have the same operands
        start = writer.outer_strides[placed_by][0]
        places = [start + place for place in offset_table(nodes, strides, 1)]
        bases = [recipe.address_of_places(role, sides.work, places, kind) for kind in kinds]
        return spread, StepOperand(bases[0], number_base=bases[-1])
    streams = writer.recipe.streams and sides.dst.base is Base.DST
    fits_slot = prod(node.valid for node in nodes) * DATA_TYPES[sides.work].bits <= SLOT_BITS
    gathered = gathered_operands(nodes, strided, rows, streams=streams) if fits_slot else None
    if gathered is not None:
        for kind, slot in zip(kinds, (Base.OPERANDS, Base.RECIPROCALS), strict=False):
            address = recipe.address_of_values(role, sides.work, 0, kind)
            operand = TileBuffer(address, sides.work, placed_by, strides)
            gather(writer, operand, slot, gathered.times)
        return gathered.rows, StepOperand(Base.OPERANDS, number_base=Base.RECIPROCALS)
    bases = [recipe.address_of_values(role, sides.work, rows.period, kind) for kind in kinds]
    return rows, StepOperand(bases[0], placed_by, -rows.shift, bases[-1])
