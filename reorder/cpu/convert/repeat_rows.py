"""The stage that stores each value of a row several times, for operands of short groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.cpu.convert.records import Placement, RepeatRecord
from reorder.cpu.convert.rows import Row
from reorder.cpu.kernels.elements import Location
from reorder.cpu.kernels.emit import int64, load_record, loop
from reorder.cpu.kernels.shuffle import pick
from reorder.cpu.target import register_bits

if TYPE_CHECKING:
    from reorder.cpu.convert.rows import StageArguments
    from reorder.cpu.kernels.emit import Builder

__all__ = ["can_repeat", "emit_repeat"]

# These numbers of copies are picked into vectors of several values.
_SHORT_RUNS = (2, 4, 8)
# Multiples of this many copies are stored as vectors of one value. No register has more values of
# a working type.
_LONG_RUN = 16


def can_repeat(times: int) -> bool:
    """Whether values can be stored so often."""
    return times in _SHORT_RUNS or (times > 0 and times % _LONG_RUN == 0)


def emit_repeat(builder: Builder, arguments: StageArguments, dtype: str) -> None:
    """Emit what a `RepeatRecord` asks for, on values of a working type."""
    record = load_record(builder, arguments.record, RepeatRecord)
    placement = load_record(builder, arguments.placement, Placement)
    src = Row.at(builder, dtype, Location(arguments.src, placement.src_offset))
    dst = Row.at(builder, dtype, Location(arguments.dst, placement.dst_offset))
    lanes = register_bits() // src.elements.bits
    whole = builder.and_(record.values, int64(-lanes))
    for times in _SHORT_RUNS:
        with builder.if_then(builder.icmp_signed("==", record.times, int64(times))):
            for start, stop, width in ((int64(0), whole, lanes), (whole, record.values, 1)):
                with loop(builder, start, stop, width) as i:
                    values = src.load(i, width)
                    copies = pick(builder, values, [k // times for k in range(width * times)])
                    dst.store(copies, builder.mul(i, int64(times)))
    with (
        builder.if_then(builder.icmp_signed(">=", record.times, int64(_LONG_RUN))),
        loop(builder, int64(0), record.values) as i,
    ):
        copies = pick(builder, src.load(i, 1), [0] * lanes)
        start = builder.mul(i, record.times)
        with loop(builder, start, builder.add(start, record.times), lanes) as j:
            dst.store(copies, j)
