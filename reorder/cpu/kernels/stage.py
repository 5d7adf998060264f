"""The stages of a tile: rows of elements are decoded, computed with, and encoded, in registers.

A stage converts rows, or does one operation on each of their elements. First come the loops over
rows and vectors; what happens to a vector is in `operations`.
"""

from __future__ import annotations

import operator
from functools import partial, reduce
from typing import TYPE_CHECKING

from memdesc.dtypes import BYTE_BITS
from memdesc.tuples import NamedTuple
from reorder.cpu.codecs.codec import Codec
from reorder.cpu.kernels.elements import Location
from reorder.cpu.kernels.operations import Operands, apply, has_quotient_code, may_be_nan
from reorder.cpu.kernels.rows import (
    Neighbours,
    Row,
    each_line,
    each_pair,
    each_vector,
    masks_elements,
    vector_lanes,
)
from reorder.cpu.llvm.emit import Value, either, load_fields, loop, maximum, minimum, when, where
from reorder.cpu.llvm.shuffle import pick
from reorder.cpu.schedule.post_ops import MAKES_NAN, SCALING, Operation
from reorder.cpu.schedule.tile_program import MASKED_LANES, Placement, StageTable, StageTypes
from reorder.cpu.tables import WORD_NBYTES, nbytes_of
from reorder.cpu.target import LINE_BITS, LINE_NBYTES
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from reorder.cpu.kernels.interpreter import InterpreterCall

# Registers of one vector of an operation, for which a single test for rare numbers covers them all,
# and of a conversion: more do not help.
_OPERATION_REGISTERS, _CONVERSION_REGISTERS = 4, 2
# Rows of at least this many vectors start them at lines of dst: their first elements are apart.
_LONG_ROW = 2
# Lanes of the narrowest whole vectors of a row.
_LANES = 16
_UNCHANGED = frozenset({Operation.CONVERT, Operation.ROUND_F16})


class _Stage(NamedTuple):
    """What is loaded once, for all rows."""

    types: StageTypes
    table: StageTable
    # where src, dst and the operand start, and the tables of their rows
    starts: tuple[Location, ...]
    tables: list[Value]
    factor_address: Value


def emit_stage(call: InterpreterCall, types: StageTypes) -> None:
    """Emit a conversion, or all operations of a working type: a `StageTable` says which one runs.

    src and dst of an operation may be the same; those of a conversion must not overlap.
    """
    table, placement = load_fields(call.program, StageTable), load_fields(call.points, Placement)
    starts = (
        Location(call.src_at, placement.src_offset),
        Location(call.dst_at, placement.dst_offset),
        Location(placement.operand_address, placement.operand_offset),
    )
    first, size = call.program + nbytes_of(StageTable), table.rows * WORD_NBYTES
    tables = [first + size * k for k in range(len(starts))]
    stage = _Stage(types, table, starts, tables, placement.factor_address)
    if not types.computes:
        _emit_rows(stage, Operation.CONVERT, single=True)
        return
    for operation in Operation:
        is_compiled = operation is not Operation.NARROW_QUOTIENT or has_quotient_code(types)
        if operation is Operation.CONVERT or not is_compiled:
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


def _emit_rows(stage: _Stage, operation: Operation, *, single: bool) -> None:
    """Emit the operation on all rows; with `single` all elements of a row share one operand."""
    columns, types = stage.table.columns, stage.types
    at = partial(_RowOperation, stage, operation, single=single)

    def each(emit: Callable[[_RowOperation], None]) -> None:
        with loop(0, stage.table.rows) as row:
            emit(at(row))

    if types.streams:
        joins = types.computes and single
        each(partial(_emit_lines, at=at if joins else None))
    elif masks_elements(types.src, types.dst) and operation in {Operation.CONVERT, *SCALING}:
        # a separate loop for short rows: a common one needs more addresses than there are
        # registers. For a whole vector too, of which operations need no head and tail
        longest = MASKED_LANES if types.computes else MASKED_LANES - 1
        with either(columns <= longest) as (short, long):
            with short:
                each(lambda row: row.run_masked(0, columns))
            with long:
                each(_emit_row)
    else:
        each(_emit_row)


def _emit_row(row: _RowOperation) -> None:
    """Emit the operation on one row of any length."""
    src, dst, columns, sizes = row.src, row.dst, row.columns, row.sizes
    packed = next((side for side in (src, dst) if side.elements.is_nibble), None)
    if packed is not None:
        each_pair(packed, columns, (*sizes[:-1], 2), row.run)
        return
    if row.converts:
        # of loads and stores, the more bytes should not cross lines
        aligned = dst if dst.elements.bits >= src.elements.bits else None
        each_vector((columns.like(0), columns), sizes, row.run, overlaps=True, dst=aligned)
        return
    # src may be dst, so vectors must not overlap: elements would be computed twice
    if not masks_elements(src.dtype, dst.dtype, row.operand.dtype):
        each_vector((columns.like(0), columns), sizes, row.run, overlaps=False)
        return
    # the head, up to the first line of dst, and the tail are one vector each
    head = _head_of(row)
    whole = head + ((columns - head) & -_LANES)
    each_vector((head, whole), (sizes[0], _LANES), row.run, overlaps=False)
    with loop(0, head.like(2)) as end:
        start, count = where(end == 0, 0, whole), where(end == 0, head, columns - whole)
        with when(count > 0):
            row.run_masked(start, count)


def _head_of(row: _RowOperation) -> Value:
    """Return how many elements come before the first line of dst; 0 if they should not be apart."""
    columns, elements = row.columns, row.dst.elements
    if LINE_BITS // elements.bits > MASKED_LANES or elements.bits < row.src.elements.bits:
        return columns.like(0)
    skipped = -elements.address_of(row.dst.start) & (LINE_NBYTES - 1)
    is_long = columns >= _LONG_ROW * row.sizes[0]
    return where(is_long, skipped // (elements.bits // BYTE_BITS), 0)


def _emit_lines(row: _RowOperation, at: Callable[[Value], _RowOperation] | None) -> None:
    """Emit the operation on one row by non-temporal stores of whole lines.

    A line that it shares with the next row, which `at` returns, is computed whole.
    """
    neighbours = None
    if row.src.elements.is_nibble:
        _emit_row(row)
        return
    if at is not None:
        following = at(minimum(row.number + 1, row.table.rows - 1))
        neighbours = Neighbours(
            row.follows(at(maximum(row.number - 1, 0))),
            following.follows(row),
            partial(row.run_joined, following=following),
        )
    each_line(
        row.dst, row.columns, row.sizes, row.run, overlaps=row.converts, neighbours=neighbours
    )


class _RowOperation:
    """An operation on the vectors of one row; with `single` all elements share one operand."""

    def __init__(self, stage: _Stage, operation: Operation, number: Value, *, single: bool) -> None:
        self.table, self.number, self.tables = stage.table, number, stage.tables
        self.types, self.operation = stage.types, operation
        self.columns: Value = stage.table.columns
        types, builder = stage.types, number.builder
        self.converts = operation is Operation.CONVERT
        src, dst = (
            start + offsets[number]
            for start, offsets in zip(stage.starts[:2], stage.tables, strict=False)
        )
        self.src = Row.at(builder, types.src, src)
        self.dst = Row.at(builder, types.dst, dst, streams=types.streams)
        registers = _OPERATION_REGISTERS
        if self.converts:
            is_narrow = min(self.src.elements.bits, self.dst.elements.bits) <= BYTE_BITS
            registers = _CONVERSION_REGISTERS << is_narrow
        # lanes of vectors, widest first
        self.sizes = vector_lanes(types.work, registers)
        self.one_operand = self.one_factor = None
        if self.converts:
            return
        operand = stage.starts[2] + stage.tables[2][number]
        # inverses are laid out like their residues
        factor_index = operand.index if operation is Operation.NARROW_QUOTIENT else 0
        self.operand = Row.at(builder, types.work, operand)
        self.factor = Row.at(builder, types.work, Location(stage.factor_address, factor_index))
        # loaded before the loop: LLVM cannot move the loads out, since stores may alias them
        self.one_operand = self.operand.load_one() if single else None
        if operation is Operation.ADD_PRODUCT or (
            operation is Operation.NARROW_QUOTIENT and single
        ):
            self.one_factor = self.factor.load_one()

    def follows(self, before: _RowOperation) -> Value:
        """Whether a row continues the one before it, in src and in dst."""
        steps = (side[self.number] - side[before.number] for side in self.tables[:2])
        return reduce(operator.and_, (step == self.columns for step in steps))

    def run(self, i: Value, lanes: int, *, non_temporal: bool = False) -> None:
        """Write the results for a vector starting at element i."""
        codes = self.results(self.src.load(i, lanes), i)
        self.dst.store(codes, i, non_temporal=non_temporal)

    def run_masked(self, i: Value, count: Value) -> None:
        """Write the results for `count` elements starting at element i, at most `MASKED_LANES`."""
        codes = self.results(self.src.load_first(count, i), i, count)
        self.dst.store_first(codes, i, count)

    def run_joined(self, i: Value, lanes: int, following: _RowOperation) -> None:
        """Write the results for a line that starts at element i and ends in the following row."""
        mask = self.dst.elements.lane_mask(self.columns - i, lanes)
        codes = self.results(self.src.load(i, lanes), i, joined=(mask, following))
        self.dst.store(codes, i, non_temporal=True)

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
        operation, types = self.operation, self.types
        if not types.work:
            return codes
        codec = Codec(self.src.elements.builder, codes.type.count)
        x = codec.decode(codes, types.src, types.work)
        y = factor = None
        if operation not in _UNCHANGED:
            y = self._read(codec, self.operand, (i, count), self.one_operand)
        if operation in {Operation.NARROW_QUOTIENT, Operation.ADD_PRODUCT}:
            factor = self._read(codec, self.factor, (i, count), self.one_factor)
        if joined is not None:
            mask, other = joined
            y, factor = (
                None if own is None else where(mask, own, pick(one, [0] * codec.lanes))
                for own, one in ((y, other.one_operand), (factor, other.one_factor))
            )
        has_nan = may_be_nan(operation, types)
        makes_integers = operation in {Operation.CONVERT, Operation.NARROW_QUOTIENT}
        return codec.encode(
            apply(codec, operation, Operands(x, y, factor), types),
            types.work,
            types.dst,
            may_be_nan=has_nan,
            may_be_denormal=not makes_integers or types.src not in INTEGERS,
            canonical=has_nan and operation in MAKES_NAN,
        )

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
