"""Records of the stages: what Python writes and a compiled stage reads.

A record is followed by its tables of offsets, one int64 for each row.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from reorder.cpu.kernels.emit import int64
from reorder.cpu.record import WORD_NBYTES, nbytes_of

if TYPE_CHECKING:
    from reorder.cpu.kernels.emit import Builder, Value

__all__ = [
    "NO_OPERAND",
    "ZEROED_LANES",
    "Base",
    "CombineRecord",
    "ConvertRecord",
    "Placement",
    "PrefetchRecord",
    "RepeatRecord",
    "Step",
    "table_addresses",
]

# Rows of at most this many elements, one block of channels, can end in zeros; shorter ones are
# converted at once too, by masked loads and stores where the processor has these.
ZEROED_LANES = 16


class ConvertRecord(NamedTuple):
    """A conversion of rows; two tables follow, the offsets of the rows in src and in dst."""

    rows: int
    # elements of each row
    columns: int
    # elements that masked stores write for each row, at most `ZEROED_LANES`: the row, and the zeros
    # behind it; 0: it is not written by these
    extent: int
    # rows of src are prefetched this many bytes ahead; 0: not at all
    prefetch_distance: int


class CombineRecord(NamedTuple):
    """One operation on rows; three tables follow, of offsets in input, output and operand."""

    # an `Operation`
    operation: int
    rows: int
    # elements of each row
    columns: int
    # as in `ConvertRecord`
    extent: int
    # the operand of an element is at index `position in the row & operand_mask`: 0 if the row has
    # one operand, -1 if each element has one, `PERIOD` - 1 if they repeat
    operand_mask: int
    # as in `ConvertRecord`
    prefetch_distance: int


class PrefetchRecord(NamedTuple):
    """Rows to prefetch; one table follows, their offsets in elements."""

    rows: int
    # bytes of each row
    nbytes: int
    # width of an element
    bits: int


class RepeatRecord(NamedTuple):
    """Values that are stored several times each."""

    values: int
    # how often each value is stored
    times: int


class Placement(NamedTuple):
    """Where a step finds its data, written by the walker over tiles: offsets are in elements."""

    src_offset: int
    dst_offset: int
    operand_address: int
    operand_offset: int
    # address of the factor of `ADD_PRODUCT`, or of the reciprocals of `QUOTIENTS`
    number_address: int


# `placed_by` of a side that always starts at its base.
NO_OPERAND = -1


class Base(IntEnum):
    """Where a side starts: src, dst, or a slot of scratch named after what it holds.

    A larger number is an address.
    """

    SRC = 0
    DST = 1
    SRC_ELEMENTS = 2
    VALUES = 3
    OLD_ELEMENTS = 4
    OLD_VALUES = 5
    RESULT = 6
    OPERANDS = 7
    RECIPROCALS = 8
    DISTINCT_OPERANDS = 9


class Step(NamedTuple):
    """One step of a tile, which the walker over tiles calls.

    Three sides (src, dst, operand) have three fields each. The base is a `Base` or an address.
    `placed_by` is the operand of the box whose offset is added to the base, or `NO_OPERAND`.
    That offset, in elements, is shifted right by `shift`, or left by `-shift`: moves take offsets
    in bytes, and the values of an operand may be stored repeatedly.
    """

    # address of a compiled walker or stage
    walker: int
    # its arguments: address of a program or of a record, address of tasks, number of tasks
    program: int
    tasks: int
    task_count: int
    src_base: int
    src_placed_by: int
    src_shift: int
    dst_base: int
    dst_placed_by: int
    dst_shift: int
    operand_base: int
    operand_placed_by: int
    operand_shift: int
    # what becomes the `number_address` of a `Placement`: a `Base` or an address
    number_base: int


def table_addresses(
    builder: Builder, address: Value, kind: type[NamedTuple], rows: Value, count: int
) -> list[Value]:
    """Return the addresses of the tables that follow a record, each of `rows` entries."""
    first = builder.add(address, int64(nbytes_of(kind)))
    size = builder.mul(rows, int64(WORD_NBYTES))
    return [builder.add(first, builder.mul(size, int64(k))) for k in range(count)]
