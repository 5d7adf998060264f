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
    "Base",
    "CombineRecord",
    "ConvertRecord",
    "Placement",
    "PrefetchRecord",
    "Step",
    "table_addresses",
]


class ConvertRecord(NamedTuple):
    """A conversion of rows; two tables follow, the offsets of the rows in src and in dst."""

    rows: int
    # elements of each row
    columns: int
    # how many bytes before they are read rows of src are prefetched, or 0
    prefetch_distance: int


class CombineRecord(NamedTuple):
    """One operation on rows; three tables follow, of offsets in input, output and operand."""

    # an `Operation`
    operation: int
    rows: int
    # elements of each row
    columns: int
    # which bits of its position in a row lead to an element's operand: 0 where one operand serves
    # the row, -1 where each element has its own, `PERIOD` - 1 where they repeat
    operand_mask: int
    # as for a conversion
    prefetch_distance: int


class PrefetchRecord(NamedTuple):
    """Rows to prefetch; one table follows, their offsets in elements."""

    rows: int
    # bytes of each row
    nbytes: int
    # width of an element
    bits: int


class Placement(NamedTuple):
    """Where the walker over tiles places a step: offsets are in elements."""

    src_offset: int
    dst_offset: int
    operand_address: int
    operand_offset: int
    # of the number that `ADD_PRODUCT` multiplies with, or of the reciprocals of `QUOTIENT`
    number_address: int


# The operand of a side that none places.
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


class Step(NamedTuple):
    """One step of a tile, which the walker over tiles calls.

    A base is a `Base` or an address. `placed_by` is the operand whose offset places a side, or
    `NO_OPERAND`. Offsets are in elements, of 2 ** shift elements each; where the shift is
    negative, an element is as many of them.
    """

    # address of a compiled walker or stage
    walker: int
    # what it takes: addresses of a program, or a record, and of tasks, and the number of tasks
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
    # as in a `Placement`
    number_address: int


def table_addresses(
    builder: Builder, address: Value, kind: type[NamedTuple], rows: Value, count: int
) -> list[Value]:
    """Return the addresses of the tables that follow a record, each of `rows` entries."""
    first = builder.add(address, int64(nbytes_of(kind)))
    size = builder.mul(rows, int64(WORD_NBYTES))
    return [builder.add(first, builder.mul(size, int64(k))) for k in range(count)]
