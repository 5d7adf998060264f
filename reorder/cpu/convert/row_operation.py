"""One operation on the vectors of one row: what they and their operands are loaded from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from llvmlite import ir

from reorder.cpu.convert.arithmetic import Operands, OperationTypes, apply, known_results
from reorder.cpu.convert.codec import Codec
from reorder.cpu.convert.operation import MAKES_NAN, QUOTIENTS, Operation
from reorder.cpu.convert.vectors import Known
from reorder.cpu.kernels.emit import int64

if TYPE_CHECKING:
    from reorder.cpu.convert.records import CombineRecord
    from reorder.cpu.convert.rows import Row
    from reorder.cpu.kernels.emit import Value

__all__ = ["OperationRows", "RowOperation"]


class OperationRows(NamedTuple):
    """One row of each side of an operation."""

    src: Row
    dst: Row
    operand: Row
    # what `ADD_PRODUCT` multiplies with, or the reciprocals of `QUOTIENTS`
    factor: Row


class RowOperation:
    """An operation on the vectors of one row; with `single` all elements share one operand."""

    def __init__(
        self, operation: Operation, rows: OperationRows, record: CombineRecord, *, single: bool
    ) -> None:
        self.rows, self.record = rows, record
        self._operation = operation
        # loaded before the loop: LLVM cannot move the loads there, since stores may alias them
        self._one_operand = self._load_one(rows.operand) if single else None
        has_one_factor = operation is Operation.ADD_PRODUCT or (operation in QUOTIENTS and single)
        self._one_factor = self._load_one(rows.factor) if has_one_factor else None

    def run(self, i: Value, lanes: int, *, non_temporal: bool = False) -> None:
        """Write the results for a vector from the i-th element on."""
        src = self.rows.src
        if src.elements.fills_line(lanes):
            src.prefetch(i, lanes, self.record.prefetch_distance)
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
        position = builder.and_(i, self.record.operand_mask)
        if count is None:
            return builder.bitcast(row.load(position, codec.lanes), kind)
        # behind the row ones, so that nothing is divided by zero
        values = builder.bitcast(row.load_first(count, position), kind)
        mask = row.elements.lane_mask(count, codec.lanes)
        return builder.select(mask, values, codec.splat(kind, 1.0))
