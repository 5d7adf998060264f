"""The stage of arithmetic: one operation over rows of values.

Elements are decoded before it, and its results encoded after it, in registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reorder.cpu.convert.operation import QUOTIENTS, SCALING, Operation, rounding_bits
from reorder.cpu.convert.records import CombineRecord, Placement, table_addresses
from reorder.cpu.convert.row_operation import OperationRows, RowOperation
from reorder.cpu.convert.rows import (
    BLOCK,
    Row,
    each_line,
    each_vector,
    emit_zeroed,
    masks_elements,
    vector_lanes,
)
from reorder.cpu.kernels.elements import Location
from reorder.cpu.kernels.emit import int64, load_int64, load_record, loop
from reorder.cpu.target import has_fma

if TYPE_CHECKING:
    from collections.abc import Callable

    from reorder.cpu.convert.rows import StageArguments
    from reorder.cpu.kernels.emit import Builder, Value

__all__ = ["CombineTypes", "emit_combine"]

# Registers of one vector of an operation: a single test for rare numbers covers them all.
_REGISTERS = 4


class CombineTypes(NamedTuple):
    """What the arithmetic is compiled for."""

    src: str
    dst: str
    # the working type, which the operands have: f32 or f64
    work: str
    # whether whole cache lines of dst are written by non-temporal stores
    streams: bool


class _Stage(NamedTuple):
    """What is loaded once, for all rows."""

    types: CombineTypes
    record: CombineRecord
    # where src, dst and the operand start, and the tables of their rows
    starts: tuple[Location, ...]
    tables: list[Value]
    number_address: Value


def emit_combine(builder: Builder, arguments: StageArguments, types: CombineTypes) -> None:
    """Emit all operations of a working type; a `CombineRecord` says which one runs.

    src and dst may be the same.
    """
    record = load_record(builder, arguments.record, CombineRecord)
    placement = load_record(builder, arguments.placement, Placement)
    starts = (
        Location(arguments.src, placement.src_offset),
        Location(arguments.dst, placement.dst_offset),
        Location(placement.operand_address, placement.operand_offset),
    )
    tables = table_addresses(builder, arguments.record, CombineRecord, record.rows, len(starts))
    stage = _Stage(types, record, starts, tables, placement.number_address)
    is_single = builder.icmp_signed("==", record.operand_mask, int64(0))
    for operation in Operation:
        if operation in QUOTIENTS and not _has_quotient(operation, types):
            continue
        is_chosen = builder.icmp_signed("==", record.operation, int64(operation))
        with builder.if_then(is_chosen):
            if operation in {Operation.ROUND_F16, Operation.CLAMP}:
                _emit_rows(builder, stage, operation, single=True)
                continue
            with builder.if_else(is_single) as (one, many):
                with one:
                    _emit_rows(builder, stage, operation, single=True)
                with many:
                    _emit_rows(builder, stage, operation, single=False)


def _has_quotient(operation: Operation, types: CombineTypes) -> bool:
    """Whether one of `QUOTIENTS` is compiled for some types."""
    is_narrow = rounding_bits(types.dst) is not None
    is_of_dst = (operation is Operation.NARROW_QUOTIENT) == is_narrow
    return is_of_dst and types.work == "f32" and has_fma()


def _emit_rows(builder: Builder, stage: _Stage, operation: Operation, *, single: bool) -> None:
    """Emit the operation on all rows; with `single` all elements of a row share one operand."""
    record = stage.record

    def each(emit: Callable[[RowOperation], None]) -> None:
        with loop(builder, int64(0), record.rows) as row:
            rows = _rows_at(builder, stage, operation, row)
            emit(RowOperation(operation, rows, record, single=single))

    if operation not in SCALING or stage.types.streams:
        each(_emit_row)
        return
    # a loop of its own for short rows: one for all has more addresses than registers
    is_block = builder.icmp_signed("==", record.columns, int64(BLOCK))
    with builder.if_else(is_block) as (block, other):
        with block:
            each(lambda row: row.run(int64(0), BLOCK))
        dtypes = stage.types.src, stage.types.dst
        with other, emit_zeroed(builder, dtypes, record, lambda: each(_emit_short_row)):
            each(_emit_row)


def _rows_at(builder: Builder, stage: _Stage, operation: Operation, row: Value) -> OperationRows:
    """Return where a row lies on each side."""
    types = stage.types
    src, dst, operand = (
        start.plus(builder, load_int64(builder, table, row))
        for start, table in zip(stage.starts, stage.tables, strict=True)
    )
    # reciprocals lie as the operands do
    factor_index = operand.index if operation in QUOTIENTS else int64(0)
    return OperationRows(
        Row.at(builder, types.src, src),
        Row.at(builder, types.dst, dst, streams=types.streams),
        Row.at(builder, types.work, operand),
        Row.at(builder, types.work, Location(stage.number_address, factor_index)),
    )


def _emit_short_row(row: RowOperation) -> None:
    """Emit the operation on one row by one vector, which may write zeros behind it."""
    row.run_masked(int64(0), row.record.columns, row.record.extent)


def _emit_row(row: RowOperation) -> None:
    """Emit the operation on one row of any length."""
    src, dst, operand, _ = row.rows
    sizes = vector_lanes(operand.dtype, _REGISTERS)

    def combine(i: Value, lanes: int, *, non_temporal: bool = False) -> None:
        if lanes == sizes[0] and not src.elements.fills_line(lanes):
            src.prefetch(i, lanes, row.record.prefetch_distance)
        row.run(i, lanes, non_temporal=non_temporal)

    # src may be dst, so vectors must not overlap: elements would be computed twice
    if dst.elements.streams:
        each_line(dst, row.record.columns, sizes, combine, overlaps=False)
        return
    builder, columns = src.elements.builder, row.record.columns
    if not masks_elements(src.dtype, dst.dtype, operand.dtype):
        each_vector(builder, (int64(0), columns), sizes, combine, overlaps=False)
        return
    # the tail is one vector
    whole = builder.and_(columns, int64(-BLOCK))
    each_vector(builder, (int64(0), whole), (sizes[0], BLOCK), combine, overlaps=False)
    tail = builder.sub(columns, whole)
    with builder.if_then(builder.icmp_signed(">", tail, int64(0))):
        row.run_masked(whole, tail, tail)
