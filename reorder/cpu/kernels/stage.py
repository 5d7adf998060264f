"""The stages of a tile: rows of elements are decoded, computed with, and encoded, in registers.

A stage converts rows, or does one operation on each of their elements: the loops over rows, those
over the vectors of a row, and what happens to a vector, in this order.
"""

from __future__ import annotations

import operator
from functools import partial, reduce
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from memdesc.dtypes import BYTE_BITS, DATA_TYPES
from memdesc.tuples import NamedTuple
from reorder.cpu.codecs import GROUP, Codec, any_nan, is_number, lesser
from reorder.cpu.kernels.elements import Elements, Location, cover, first_vector
from reorder.cpu.llvm.emit import (
    Builder,
    Value,
    either,
    load_fields,
    loop,
    minimum,
    prefetch_to_read,
    prefetch_to_write,
    when,
    where,
)
from reorder.cpu.llvm.shuffle import concatenate, pick
from reorder.cpu.machine import LINE_BITS, LINE_NBYTES
from reorder.cpu.schedule.operands import MIN_GROUP, Operands
from reorder.cpu.schedule.post_ops import MAKES_NAN, has_small_steps
from reorder.cpu.schedule.select import Kernel
from reorder.cpu.schedule.tile_program import (
    MASKED_LANES,
    Operation,
    Placement,
    StageTable,
    StageTypes,
)
from reorder.cpu.schedule.tiles import LONG_ROW_BITS
from reorder.cpu.tables import WORD_NBYTES, fields_of, nbytes_of
from reorder.cpu.target import has_masks, register_bits
from reorder.values.formats import FLOATS, INTEGERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from reorder.cpu.kernels.interpreter import InterpreterCall

# Registers of one vector: a single test for rare numbers covers all of them.
_REGISTERS = 4
# Lanes of the narrowest vectors: shorter tails are converted element by element.
_MIN_LANES = 8
_UNCHANGED = frozenset({Operation.CONVERT, Operation.ROUND_F16})
# Smaller quotients are divided if dst has numbers as small as those of f32: below this, the
# products of dividends and residues of the inverses may lose bits.
_LEAST = 2.0**-70


class _Stage(NamedTuple):
    """What is loaded once, for all rows."""

    types: StageTypes
    table: StageTable
    # where src, dst and the operand start, and the tables of their rows
    starts: tuple[Location, ...]
    tables: list[Value]
    beta: Location
    # where the tile that follows starts in src, and the table of its lines
    following: Value
    lines: Value


def emit_stage(call: InterpreterCall, types: StageTypes) -> None:
    """Emit a stage; src and dst are not the same, but `ACCUMULATE` may read operands from dst."""
    table, placement = load_fields(call.program, StageTable), load_fields(call.points, Placement)
    starts = (
        Location(call.src_at, placement.src_offset),
        Location(call.dst_at, placement.dst_offset),
        Location(placement.operand_address, placement.operand_offset),
    )
    first, size = call.program + nbytes_of(StageTable), table.rows * WORD_NBYTES
    tables = [first + size * k for k in range(len(starts))]
    skipped = placement.following_offset * types.prefetched_bits // BYTE_BITS
    following = placement.buffer_address + skipped
    # the tables of lines follow those of rows
    lines = first + size * len(starts)
    beta = Location(call.program + fields_of(StageTable).beta * WORD_NBYTES, 0)
    _emit_rows(_Stage(types, table, starts, tables, beta, following, lines))


def _emit_rows(stage: _Stage) -> None:
    """Emit the operation on all rows."""
    columns, types = stage.table.columns, stage.types

    def over_rows(emit: Callable[[_Row], None]) -> None:
        with loop(0, stage.table.rows) as row:
            emit(_Row(stage, row))

    if types.streams:
        over_rows(_emit_lines)
    elif types.operands is Operands.GROUPS:
        over_rows(_emit_groups)
    elif masks_elements(types.src, types.dst):
        # a separate loop for short rows: a common one would need more addresses than there are
        # registers. Whole vectors are converted without masks
        longest = MASKED_LANES - (types.operation is Operation.CONVERT)
        with either(columns <= longest) as (short, long):
            with short:
                over_rows(lambda row: row.run_masked(0, columns))
            with long:
                over_rows(_emit_row)
    else:
        over_rows(_emit_row)


def masks_elements(*dtypes: str) -> bool:
    """Whether there are masked loads and stores of elements of these types."""
    return has_masks() and not any(DATA_TYPES[dtype].is_packed for dtype in dtypes)


def _emit_row(row: _Row) -> None:
    """Emit the operation on one row of any length."""
    packed = next((side for side in (row.src, row.dst) if side.elements.is_nibble), None)
    if packed is not None:
        _emit_pairs(row, packed.start)
        return
    cover((0, row.columns), row.sizes, row.run, overlaps=row.may_repeat, dst=_aligned(row))


def _aligned(row: _Row) -> tuple[Elements, Location] | None:
    """Return what should start lines: dst, unless loads of wider elements would cross them then."""
    dst = row.dst
    return (dst.elements, dst.start) if dst.elements.bits >= row.src.elements.bits else None


def _emit_groups(row: _Row) -> None:
    """Emit the operation on one row of whole groups: vectors that start lines would cut groups."""
    sizes, aligned = (row.sizes[0], MIN_GROUP), _aligned(row)
    run = partial(cover, (0, row.columns), sizes, row.run)
    # the elements of several groups are in one line
    if aligned is None or MIN_GROUP * row.dst.elements.bits < LINE_BITS:
        run(overlaps=False)
        return
    with either(first_vector(*aligned, sizes[0], row.columns) == 0) as (whole, cut):
        with whole:
            run(overlaps=False)
        with cut:
            row.cuts_groups = True
            run(dst=aligned)


def _emit_pairs(row: _Row, packed: Location) -> None:
    """Emit vectors that start at whole bytes of 4-bit elements; the others are emitted alone."""
    columns = row.columns
    start = columns.like(packed.index)
    head = minimum(start & 1, columns)
    with loop(0, head) as i:
        row.run(i, 1)
    last = columns - ((columns - head) & 1)
    cover((head, last), (*row.sizes[:-1], 2), row.run)
    with loop(last, columns) as i:
        row.run(i, 1)


def _emit_lines(row: _Row) -> None:
    """Emit the operation on one row by non-temporal stores of whole cache lines.

    The order is: vectors up to the first whole line, then several lines at once, single lines, and
    vectors of the tail.
    """
    if row.src.elements.is_nibble:
        _emit_row(row)
        return
    row.cuts_groups = True
    run = partial(cover, sizes=row.sizes, emit=row.run, overlaps=row.may_repeat)
    elements, columns = row.dst.elements, row.columns
    line = LINE_BITS // elements.bits
    skipped = -elements.address_of(row.dst.start) & (LINE_NBYTES - 1)
    start = minimum(skipped // (elements.bits // BYTE_BITS), columns)
    # ordinary stores write the tail, whose line other rows share: they would wait for the line
    is_long = columns >= LONG_ROW_BITS // elements.bits
    with when(is_long & ((columns - start) % line > 0)):
        prefetch_to_write(elements.address_of(row.dst.start + (columns - 1)))
    run((0, start))
    for lanes in sorted({max(line, row.sizes[0]), line}, reverse=True):
        stop = start + ((columns - start) & -lanes)
        with loop(start, stop, lanes) as i:
            row.run(i, lanes, non_temporal=True)
        start = stop
    run((start, columns))


class _Side(NamedTuple):
    """A row in src, in dst or of operands: neighbouring elements that start at a location."""

    dtype: str
    elements: Elements
    start: Location

    def load(self, i: Value, lanes: int, mask: Value | None = None) -> Value:
        """Return a vector starting at element i; outside a mask there are zeros."""
        if mask is None:
            return self.elements.load_vector(self.start + i, lanes)
        return self.elements.load_masked(self.start + i, mask)

    def load_one(self) -> Value:
        """Return the first value of a row of a working type, in a vector of one lane."""
        vector = Codec(self.elements.builder, 1).values(self.dtype)
        return self.load(0, 1).bitcast(vector)


class _Row:
    """An operation on the vectors of one row."""

    def __init__(self, stage: _Stage, number: Value) -> None:
        self.stage, self.number = stage, number
        operation = stage.types.operation
        single = stage.types.operands is Operands.ONE
        self.columns: Value = stage.table.columns
        # whether elements may be computed twice: not if dst has their operands
        self.may_repeat = operation is not Operation.ACCUMULATE
        types, builder = stage.types, number.builder
        src, dst = (
            start + offsets[number]
            for start, offsets in zip(stage.starts[:2], stage.tables, strict=False)
        )
        self.src = _side(builder, types.src, src)
        self.dst = _side(builder, types.dst, dst, streams=types.streams)
        # lanes of vectors, widest first: registers of the working type
        lanes = register_bits() // DATA_TYPES[types.work].bits
        self.sizes = (*sorted({_REGISTERS * lanes, lanes, _MIN_LANES}, reverse=True), 1)
        # whether vectors may start within groups of operands
        self.cuts_groups = False
        # where operands are, and their value if there is one for all elements. It is loaded before
        # the loop: LLVM cannot move the load out, since stores may alias it
        self.operands: list[tuple[_Side, Value]] = []
        if operation in _UNCHANGED:
            return
        operand = stage.starts[2] + stage.tables[2][number]
        places = [(operand, single)]
        if operation is Operation.ACCUMULATE:
            places.append((stage.beta, True))
        elif operation is Operation.NARROW_QUOTIENT:
            places.append((operand + stage.table.inverses, single))
        for place, is_one in places:
            side = _side(builder, types.work, place)
            self.operands.append((side, side.load_one() if is_one else None))

    def run(self, i: Value, lanes: int, *, non_temporal: bool = False) -> None:
        """Write the results for a vector starting at element i."""
        self._prefetch(i, lanes)
        codes = self.results(self.src.load(i, lanes), i)
        self.dst.elements.store_vector(codes, self.dst.start + i, non_temporal=non_temporal)

    def _prefetch(self, i: Value, lanes: int) -> None:
        """Prefetch as many lines of the tile that follows as this vector's elements fill."""
        bits = self.stage.types.prefetched_bits
        if not bits:
            return
        first = (self.number * self.columns + i) * bits // LINE_BITS
        for k in range(max(1, lanes * bits // LINE_BITS)):
            prefetch_to_read(self.stage.following + self.stage.lines[first + k])

    def run_masked(self, i: Value, count: Value) -> None:
        """Write the results for `count` elements starting at element i, at most `MASKED_LANES`."""
        elements = self.dst.elements
        mask = elements.lane_mask(count, MASKED_LANES)
        codes = self.results(self.src.load(i, MASKED_LANES, mask), i, mask)
        elements.store_masked(codes, self.dst.start + i, mask)

    def results(self, codes: Value, i: Value, mask: Value | None = None) -> Value:
        """Return the results for codes of src starting at element i, in the type of dst.

        With a mask, only its lanes are elements of the row.
        """
        types = self.stage.types
        operation = types.operation
        codec = Codec(self.src.elements.builder, codes.type.count)
        x = codec.decode(codes, types.src, types.work)
        operands = [self._read(codec, *operand, i, mask) for operand in self.operands]
        # finite scales and zero points turn no integer into a NaN
        makes_integers = operation is Operation.NARROW_QUOTIENT and types.dst in INTEGERS
        has_nan = not makes_integers and (
            types.src not in INTEGERS or operation is Operation.ACCUMULATE
        )
        is_scaled = operation in {Operation.CONVERT, Operation.NARROW_QUOTIENT}
        return codec.encode(
            _apply(codec, types, x, *operands),
            types.work,
            types.dst,
            may_be_nan=has_nan,
            may_be_denormal=not is_scaled or types.src not in INTEGERS,
            canonical=has_nan and operation in MAKES_NAN,
        )

    def _read(self, codec: Codec, side: _Side, one: Value, i: Value, mask: Value | None) -> Value:
        """Return operands from element i on, in a mask: `one` for all elements, if there is one."""
        vector = codec.values(side.dtype)
        if one is not None:
            return pick(one, [0] * codec.lanes)
        if self.stage.types.operands is Operands.GROUPS:
            return self._read_groups(codec, side, i)
        table, i = self.stage.table, self.columns.like(i)
        # the old dst does not repeat
        is_old = self.stage.types.operation is Operation.ACCUMULATE
        position = i if is_old else i - (i * table.reciprocal).lshr(32) * table.period
        values = side.load(position, codec.lanes, mask).bitcast(vector)
        # ones outside the row, so that nothing is divided by zero
        return values if mask is None else where(mask, values, 1.0)

    def _read_groups(self, codec: Codec, side: _Side, i: Value) -> Value:
        """Return the operands of groups for a vector starting at element i."""
        shift, i = self.stage.table.shift, self.columns.like(i)
        size = min(MIN_GROUP, codec.lanes)
        # a part of a vector has the operand of one group, or of two if it starts within a group
        starts = range(0, codec.lanes + size * self.cuts_groups, size)
        parts = [pick(side.load((i + start).lshr(shift), 1), [0] * size) for start in starts]
        if self.cuts_groups:
            # groups change at multiples of `MIN_GROUP`
            is_own = side.elements.lane_mask(MIN_GROUP - (i & (MIN_GROUP - 1)), size)
            parts = [where(is_own, *pair) for pair in pairwise(parts)]
        return concatenate(parts).bitcast(codec.values(side.dtype))


def _side(builder: Builder, dtype: str, start: Location, *, streams: bool = False) -> _Side:
    """Return the row at a location; with `streams` whole lines may be written by `_emit_lines`."""
    return _Side(dtype, Elements(builder, Kernel(DATA_TYPES[dtype].bits, streams)), start)


_ARITHMETIC: dict[Operation, Callable[..., Value]] = {
    Operation.MULTIPLY: operator.mul,
    Operation.DIVIDE: operator.truediv,
    Operation.ADD: operator.add,
}


def _apply(codec: Codec, types: StageTypes, x: Value, *operands: Value) -> Value:
    """Return the results of an operation in the working type."""
    match types.operation:
        case Operation.CONVERT:
            return x
        case Operation.ROUND_F16:
            return codec.decode(codec.encode(x, types.work, "f16"), "f16", types.work)
        case Operation.NARROW_QUOTIENT:
            return _narrow_quotient(codec, types, x, *operands)
        case Operation.ACCUMULATE:
            old, beta = operands
            return x + beta * old
        case Operation.CLAMP:
            (y,) = operands
            low = -0.0 - y
            x = where(x > y, y, x)
            return where(x < low, low, x)
    return _ARITHMETIC[types.operation](x, *operands)


def _narrow_quotient(
    codec: Codec, types: StageTypes, x: Value, residue: Value, inverse: Value
) -> Value:
    """Return x / y for a dst of few bits, from the inverse of y and its residue.

    It need not be rounded correctly; it only has to be on the right side of the midpoint at which
    dst rounds up or down. It is, because midpoints have few bits (`rounding_bits`). NaN, and
    infinities that become NaN, are divided; integers become neither of them, nor numbers below
    2^-24.
    """
    quotient = codec.floats("fma", x, inverse, x * residue)
    if types.src in INTEGERS:
        return quotient
    if types.dst not in INTEGERS:
        # the sum of zeros with different signs has the wrong sign; the right one is that of x
        i32 = codec.integers(32)
        sign = x.bitcast(i32) & FLOATS["f32"].sign
        quotient = (quotient.bitcast(i32) | sign).bitcast(quotient.type)

    def divide() -> Value:
        # y itself, from its inverse and residue: the error is far below the distance to the next
        # float
        ones = inverse.like(1.0)
        about = ones / inverse
        rest = codec.floats("fma", -residue, about, codec.floats("fma", -inverse, about, ones))
        result = x / codec.floats("fma", rest, about, about)
        if types.dst in INTEGERS:
            return where(is_number(result), result, 0.0)
        return codec.canonical(result, "f32")

    # at most `GROUP` flags, of which one is true if any quotient is NaN
    size = min(codec.lanes, GROUP)
    parts = codec.parts(quotient, size)
    pairs = zip(parts[::2], parts[1::2] or parts, strict=True)
    is_rare = reduce(operator.or_, [any_nan(*pair) for pair in pairs])
    if has_small_steps(types.dst):
        # the shift drops the sign, and subtracting 1 makes zeros the largest numbers
        doubled = quotient.bitcast(codec.integers(32)) << 1
        least = reduce(lesser, codec.parts(doubled - 1, size))
        limit = 2 * int(np.float32(_LEAST).view(np.uint32)) - 1
        is_rare |= least.below(limit)
    return codec.rarely(is_rare, divide, quotient)
