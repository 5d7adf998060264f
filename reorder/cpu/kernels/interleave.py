"""Micro-kernels: two to four rows interleaved into one, and one row split into two to four.

They replace the transposition if one loop group has two to four elements and the other one comes in
runs (see `LoopGroup.run`): whole vectors are interleaved, as c0 c1 c2 c0 c1 c2 ...
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from reorder.cpu.kernels.emit import int64, loop, minimum
from reorder.cpu.kernels.shuffle import LANE_BITS, concatenate, pick
from reorder.cpu.schedule.select import MAX_INTERLEAVED
from reorder.cpu.target import BYTE_BITS, LINE_BITS, keeps_addresses

if TYPE_CHECKING:
    from collections.abc import Callable

    from reorder.cpu.kernels.elements import Elements, Location
    from reorder.cpu.kernels.emit import Builder, Value
    from reorder.cpu.kernels.loop_group import LoopGroup, Transposition

__all__ = ["emit_interleaved"]

_COUNTS = tuple(range(2, MAX_INTERLEAVED + 1))
# Vectors are concatenated in powers of two: two of them, or four; of three, the first is repeated.
_PAIR, _ODD, _QUAD = _COUNTS
# Lanes of shorter vectors of 8- and 16-bit elements.
_SHORT_LANES = 8, 4


def emit_interleaved(move: Transposition, span: tuple[Value, Value], done: Value) -> None:
    """Move both groups if one of them has two to four elements, then branch to `done`.

    `span` is the range of columns that hold data.
    """
    builder, columns, rows = move.elements.builder, move.columns, move.rows
    has_all_rows, has_all_columns = _has_all(move, span)
    every_row = int64(0), rows.extent
    for lanes, count in product(_lanes(move.elements.bits), _COUNTS):
        is_count = builder.icmp_signed("==", rows.extent, int64(count))
        fits = builder.and_(has_all_rows, is_count)
        with builder.if_then(builder.and_(fits, _is_run(builder, columns.run, span, lanes))):
            for part in move.each_repeat():
                _emit_join(part, span, count, lanes)
            builder.branch(done)
        is_count = builder.icmp_signed("==", columns.extent, int64(count))
        fits = builder.and_(builder.and_(has_all_columns, is_count), has_all_rows)
        wide = lanes
        if move.elements.streams and count != _ODD:
            wide = max(lanes, LINE_BITS // move.elements.bits)
        with builder.if_then(builder.and_(fits, _is_run(builder, rows.run, every_row, wide))):
            for part in move.each_repeat():
                _emit_split(part, count, wide)
            builder.branch(done)


def _lanes(bits: int) -> list[int]:
    """Return the lanes of the vectors to try, most first.

    Two 128-bit vectors are moved at once, or one of bytes. Runs of 8 or 4 elements, as in blocks of
    that many channels, take less.
    """
    most = (LANE_BITS if bits == BYTE_BITS else 2 * LANE_BITS) // bits
    return [most, *_SHORT_LANES] if most > _SHORT_LANES[0] else [most]


def _has_all(move: Transposition, span: tuple[Value, Value]) -> tuple[Value, Value]:
    """Whether all rows hold data, and whether a span has all columns."""
    builder, (first, last) = move.elements.builder, span
    is_start = builder.icmp_signed("==", first, int64(0))
    is_end = builder.icmp_signed("==", last, move.columns.extent)
    return (
        builder.icmp_signed("==", move.rows.valid, move.rows.extent),
        builder.and_(is_start, is_end),
    )


def _is_run(builder: Builder, run: Value, span: tuple[Value, Value], lanes: int) -> Value:
    """Whether vectors cover a span of a group without crossing the end of a run."""
    first, last = span
    length = builder.sub(last, first)
    numbers = builder.or_(builder.or_(run, length), first)
    is_aligned = builder.icmp_signed("==", builder.and_(numbers, int64(lanes - 1)), int64(0))
    is_one = builder.icmp_signed(">=", run, last)
    fits = builder.and_(builder.icmp_signed(">", run, int64(0)), builder.or_(is_aligned, is_one))
    return builder.and_(fits, builder.icmp_signed(">=", length, int64(lanes)))


def _emit_join(move: Transposition, span: tuple[Value, Value], count: int, lanes: int) -> None:
    """Interleave `count` rows; the last vectors overlap those before them."""
    elements, builder = move.elements, move.elements.builder
    _, last = span
    end = builder.sub(last, int64(lanes))
    starts = _starts(elements, move.rows, move.src, count)
    with loop(builder, *span, lanes) as next_column:
        column = minimum(builder, next_column, end)
        lines = [elements.load_vector(starts(k).plus(builder, column), lanes) for k in range(count)]
        padded = lines if count == _PAIR else [*lines, *lines[: _QUAD - count]]
        joined = concatenate(builder, padded)
        indices = (j % count * lanes + j // count for j in range(count * lanes))
        target = move.columns.locate(elements, move.dst, column)
        elements.store_lines(pick(builder, joined, indices), target)


def _emit_split(move: Transposition, count: int, lanes: int) -> None:
    """Split one row into `count` columns; the last vectors overlap those before them."""
    elements, builder = move.elements, move.elements.builder
    end = builder.sub(move.rows.extent, int64(lanes))
    starts = _starts(elements, move.columns, move.dst, count)
    with loop(builder, int64(0), move.rows.extent, lanes) as next_row:
        row = minimum(builder, next_row, end)
        source = move.rows.locate(elements, move.src, row)
        joined = elements.load_vector(source, count * lanes)
        for k in range(count):
            column = starts(k)
            part = pick(builder, joined, (j * count + k for j in range(lanes)))
            elements.store_lines(part, column.plus(builder, row))


def _starts(
    elements: Elements, group: LoopGroup, start: Location, count: int
) -> Callable[[int], Location]:
    """Return a function that locates the steps of a short group: kept in registers, or loaded."""
    if not keeps_addresses():
        return lambda k: group.locate(elements, start, int64(k))
    found = [group.locate(elements, start, int64(k)) for k in range(count)]
    return [elements.rebased(each) for each in found].__getitem__
