"""The stage of a tile that does arithmetic: one post-op over rows of values.

Elements are decoded before it and its results encoded after it, in registers. First come the loops
over rows and vectors, then the operations.
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memdesc.dtypes import BYTE_BITS
from reorder.cpu.codecs.codec import Codec
from reorder.cpu.kernels.elements import Location
from reorder.cpu.kernels.rows import (
    Neighbours,
    Row,
    each_line,
    each_vector,
    emit_short,
    load_stage,
    masks_elements,
    table_addresses,
    vector_lanes,
)
from reorder.cpu.llvm.emit import Value, either, loop, maximum, minimum, when, where
from reorder.cpu.llvm.shuffle import pick
from reorder.cpu.llvm.vectors import GROUP, any_nan, is_number, lesser
from reorder.cpu.schedule.post_ops import (
    MAKES_NAN,
    SCALING,
    Operation,
    has_small_steps,
    rounding_bits,
)
from reorder.cpu.schedule.tile_program import MASKED_LANES, CombineTable, CombineTypes
from reorder.cpu.target import LINE_BITS, LINE_NBYTES, has_fma
from reorder.values.formats import FLOATS, INTEGERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from reorder.cpu.kernels.interpreter import InterpreterCall

# Registers of one vector of an operation: a single test for rare numbers covers them all.
_REGISTERS = 4
# Rows of at least this many vectors start them at lines of dst: their first elements are apart.
_LONG_ROW = 2
# Lanes of the narrowest whole vectors of a row.
_LANES = 16


class _Stage(NamedTuple):
    """What is loaded once, for all rows."""

    types: CombineTypes
    table: CombineTable
    # where src, dst and the operand start, and the tables of their rows
    starts: tuple[Location, ...]
    tables: list[Value]
    factor_address: Value


def emit_combine(call: InterpreterCall, types: CombineTypes) -> None:
    """Emit all operations of a working type; a `CombineTable` says which one runs.

    src and dst may be the same.
    """
    table, placement = load_stage(call, CombineTable)
    starts = (
        Location(call.src_at, placement.src_offset),
        Location(call.dst_at, placement.dst_offset),
        Location(placement.operand_address, placement.operand_offset),
    )
    tables = table_addresses(call, CombineTable, table.rows, len(starts))
    stage = _Stage(types, table, starts, tables, placement.factor_address)
    for operation in Operation:
        if operation is Operation.NARROW_QUOTIENT and not _has_quotient(types):
            continue
        with when(table.operation == operation):
            if operation in {Operation.ROUND_F16, Operation.CLAMP}:
                _emit_rows(stage, operation, single=True)
                continue
            with either(table.operand_mask == 0) as (one, many):
                with one:
                    _emit_rows(stage, operation, single=True)
                with many:
                    _emit_rows(stage, operation, single=False)


def _has_quotient(types: CombineTypes) -> bool:
    """Whether `NARROW_QUOTIENT` is compiled for these types."""
    return rounding_bits(types.dst) is not None and types.work == "f32" and has_fma()


def _emit_rows(stage: _Stage, operation: Operation, *, single: bool) -> None:
    """Emit the operation on all rows; with `single` all elements of a row share one operand."""
    table = stage.table

    def each(emit: Callable[[_RowOperation], None]) -> None:
        with loop(0, table.rows) as row:
            rows = _rows_at(stage, operation, row)
            emit(_RowOperation(operation, rows, stage, single=single))

    if stage.types.streams and single:
        with loop(0, table.rows) as row:
            _emit_joined_row(stage, operation, row)
        return
    if operation not in SCALING or stage.types.streams:
        each(_emit_row)
        return
    # a separate loop for short rows: a common one needs more addresses than there are registers
    dtypes = stage.types.src, stage.types.dst
    with emit_short(dtypes, table, lambda: each(_emit_short_row)):
        each(_emit_row)


def _rows_at(stage: _Stage, operation: Operation, row: Value) -> _OperationRows:
    """Return where a row starts on each side."""
    types, builder = stage.types, row.builder
    src, dst, operand = (
        start + offsets[row] for start, offsets in zip(stage.starts, stage.tables, strict=True)
    )
    # inverses are laid out like their residues
    factor_index = operand.index if operation is Operation.NARROW_QUOTIENT else 0
    return _OperationRows(
        Row.at(builder, types.src, src),
        Row.at(builder, types.dst, dst, streams=types.streams),
        Row.at(builder, types.work, operand),
        Row.at(builder, types.work, Location(stage.factor_address, factor_index)),
    )


def _emit_short_row(row: _RowOperation) -> None:
    """Emit the operation on one row as one masked vector."""
    row.run_masked(0, row.table.columns)


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
    columns: Value = row.table.columns
    if not masks_elements(src.dtype, dst.dtype, operand.dtype):
        each_vector((0, columns), sizes, combine, overlaps=False)
        return
    # the head, up to the first line of dst, and the tail are one vector each
    head = _head_of(row, sizes[0])
    whole = head + ((columns - head) & -_LANES)
    each_vector((head, whole), (sizes[0], _LANES), combine, overlaps=False)
    tail = columns - whole
    with loop(0, head.like(2)) as end:
        start, count = where(end == 0, 0, whole), where(end == 0, head, tail)
        with when(count > 0):
            row.run_masked(start, count)


def _emit_joined_row(stage: _Stage, operation: Operation, row: Value) -> None:
    """Emit the operation on one row; a line that it shares with the next one is computed whole."""
    table, (src_table, dst_table, _) = stage.table, stage.tables

    def follows(number: Value, before: Value) -> Value:
        steps = (side[number] - side[before] for side in (src_table, dst_table))
        return reduce(operator.and_, (step == table.columns for step in steps))

    def operation_on(number: Value) -> _RowOperation:
        return _RowOperation(operation, _rows_at(stage, operation, number), stage, single=True)

    this, next_row = operation_on(row), minimum(row + 1, table.rows - 1)
    following = operation_on(next_row)
    neighbours = Neighbours(
        follows(row, maximum(row - 1, 0)),
        follows(next_row, row),
        lambda i, lanes: this.run_joined(i, lanes, following),
    )
    src, dst, operand, _ = this.rows
    sizes = vector_lanes(operand.dtype, _REGISTERS)

    def combine(i: Value, lanes: int, *, non_temporal: bool = False) -> None:
        if lanes == sizes[0] and not src.elements.fills_line(lanes):
            src.prefetch(i, lanes, table.prefetch_distance)
        this.run(i, lanes, non_temporal=non_temporal)

    each_line(dst, table.columns, sizes, combine, overlaps=False, neighbours=neighbours)


def _head_of(row: _RowOperation, lanes: int) -> Value:
    """Return how many elements come before the first line of dst; 0 if they should not be apart."""
    src, dst, *_ = row.rows
    columns: Value = row.table.columns
    line = LINE_BITS // dst.elements.bits
    if line > MASKED_LANES or dst.elements.bits < src.elements.bits:
        return columns.like(0)
    skipped = -dst.elements.address_of(dst.start) & (LINE_NBYTES - 1)
    return where(columns >= _LONG_ROW * lanes, skipped // (dst.elements.bits // BYTE_BITS), 0)


class _OperationRows(NamedTuple):
    """One row of each side of an operation."""

    src: Row
    dst: Row
    operand: Row
    # what `ADD_PRODUCT` multiplies with, or the inverses of `NARROW_QUOTIENT`
    factor: Row


class _RowOperation:
    """An operation on the vectors of one row; with `single` all elements share one operand."""

    def __init__(
        self, operation: Operation, rows: _OperationRows, stage: _Stage, *, single: bool
    ) -> None:
        self.rows, self.table, self._types = rows, stage.table, stage.types
        self._operation = operation
        # loaded before the loop: LLVM cannot move the loads out, since stores may alias them
        self._one_operand = self._load_one(rows.operand) if single else None
        has_one_factor = operation is Operation.ADD_PRODUCT or (
            operation is Operation.NARROW_QUOTIENT and single
        )
        self._one_factor = self._load_one(rows.factor) if has_one_factor else None

    def run(self, i: Value, lanes: int, *, non_temporal: bool = False) -> None:
        """Write the results for a vector starting at element i."""
        src = self.rows.src
        if src.elements.fills_line(lanes):
            src.prefetch(i, lanes, self.table.prefetch_distance)
        codes = self.results(src.load(i, lanes), i)
        self.rows.dst.store(codes, i, non_temporal=non_temporal)

    def run_masked(self, i: Value, count: Value) -> None:
        """Write the results for `count` elements starting at element i, at most `MASKED_LANES`."""
        codes = self.results(self.rows.src.load_first(count, i), i, count)
        self.rows.dst.store_first(codes, i, count)

    def run_joined(self, i: Value, lanes: int, following: _RowOperation) -> None:
        """Write the results for a line that starts at element i and ends in the following row."""
        mask = self.rows.dst.elements.lane_mask(self.table.columns - i, lanes)
        codes = self.results(self.rows.src.load(i, lanes), i, joined=(mask, following))
        self.rows.dst.store(codes, i, non_temporal=True)

    def results(
        self,
        codes: Value,
        i: Value,
        count: Value | None = None,
        joined: tuple[Value, _RowOperation] | None = None,
    ) -> Value:
        """Return the results for codes of src starting at element i, in the type of dst.

        With a count, only that many lanes are elements of the row. With `joined` lanes outside of a
        mask are elements of another row, and have its operand.
        """
        operation, rows, types = self._operation, self.rows, self._types
        codec = Codec(rows.src.elements.builder, codes.type.count)
        x = codec.decode(codes, types.src, types.work)
        y = factor = None
        if operation is not Operation.ROUND_F16:
            y = self._read(codec, rows.operand, (i, count), self._one_operand)
        if operation in {Operation.NARROW_QUOTIENT, Operation.ADD_PRODUCT}:
            factor = self._read(codec, rows.factor, (i, count), self._one_factor)
        if joined is not None:
            mask, other = joined
            y, factor = (
                None if own is None else where(mask, own, pick(one, [0] * codec.lanes))
                for own, one in ((y, other._one_operand), (factor, other._one_factor))  # noqa: SLF001 - of this class
            )
        result = _apply(codec, operation, _Operands(x, y, factor), types)
        may_be_nan = _may_be_nan(operation, types)
        return codec.encode(
            result,
            types.work,
            types.dst,
            may_be_nan=may_be_nan,
            may_be_denormal=operation is not Operation.NARROW_QUOTIENT or types.src not in INTEGERS,
            canonical=may_be_nan and operation in MAKES_NAN,
        )

    def _load_one(self, row: Row) -> Value:
        kind = Codec(row.elements.builder, 1).values(row.dtype)
        return row.load(0, 1).bitcast(kind)

    def _read(
        self, codec: Codec, row: Row, lanes: tuple[Value, Value | None], one: Value | None
    ) -> Value:
        """Return an operand's values, or `one` in every lane.

        `lanes` are the index of the first element in the row, and the count for `results`.
        """
        kind = codec.values(row.dtype)
        if one is not None:
            return pick(one, [0] * codec.lanes)
        i, count = lanes
        position = self.table.operand_mask & i
        if count is None:
            return row.load(position, codec.lanes).bitcast(kind)
        # ones after the row, so that nothing is divided by zero
        values = row.load_first(count, position).bitcast(kind)
        return where(row.elements.lane_mask(count, codec.lanes), values, 1.0)


# Smaller quotients are divided if dst has numbers as small as those of f32: below this, the
# products of dividends and residues of the inverses may lose bits.
_LEAST = 2.0**-70


class _Operands(NamedTuple):
    """The vectors that an operation takes; None for an operand that it does not have."""

    x: Value
    y: Value
    factor: Value


def _may_be_nan(operation: Operation, types: CombineTypes) -> bool:
    """Whether a result may be a NaN: finite scales and zero points make no integer one."""
    if operation is Operation.NARROW_QUOTIENT and types.dst in INTEGERS:
        return False
    return types.src not in INTEGERS or operation is Operation.ADD_PRODUCT


_ARITHMETIC: dict[Operation, Callable[[Value, Value], Value]] = {
    Operation.SUBTRACT: operator.sub,
    Operation.MULTIPLY: operator.mul,
    Operation.DIVIDE: operator.truediv,
    Operation.ADD: operator.add,
}


def _apply(codec: Codec, operation: Operation, operands: _Operands, types: CombineTypes) -> Value:
    """Return the results of an operation in the working type."""
    x, y, factor = operands
    if operation in _ARITHMETIC:
        return _ARITHMETIC[operation](x, y)
    if operation is Operation.NARROW_QUOTIENT:
        return _narrow_quotient(codec, operands, types)
    if operation is Operation.ADD_PRODUCT:
        return x + factor * y
    if operation is Operation.ROUND_F16:
        return codec.decode(codec.encode(x, types.work, "f16"), "f16", types.work)
    # CLAMP
    low = -0.0 - y
    x = where(x > y, y, x)
    return where(x < low, low, x)


def _narrow_quotient(codec: Codec, operands: _Operands, types: CombineTypes) -> Value:
    """Return x / y for a dst of few bits, from the inverse of y and its residue.

    It need not be rounded correctly, only fall on the right side of the midpoint at which dst
    rounds up or down. It does, since midpoints have few bits (`rounding_bits`). NaN, and infinities
    that become NaN, are divided; integers become neither of them, nor numbers below 2^-24.
    """
    x, residue, inverse = operands
    quotient = codec.fma(x, inverse, x * residue)
    if types.src in INTEGERS:
        return quotient
    if types.dst not in INTEGERS:
        # the sum of zeros of two signs has the wrong one
        quotient = _with_sign(codec, quotient, x)

    def divide() -> Value:
        # y itself, from its inverse and residue: the error is far below the distance to the next
        # float
        ones = inverse.like(1.0)
        about = ones / inverse
        rest = codec.fma(-residue, about, codec.fma(-inverse, about, ones))
        return _divided(codec, x, codec.fma(rest, about, about), types)

    is_rare = _any_nan(codec, quotient)
    if has_small_steps(types.dst):
        # the shift drops the sign, and subtracting 1 makes zeros the largest numbers
        doubled = quotient.bitcast(codec.integers(32)) << 1
        least = reduce(lesser, codec.parts(doubled - 1, min(codec.lanes, GROUP)))
        limit = 2 * int(np.float32(_LEAST).view(np.uint32)) - 1
        is_rare |= least.below(limit)
    return codec.rarely(is_rare, divide, quotient)


def _divided(codec: Codec, x: Value, y: Value, types: CombineTypes) -> Value:
    """Return x / y; a NaN becomes 0 if dst holds integers, else the canonical NaN."""
    result = x / y
    if types.dst not in INTEGERS:
        return codec.canonical(result, "f32")
    return where(is_number(result), result, 0.0)


def _with_sign(codec: Codec, quotient: Value, of: Value) -> Value:
    """Return quotients with the signs of other values, which only zeros may lack."""
    i32 = codec.integers(32)
    sign = of.bitcast(i32) & FLOATS["f32"].sign
    return (quotient.bitcast(i32) | sign).bitcast(quotient.type)


def _any_nan(codec: Codec, values: Value) -> Value:
    """Return at most `GROUP` flags; at least one is true if any value is NaN."""
    parts = codec.parts(values, min(codec.lanes, GROUP))
    pairs = zip(parts[::2], parts[1::2] or parts, strict=True)
    return reduce(operator.or_, [any_nan(*pair) for pair in pairs])
