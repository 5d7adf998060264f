"""The program of the interpreter of tiles, and the tables that stages read.

A program is `TilesHead`, then an instruction for each tile: `TileHead`; the offset of each operand;
for each outer loop, outermost first, `LoopHead` and its stride in each operand; then a `TileStep`
for each step. There are always `OPERANDS` operands: those that a reorder lacks have offset and
strides 0. Offsets and strides are in elements.

A step moves a tile, by the interpreter of boxes with a program of its own, or runs a stage, which
is compiled code that converts rows or does arithmetic on them. A stage reads a table, whose address
is in the step; tables of offsets follow it, one int64 for each row.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from memdesc.dtypes import BYTE_BITS
from reorder.cpu.schedule.program import LoopHead
from reorder.cpu.tables import fields_of
from reorder.cpu.target import LINE_NBYTES

if TYPE_CHECKING:
    from reorder.plan.nodes import Node

# Lanes of the vectors of masked loads and stores: where the processor has these, rows of fewer
# elements are converted at once.
MASKED_LANES = 16


class ConvertTable(NamedTuple):
    """A conversion of rows; two tables follow, the offsets of the rows in src and in dst."""

    rows: int
    # elements of each row
    columns: int
    # rows of src are prefetched this many bytes ahead; 0: not at all
    prefetch_distance: int


class CombineTable(NamedTuple):
    """One operation on rows; three tables follow, of offsets in input, output and operand."""

    # an `Operation`
    operation: int
    rows: int
    # elements of each row
    columns: int
    # the operand of an element is at index `position in the row & operand_mask`: 0 if the row has
    # one operand, -1 if each element has one, `PERIOD` - 1 if they repeat
    operand_mask: int
    # as in `ConvertTable`
    prefetch_distance: int


class Placement(NamedTuple):
    """Where a step finds its data, written by the interpreter of tiles; offsets are in elements."""

    src_offset: int
    dst_offset: int
    operand_address: int
    operand_offset: int
    # address of the factor of `ADD_PRODUCT`, or of the inverses of `NARROW_QUOTIENT`
    factor_address: int


# `placed_by` of a side that always starts at its base.
NO_OPERAND = -1


class Base(IntEnum):
    """Where a side of a step starts: src, dst, or a slot of scratch named after what it holds.

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


# Two slots fill a 32 KiB L1, so that a step finds there what the previous step wrote. The extra
# cache line keeps slots from starting at equal addresses modulo 4096.
SLOT_NBYTES = 16384 + LINE_NBYTES
SLOT_BITS = SLOT_NBYTES * BYTE_BITS


class TileStep(NamedTuple):
    """One step of a tile, which the interpreter of tiles calls.

    Three sides (src, dst, operand) have three fields each. The base is a `Base` or an address.
    `placed_by` is the operand of the box whose offset is added to the base, or `NO_OPERAND`.
    That offset, in elements, is shifted right by `shift`, or left by `-shift`: moves take offsets
    in bytes, and the values of an operand may be stored repeatedly.
    """

    # address of a compiled interpreter or stage
    interpreter: int
    # its arguments: address of a program or a table, address of ranges, number of ranges
    program: int
    ranges: int
    range_count: int
    src_base: int
    src_placed_by: int
    src_shift: int
    dst_base: int
    dst_placed_by: int
    dst_shift: int
    operand_base: int
    operand_placed_by: int
    operand_shift: int
    # what becomes the `factor_address` of a `Placement`: a `Base` or an address
    factor_base: int


# src, dst, and the scale and the zero point of each.
OPERANDS = 6


class TilesHead(NamedTuple):
    """The start of a program of tiles."""

    # address of the block of scratch
    scratch_block: int


TILES = fields_of(TilesHead)


class TileHead(NamedTuple):
    """The start of the instruction of a tile."""

    # number of outer loops, and of steps
    outer: int
    steps: int


def encode_tile(
    offsets: tuple[int, ...], outer: tuple[Node, ...], steps: list[TileStep]
) -> list[int]:
    """Return the instruction of a tile, as a list of int64."""
    words = [*TileHead(len(outer), len(steps)), *_of_each_operand(offsets)]
    for node in outer:
        words += [*LoopHead(node.extent, node.valid), *_of_each_operand(node.strides)]
    return [*words, *(word for step in steps for word in step)]


def _of_each_operand(values: tuple[int, ...]) -> list[int]:
    """Return a value for each operand, 0 for those that a reorder lacks."""
    assert len(values) <= OPERANDS  # noqa: S101 - there are no others
    return [*values, *[0] * (OPERANDS - len(values))]
