"""The stage that permutes the bytes of rows, by instructions that take them from two registers."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from reorder.cpu.convert.records import PermuteRecord, Placement
from reorder.cpu.kernels.elements import Elements, Location
from reorder.cpu.kernels.emit import int64, load_int64, load_record, loop
from reorder.cpu.kernels.shuffle import permute_bytes
from reorder.cpu.record import WORD_NBYTES, nbytes_of
from reorder.cpu.schedule.kernel import Kernel
from reorder.cpu.target import BYTE_BITS, LINE_NBYTES

if TYPE_CHECKING:
    from reorder.cpu.convert.permutation import Permutation
    from reorder.cpu.convert.rows import StageArguments
    from reorder.cpu.kernels.emit import Builder, Value

__all__ = ["emit_permute", "permute_numbers"]

# The words of a `VectorMove`.
_OFFSET_WORDS = 3
_MOVE_WORDS = _OFFSET_WORDS + LINE_NBYTES // WORD_NBYTES


def permute_numbers(permutation: Permutation) -> list[int]:
    """Return a permutation as the numbers of a `PermuteRecord` and of what follows it."""
    nbytes, moves, (src_table, dst_table) = permutation
    record = PermuteRecord(len(src_table), nbytes, len(moves))
    words = ((*move.src, move.dst, *move.places.view("int64").tolist()) for move in moves)
    return [*record, *src_table, *dst_table, *chain.from_iterable(words)]


def emit_permute(builder: Builder, arguments: StageArguments) -> None:
    """Emit the permutation of all rows of a `PermuteRecord`."""
    record = load_record(builder, arguments.record, PermuteRecord)
    src_table = builder.add(arguments.record, int64(nbytes_of(PermuteRecord)))
    dst_table = builder.add(src_table, builder.mul(record.rows, int64(WORD_NBYTES)))
    moves = builder.add(dst_table, builder.mul(record.rows, int64(WORD_NBYTES)))
    moves_end = builder.add(moves, builder.mul(record.vectors, int64(_MOVE_WORDS * WORD_NBYTES)))
    placement = load_record(builder, arguments.placement, Placement)
    src = builder.add(arguments.src, placement.src_offset)
    dst = builder.add(arguments.dst, placement.dst_offset)
    elements = Elements(builder, Kernel(BYTE_BITS))
    is_short = builder.icmp_signed("<", record.nbytes, int64(LINE_NBYTES))
    with builder.if_else(is_short) as (short, whole):
        with short:
            mask = elements.lane_mask(record.nbytes, LINE_NBYTES)
            index = _places(elements, moves)
            with loop(builder, int64(0), record.rows) as row:
                first = _start(builder, src, src_table, row)
                permuted = permute_bytes(builder, index, elements.load_masked(first, mask))
                elements.store_masked(permuted, _start(builder, dst, dst_table, row), mask)
        with whole, loop(builder, int64(0), record.rows) as row:
            first = _start(builder, src, src_table, row)
            target = _start(builder, dst, dst_table, row)
            with loop(builder, moves, moves_end, _MOVE_WORDS * WORD_NBYTES) as move:
                offsets = [load_int64(builder, move, k) for k in range(_OFFSET_WORDS)]
                vectors = [
                    elements.load_vector(elements.moved(first, offset), LINE_NBYTES)
                    for offset in offsets[:2]
                ]
                permuted = permute_bytes(builder, _places(elements, move), *vectors)
                elements.store_vector(permuted, elements.moved(target, offsets[2]))


def _start(builder: Builder, address: Value, table: Value, row: Value) -> Location:
    """Return where a row starts."""
    return Location(builder.add(address, load_int64(builder, table, row)), int64(0))


def _places(elements: Elements, move: Value) -> Value:
    """Return the places of the bytes of a `VectorMove`."""
    at = elements.builder.add(move, int64(_OFFSET_WORDS * WORD_NBYTES))
    return elements.load_vector(Location(at, int64(0)), LINE_NBYTES)
