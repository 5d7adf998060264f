"""The stage of arithmetic: one operation over rows of values.

Elements are decoded before it, and its results encoded after it, in registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from llvmlite import ir

from reorder.cpu.convert.arithmetic import Operands, apply
from reorder.cpu.convert.codec import Codec
from reorder.cpu.convert.operation import SCALING, Operation
from reorder.cpu.convert.records import CombineRecord, Placement, table_addresses
from reorder.cpu.convert.rows import Row, each_line, each_vector, emit_zeroed, vector_lanes
from reorder.cpu.kernels.elements import Location
from reorder.cpu.kernels.emit import int64, load_int64, load_record, loop
from reorder.cpu.target import has_fma

if TYPE_CHECKING:
    from reorder.cpu.convert.rows import StageArguments
    from reorder.cpu.kernels.emit import Builder, Value

__all__ = ["CombineTypes", "emit_combine"]

# Registers of one vector of an operation: a single test for rare numbers covers them all.
_REGISTERS = 4
# Rows of exactly this many elements, one block of channels, are one vector without loops, in the
# operations of scales.
_BLOCK = 16


class CombineTypes(NamedTuple):
    """What the arithmetic is compiled for."""

    src: str
    dst: str
    # the working type, which the operands have: f32 or f64
    work: str
    # whether whole cache lines of dst are written by non-temporal stores
    streams: bool


class _Rows(NamedTuple):
    """One row of each side of an operation."""

    src: Row
    dst: Row
    operand: Row
    # what `ADD_PRODUCT` multiplies with, or the reciprocals of `QUOTIENT`
    factor: Row


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
        if operation is Operation.QUOTIENT and not (types.work == "f32" and has_fma()):
            continue
        is_chosen = builder.icmp_signed("==", record.operation, int64(operation))
        with builder.if_then(is_chosen), loop(builder, int64(0), record.rows) as row:
            rows = _rows_at(builder, stage, operation, row)
            if operation in {Operation.ROUND_F16, Operation.CLAMP}:
                _emit_row(operation, rows, record, single=True)
                continue
            with builder.if_else(is_single) as (one, many):
                with one:
                    _emit_row(operation, rows, record, single=True)
                with many:
                    _emit_row(operation, rows, record, single=False)


def _rows_at(builder: Builder, stage: _Stage, operation: Operation, row: Value) -> _Rows:
    """Return where a row lies on each side."""
    types = stage.types
    src, dst, operand = (
        start.plus(builder, load_int64(builder, table, row))
        for start, table in zip(stage.starts, stage.tables, strict=True)
    )
    # reciprocals lie as the operands do
    factor_index = operand.index if operation is Operation.QUOTIENT else int64(0)
    return _Rows(
        Row.at(builder, types.src, src),
        Row.at(builder, types.dst, dst, streams=types.streams),
        Row.at(builder, types.work, operand),
        Row.at(builder, types.work, Location(stage.number_address, factor_index)),
    )


def _emit_row(operation: Operation, rows: _Rows, record: CombineRecord, *, single: bool) -> None:
    """Emit the operation on one row; with `single` all of its elements share one operand."""
    builder, work = rows.src.elements.builder, rows.operand.dtype
    row = _Operation(operation, rows, record, single=single)
    sizes = vector_lanes(work, _REGISTERS)

    def combine(i: Value, lanes: int, *, non_temporal: bool = False) -> None:
        if rows.src.elements.fills_line(lanes) or lanes == sizes[0]:
            rows.src.prefetch(i, lanes, record.prefetch_distance)
        rows.dst.store(row.results(rows.src.load(i, lanes), i), i, non_temporal=non_temporal)

    # src may be dst, so vectors must not overlap: elements would be computed twice
    if rows.dst.elements.streams:
        each_line(rows.dst, record.columns, sizes, combine, overlaps=False)
        return
    whole = int64(0), record.columns
    if operation not in SCALING:
        each_vector(builder, whole, sizes, combine, overlaps=False)
        return
    is_block = builder.icmp_signed("==", record.columns, int64(_BLOCK))
    with builder.if_else(is_block) as (block, other):
        with block:
            combine(int64(0), _BLOCK)
        with other, emit_zeroed(rows.src, rows.dst, record, row.results):
            each_vector(builder, whole, sizes, combine, overlaps=False)


class _Operation:
    """An operation on the vectors of one row; with `single` all elements share one operand."""

    def __init__(
        self, operation: Operation, rows: _Rows, record: CombineRecord, *, single: bool
    ) -> None:
        self._operation, self._rows, self._record = operation, rows, record
        # loaded before the loop: LLVM cannot move the loads there, since stores may alias them
        self._one_operand = self._load_one(rows.operand) if single else None
        has_one_factor = operation is Operation.ADD_PRODUCT or (
            operation is Operation.QUOTIENT and single
        )
        self._one_factor = self._load_one(rows.factor) if has_one_factor else None

    def results(self, codes: Value, i: Value | None = None) -> Value:
        """Return the results for codes of src, in the type of dst.

        They are at the i-th element of the row; without it they are the first ones, and zeros.
        """
        operation, rows = self._operation, self._rows
        codec = Codec(rows.src.elements.builder, codes.type.count)
        work, dtype = rows.operand.dtype, rows.dst.dtype
        x = codec.decode(codes, rows.src.dtype, work)
        y = factor = None
        if operation is not Operation.ROUND_F16:
            y = self._read(codec, rows.operand, i, self._one_operand)
        if operation in {Operation.QUOTIENT, Operation.ADD_PRODUCT}:
            factor = self._read(codec, rows.factor, i, self._one_factor)
        result = apply(codec, operation, Operands(x, y, factor), work, dtype)
        return codec.encode(result, work, dtype)

    def _load_one(self, row: Row) -> Value:
        builder = row.elements.builder
        return builder.bitcast(row.load(int64(0), 1), Codec(builder, 1).values(row.dtype))

    def _read(self, codec: Codec, row: Row, i: Value | None, one: Value | None) -> Value:
        """Return the values at the operand's position, or one value in every lane."""
        builder, kind = codec.builder, codec.values(row.dtype)
        if one is not None:
            every = ir.Constant(codec.integers(32), None)
            return builder.shuffle_vector(one, ir.Constant(one.type, ir.Undefined), every)
        if i is not None:
            position = builder.and_(i, self._record.operand_mask)
            return builder.bitcast(row.load(position, codec.lanes), kind)
        # behind the row ones, so that nothing is divided by zero
        count = self._record.columns
        values = builder.bitcast(row.load_first(count), kind)
        mask = row.elements.lane_mask(count, codec.lanes)
        return builder.select(mask, values, codec.splat(kind, 1.0))
