"""The stage of arithmetic: one operation over rows of values.

Elements are decoded before it and its results encoded after it, in registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from llvmlite import ir

from reorder.cpu.codecs.arithmetic import Operands, OperationTypes, apply, known_results
from reorder.cpu.codecs.codec import Codec
from reorder.cpu.codecs.vectors import Known
from reorder.cpu.kernels.elements import Location
from reorder.cpu.kernels.emit import int64, load_fields, load_int64, loop
from reorder.cpu.kernels.rows import (
    Row,
    each_line,
    each_vector,
    emit_zeroed,
    masks_elements,
    table_addresses,
    vector_lanes,
)
from reorder.cpu.schedule.post_ops import MAKES_NAN, QUOTIENTS, SCALING, Operation, rounding_bits
from reorder.cpu.schedule.tile_program import CombineTable, Placement
from reorder.cpu.target import has_fma

if TYPE_CHECKING:
    from collections.abc import Callable

    from reorder.cpu.kernels.emit import Builder, Value
    from reorder.cpu.kernels.rows import StageArguments

__all__ = ["CombineTypes", "emit_combine"]

# Registers of one vector of an operation: a single test for rare numbers covers them all.
_REGISTERS = 4
# Rows of exactly this many elements, one block of channels, are one vector without loops.
_BLOCK = 16


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
    table: CombineTable
    # where src, dst and the operand start, and the tables of their rows
    starts: tuple[Location, ...]
    tables: list[Value]
    number_address: Value


def emit_combine(builder: Builder, arguments: StageArguments, types: CombineTypes) -> None:
    """Emit all operations of a working type; a `CombineTable` says which one runs.

    src and dst may be the same.
    """
    table = load_fields(builder, arguments.table, CombineTable)
    placement = load_fields(builder, arguments.placement, Placement)
    starts = (
        Location(arguments.src, placement.src_offset),
        Location(arguments.dst, placement.dst_offset),
        Location(placement.operand_address, placement.operand_offset),
    )
    tables = table_addresses(builder, arguments.table, CombineTable, table.rows, len(starts))
    stage = _Stage(types, table, starts, tables, placement.number_address)
    is_single = builder.icmp_signed("==", table.operand_mask, int64(0))
    for operation in Operation:
        if operation in QUOTIENTS and not _has_quotient(operation, types):
            continue
        is_chosen = builder.icmp_signed("==", table.operation, int64(operation))
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
    table = stage.table

    def each(emit: Callable[[_RowOperation], None]) -> None:
        with loop(builder, int64(0), table.rows) as row:
            rows = _rows_at(builder, stage, operation, row)
            emit(_RowOperation(operation, rows, table, single=single))

    if operation not in SCALING or stage.types.streams:
        each(_emit_row)
        return
    # a separate loop for short rows: a common one needs more addresses than there are registers
    is_block = builder.icmp_signed("==", table.columns, int64(_BLOCK))
    with builder.if_else(is_block) as (block, other):
        with block:
            each(lambda row: row.run(int64(0), _BLOCK))
        dtypes = stage.types.src, stage.types.dst
        with other, emit_zeroed(builder, dtypes, table, lambda: each(_emit_short_row)):
            each(_emit_row)


def _rows_at(builder: Builder, stage: _Stage, operation: Operation, row: Value) -> _OperationRows:
    """Return where a row lies on each side."""
    types = stage.types
    src, dst, operand = (
        start.plus(builder, load_int64(builder, offsets, row))
        for start, offsets in zip(stage.starts, stage.tables, strict=True)
    )
    # reciprocals are laid out like the operands
    factor_index = operand.index if operation in QUOTIENTS else int64(0)
    return _OperationRows(
        Row.at(builder, types.src, src),
        Row.at(builder, types.dst, dst, streams=types.streams),
        Row.at(builder, types.work, operand),
        Row.at(builder, types.work, Location(stage.number_address, factor_index)),
    )


def _emit_short_row(row: _RowOperation) -> None:
    """Emit the operation on one row as one vector, which may write zeros behind the row."""
    row.run_masked(int64(0), row.table.columns, row.table.extent)


def _emit_row(row: _RowOperation) -> None:
    """Emit the operation on one row of any length."""
    src, dst, operand, _ = row.rows
    sizes = vector_lanes(operand.dtype, _REGISTERS)

    def combine(i: Value, lanes: int, *, non_temporal: bool = False) -> None:
        if lanes == sizes[0] and not src.elements.fills_line(lanes):
            src.prefetch(i, lanes, row.table.prefetch_distance)
        row.run(i, lanes, non_temporal=non_temporal)

    # src may be dst, so vectors must not overlap: elements would be computed twice
    if dst.elements.streams:
        each_line(dst, row.table.columns, sizes, combine, overlaps=False)
        return
    builder, columns = src.elements.builder, row.table.columns
    if not masks_elements(src.dtype, dst.dtype, operand.dtype):
        each_vector(builder, (int64(0), columns), sizes, combine, overlaps=False)
        return
    # the tail is one vector
    whole = builder.and_(columns, int64(-_BLOCK))
    each_vector(builder, (int64(0), whole), (sizes[0], _BLOCK), combine, overlaps=False)
    tail = builder.sub(columns, whole)
    with builder.if_then(builder.icmp_signed(">", tail, int64(0))):
        row.run_masked(whole, tail, tail)


class _OperationRows(NamedTuple):
    """One row of each side of an operation."""

    src: Row
    dst: Row
    operand: Row
    # what `ADD_PRODUCT` multiplies with, or the reciprocals of `QUOTIENTS`
    factor: Row


class _RowOperation:
    """An operation on the vectors of one row; with `single` all elements share one operand."""

    def __init__(
        self, operation: Operation, rows: _OperationRows, table: CombineTable, *, single: bool
    ) -> None:
        self.rows, self.table = rows, table
        self._operation = operation
        # loaded before the loop: LLVM cannot move the loads out, since stores may alias them
        self._one_operand = self._load_one(rows.operand) if single else None
        has_one_factor = operation is Operation.ADD_PRODUCT or (operation in QUOTIENTS and single)
        self._one_factor = self._load_one(rows.factor) if has_one_factor else None

    def run(self, i: Value, lanes: int, *, non_temporal: bool = False) -> None:
        """Write the results for a vector from the i-th element on."""
        src = self.rows.src
        if src.elements.fills_line(lanes):
            src.prefetch(i, lanes, self.table.prefetch_distance)
        codes = self.results(src.load(i, lanes), i)
        self.rows.dst.store(codes, i, non_temporal=non_temporal)

    def run_masked(self, i: Value, count: Value, extent: Value) -> None:
        """Write the results for some elements from the i-th one on, and zeros behind them."""
        codes = self.results(self.rows.src.load_first(count, i), i, count)
        self.rows.dst.store_first(codes, i, count, extent)

    def results(self, codes: Value, i: Value, count: Value | None = None) -> Value:
        """Return the results for codes of src from the i-th element on, in the type of dst.

        With a count, only that many lanes are elements of the row.
        """
        operation, rows = self._operation, self.rows
        codec = Codec(rows.src.elements.builder, codes.type.count)
        types = OperationTypes(rows.src.dtype, rows.operand.dtype, rows.dst.dtype)
        x = codec.decode(codes, types.src, types.work)
        y = factor = None
        if operation is not Operation.ROUND_F16:
            y = self._read(codec, rows.operand, (i, count), self._one_operand)
        if operation in QUOTIENTS | {Operation.ADD_PRODUCT}:
            factor = self._read(codec, rows.factor, (i, count), self._one_factor)
        result = apply(codec, operation, Operands(x, y, factor), types)
        known = known_results(operation, types)
        canonical = operation in MAKES_NAN and known is Known.NOTHING
        return codec.encode(result, types.work, types.dst, known=known, canonical=canonical)

    def _load_one(self, row: Row) -> Value:
        builder = row.elements.builder
        return builder.bitcast(row.load(int64(0), 1), Codec(builder, 1).values(row.dtype))

    def _read(
        self, codec: Codec, row: Row, lanes: tuple[Value, Value | None], one: Value | None
    ) -> Value:
        """Return the values at the operand's position, or one value in every lane."""
        builder, kind = codec.builder, codec.values(row.dtype)
        if one is not None:
            every = ir.Constant(codec.integers(32), None)
            return builder.shuffle_vector(one, ir.Constant(one.type, ir.Undefined), every)
        i, count = lanes
        position = builder.and_(i, self.table.operand_mask)
        if count is None:
            return builder.bitcast(row.load(position, codec.lanes), kind)
        # ones behind the row, so that nothing is divided by zero
        values = builder.bitcast(row.load_first(count, position), kind)
        mask = row.elements.lane_mask(count, codec.lanes)
        return builder.select(mask, values, codec.splat(kind, 1.0))
