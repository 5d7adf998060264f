"""Short rows that fill no whole vectors: vectors of half a line, and a tail that may be narrower.

A store that crosses the end of a line takes about four cycles instead of one. Vectors of half a
line cross fewer ends than those of a line, and a tail of 16 bytes fewer than one of 32.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from reorder.cpu.kernels.emit import int64
from reorder.cpu.target import BYTE_BITS

if TYPE_CHECKING:
    from reorder.cpu.kernels.elements import Elements, Location
    from reorder.cpu.kernels.emit import Value
    from reorder.cpu.kernels.row_table import InnerLoop, RowTable

__all__ = ["emit_parts"]

# Bytes of a vector, vectors of a row, bytes of its tail, which may overlap them, and what divides
# the bytes of a row: others are no faster.
_PARTS = ((32, 1, 16, 1), (32, 2, 16, 8), (32, 2, 32, 8))


def emit_parts(
    elements: Elements,
    places: tuple[Location, Location],
    rows: RowTable,
    run: InnerLoop,
    done: Value,
) -> None:
    """Move rows of these lengths without padding, then branch to `done`; all rows hold data.

    `places` are src and dst.
    """
    builder = elements.builder
    is_whole = builder.icmp_signed("==", run.valid, run.extent)
    nbytes = elements.nbytes(run.extent)
    for size, count, tail, grain in _PARTS:
        tests = [
            is_whole,
            builder.icmp_signed(">", nbytes, int64(count * size)),
            builder.icmp_signed("<=", nbytes, int64(count * size + tail)),
            builder.icmp_signed("==", builder.and_(nbytes, int64(grain - 1)), int64(0)),
        ]
        with builder.if_then(reduce(builder.and_, tests)):
            _emit_rows(elements, places, rows, run, (size, count, tail))
            builder.branch(done)


def _emit_rows(
    elements: Elements,
    places: tuple[Location, Location],
    rows: RowTable,
    run: InnerLoop,
    part: tuple[int, int, int],
) -> None:
    """Move rows of `count` vectors of `size` bytes and a tail: `part` is size, count and tail."""
    builder = elements.builder
    size, count, tail = part
    size, tail = (number * BYTE_BITS // elements.bits for number in (size, tail))
    src, dst = (elements.rebased(place) for place in places)
    parts = [(int64(k * size), size) for k in range(count)]
    parts.append((builder.sub(run.extent, int64(tail)), tail))
    for row_src, row_dst, _ in rows.each_row(elements, src, dst):
        vectors = [
            elements.load_vector(row_src.plus(builder, start), lanes) for start, lanes in parts
        ]
        for (start, _), vector in zip(parts, vectors, strict=True):
            elements.store_vector(vector, row_dst.plus(builder, start))
