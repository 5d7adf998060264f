"""Short rows that lie one behind the other in dst: several of them are one store.

Where a row is a quarter of a cache line, its loads of offsets, its load, its store and its loop
take longer than the caches; joined rows need no offsets in dst and a quarter of the stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.cpu.kernels.emit import int64, load_int64, loop, minimum
from reorder.cpu.kernels.shuffle import LANE_BITS, concatenate
from reorder.cpu.target import BYTE_BITS, LINE_BITS, LINE_NBYTES

if TYPE_CHECKING:
    from reorder.cpu.kernels.elements import Elements, Location
    from reorder.cpu.kernels.emit import Value
    from reorder.cpu.kernels.row_table import InnerLoop, RowTable

__all__ = ["JOINED_BITS", "emit_joined"]

# Bits of the rows that are joined.
JOINED_BITS = (LANE_BITS, 2 * LANE_BITS)


def emit_joined(
    elements: Elements,
    places: tuple[Location, Location],
    rows: RowTable,
    run: tuple[InnerLoop, int],
    done: Value,
) -> None:
    """Move rows of one vector that are joined in dst, if all hold data, then branch to `done`.

    `places` are src and dst, `run` is (columns, lanes).
    """
    builder = elements.builder
    columns, lanes = run
    is_whole = builder.and_(
        builder.icmp_signed("==", columns.valid, columns.extent),
        builder.icmp_signed(">=", rows.valid, rows.last),
    )
    with builder.if_then(builder.and_(rows.is_joined, is_whole)):
        src, dst = (elements.rebased(place) for place in places)
        nbytes, per_line = lanes * elements.bits // BYTE_BITS, LINE_BITS // (lanes * elements.bits)
        # rows in front of the first line, those of whole lines, and those behind them
        start = elements.moved(dst, load_int64(builder, rows.dst_table, rows.first))
        before = builder.and_(builder.neg(elements.address_of(start)), int64(LINE_NBYTES - 1))
        before = builder.udiv(before, int64(nbytes))
        first = minimum(builder, builder.add(rows.first, before), rows.last)
        last = builder.add(first, builder.and_(builder.sub(rows.last, first), int64(-per_line)))
        # where the first of all rows of the table would start
        origin = elements.moved(start, builder.mul(rows.first, int64(-nbytes)))
        with loop(builder, first, last, per_line) as row:
            parts = [
                elements.load_vector(
                    elements.moved(
                        src, load_int64(builder, rows.src_table, builder.add(row, int64(k)))
                    ),
                    lanes,
                )
                for k in range(per_line)
            ]
            target = elements.moved(origin, builder.mul(row, int64(nbytes)))
            elements.store_vector(concatenate(builder, parts), target)
        for part in (rows._replace(last=first), rows._replace(first=last)):
            for row_src, row_dst, _ in part.each_row(elements, src, dst):
                elements.store_vector(elements.load_vector(row_src, lanes), row_dst)
        builder.branch(done)
