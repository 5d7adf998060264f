"""Micro-kernels: two to four rows that become one, element by element in turn, and the way back.

Where a nest of the transposing kernel has so few elements, and those of the other one follow
each other without a gap, whole vectors are zipped: c0 c1 c2 c0 c1 c2 ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reorder.cpu.kernels.emit import int64, loop, minimum
from reorder.cpu.kernels.shuffle import LANE_BITS, concatenate, pick

if TYPE_CHECKING:
    from reorder.cpu.kernels.emit import Elements, Place
    from reorder.cpu.kernels.transpose import Nest

__all__ = ["COUNTS", "emit_interleaved"]

COUNTS = (2, 3, 4)


def emit_interleaved(
    elements: Elements,
    src: Place,
    dst: Place,
    columns: Nest,
    rows: Nest,
    span: tuple[Any, Any],
    done: Any,
) -> None:
    """Move two nests if one of them is so short, then branch to `done`.

    `span` is a range of columns with data.
    """
    builder = elements.builder
    lanes = LANE_BITS // elements.bits
    if elements.bits > 8:  # noqa: PLR2004 - two vectors at once, but four of bytes are enough
        lanes *= 2
    first, last = span
    is_all_rows = builder.icmp_signed("==", rows.valid, rows.extent)
    is_all_columns = builder.and_(
        builder.icmp_signed("==", first, int64(0)), builder.icmp_signed("==", last, columns.extent)
    )
    for count in COUNTS:
        fits = builder.and_(is_all_rows, builder.icmp_signed("==", rows.extent, int64(count)))
        with builder.if_then(builder.and_(fits, _is_run(builder, columns.run, span, lanes))):
            for fro, to in rows.around(builder, src, dst):
                _emit_zipped(elements, fro, to, columns, rows, span, (count, lanes))
            builder.branch(done)
        fits = builder.and_(is_all_columns, builder.icmp_signed("==", columns.extent, int64(count)))
        with builder.if_then(
            builder.and_(
                builder.and_(fits, is_all_rows),
                _is_run(builder, rows.run, (int64(0), rows.extent), lanes),
            )
        ):
            for fro, to in rows.around(builder, src, dst):
                _emit_unzipped(elements, fro, to, columns, rows, (count, lanes))
            builder.branch(done)


def _is_run(builder: Any, run: Any, span: tuple[Any, Any], lanes: int) -> Any:
    """Whether a span of a nest, which may start inside of a run, falls into vectors that lie within runs."""
    first, last = span
    length = builder.sub(last, first)
    numbers = builder.or_(builder.or_(run, length), first)
    is_cut = builder.icmp_signed("==", builder.and_(numbers, int64(lanes - 1)), int64(0))
    is_one = builder.icmp_signed(">=", run, last)
    fits = builder.and_(builder.icmp_signed(">", run, int64(0)), builder.or_(is_cut, is_one))
    return builder.and_(fits, builder.icmp_signed(">=", length, int64(lanes)))


def _emit_zipped(
    elements: Elements,
    src: Place,
    dst: Place,
    columns: Nest,
    rows: Nest,
    span: tuple[Any, Any],
    shape: tuple[int, int],
) -> None:
    builder = elements.builder
    count, lanes = shape
    end = builder.sub(span[1], int64(lanes))
    with loop(builder, *span, lanes) as next_column:
        column = minimum(builder, next_column, end)
        lines = []
        for k in range(count):
            row, index = rows.at(builder, src, int64(k))
            lines.append(elements.load_vector(row, builder.add(index, column), lanes))
        together = concatenate(builder, [*lines, *lines[: 4 - count]] if count > 2 else lines)  # noqa: PLR2004 - in pairs
        picks = (j % count * lanes + j // count for j in range(count * lanes))
        elements.store_vector(pick(builder, together, picks), *columns.at(builder, dst, column))


def _emit_unzipped(
    elements: Elements, src: Place, dst: Place, columns: Nest, rows: Nest, shape: tuple[int, int]
) -> None:
    builder = elements.builder
    count, lanes = shape
    end = builder.sub(rows.extent, int64(lanes))
    with loop(builder, int64(0), rows.extent, lanes) as next_row:
        row = minimum(builder, next_row, end)
        together = elements.load_vector(*rows.at(builder, src, row), count * lanes)
        for k in range(count):
            column, index = columns.at(builder, dst, int64(k))
            picks = (j * count + k for j in range(lanes))
            elements.store_vector(pick(builder, together, picks), column, builder.add(index, row))
