"""The program of the interpreter of tiles, and the tables that stages read.

A program has an instruction for tiles of one shape: `TileHead`; the offset of each operand; for
each outer loop, outermost first, `LoopHead` and its stride in each operand; then a `TileStep`
for each step. There are always `OPERANDS` operands; one that a reorder lacks has offset and strides
0. Offsets and strides are in elements.

A step moves a tile, by the interpreter of boxes with a program of its own, or runs a stage, which
is compiled code that converts rows or does arithmetic on them. A stage reads a table, whose address
is in the step; tables of offsets follow it, one int64 for each row.

A schedule has the code and the arrays of a step in place of their addresses, which `runtime.stages`
writes.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from memdesc.dtypes import BYTE_BITS
from memdesc.tuples import NamedTuple
from reorder.cpu.machine import LINE_NBYTES, SHARED_NBYTES
from reorder.cpu.schedule.operands import Operands
from reorder.cpu.schedule.program import LoopHead
from reorder.plan.nodes import Node

# Lanes of the vectors of masked loads and stores: if the processor has these, a row of fewer
# elements is converted at once.
MASKED_LANES = 16


class Operation(IntEnum):
    """An operation on a value x and its operand y."""

    ADD = 0
    MULTIPLY = 1
    DIVIDE = 2
    # division by multiplications, where dst has few bits: y is the residue of the inverse, and a
    # table of inverses follows that of residues
    NARROW_QUOTIENT = 3
    # x + beta * y, where y is the old dst
    ACCUMULATE = 4
    # x limited to the range from -y to y
    CLAMP = 5
    # x rounded to f16 and converted back; no operand
    ROUND_F16 = 6
    # x itself; no operand
    CONVERT = 7


class StageTable(NamedTuple):
    """The rows of a stage; tables follow of where they start in src, dst and the operand.

    A table of prefetched lines comes last: where each is in src, in bytes from the start of a tile.
    """

    rows: int
    # elements of each row
    columns: int
    # the operand of an element is at index `(position in the row % period) >> shift`; period 0:
    # the row has one operand; a group has `1 << shift` elements
    period: int
    # 2^32 / period, rounded up; 0 if no row is longer than the period
    reciprocal: int
    shift: int
    # elements from each operand to its inverse, for `NARROW_QUOTIENT`
    inverses: int
    # the bits of beta as a number of the working type, for `ACCUMULATE`
    beta: int


class Placement(NamedTuple):
    """Where a step finds its data, written by the interpreter of tiles; offsets are in elements."""

    src_offset: int
    dst_offset: int
    operand_address: int
    operand_offset: int
    # address of src, and the offset of the tile that follows
    buffer_address: int
    following_offset: int


# `operand_placed_by` of operands that start at their base.
NO_OPERAND = -1


class Base(IntEnum):
    """Where a side of a step is: in src or dst, at the offset of the tile, or in a slot of scratch.

    A slot is named after what it holds. A larger number is an address.
    """

    SRC = 0
    DST = 1
    # what a stage makes of the values in one goes to the other one
    VALUES = 2
    OTHERS = 3
    OLD_ELEMENTS = 4
    OLD_VALUES = 5
    # 4-bit elements as bytes: in the order of src, and in that of dst
    UNPACKED = 6
    PACKED = 7


# Two slots fill a 32 KiB L1, so that a step finds what the previous step wrote in it. The extra
# cache line keeps slots from starting at equal addresses modulo 4096.
SLOT_NBYTES = 16384 + LINE_NBYTES
SLOT_BITS = SLOT_NBYTES * BYTE_BITS


class TileStep(NamedTuple):
    """One step of a tile, which the interpreter of tiles calls.

    The base of a side (src, dst, operand) is a `Base`, or an array in place of its address.
    """

    # a compiled interpreter or stage
    interpreter: Any
    # its arguments: a program or a table, ranges, and their number
    program: Any
    ranges: Any
    range_count: int
    src_base: Any
    dst_base: Any
    operand_base: Any = Base.SRC
    # the operand of the box whose offset is added to this base, or `NO_OPERAND`
    operand_placed_by: int = NO_OPERAND
    # moves take offsets in bytes: offsets in src and dst, in elements, are shifted left by this
    shift: int = 0


class StageTypes(NamedTuple):
    """What the code of a stage depends on: types, one of which is usually the working type.

    A plan has few stages, so each is compiled for its operation and its operands alone.
    """

    src: str
    dst: str
    # the type between the two, which operands have
    work: str
    operation: Operation
    # whether whole cache lines of dst, which must be aligned to its elements, are written by
    # non-temporal stores; the interpreter of tiles emits the fence that these need
    streams: bool
    # bits of the elements of src, of which the tile that follows is prefetched; 0: none is
    prefetched_bits: int = 0
    operands: Operands = Operands.ONE


# src, dst, and the scale and the zero point of each.
OPERANDS = 6


# How many scratches there are; the system gives each one its memory at its first use. A call that
# finds none free waits; a scratch is held no longer than one call of an interpreter.
SCRATCHES = 256
# The block is the address of the C function that yields the core, then a lock for each scratch in
# its own cache line, then the scratches. Every `Base` but src and dst is a slot of a scratch.
YIELD_AT = 0
LOCKS_AT = SHARED_NBYTES
SCRATCHES_AT = LOCKS_AT + SCRATCHES * SHARED_NBYTES
SCRATCH_NBYTES = (len(Base) - Base.VALUES) * SLOT_NBYTES


class TileHead(NamedTuple):
    """The start of the instruction of tiles."""

    # number of outer loops, and of steps
    outer: int
    steps: int
    # address of the block of scratch; None in its place
    scratch_block: Any = None


def encode_tile(
    offsets: Sequence[int], outer: Sequence[Node], steps: Sequence[TileStep]
) -> list[Any]:
    """Return the instruction of tiles, in which code and arrays stand for their addresses.

    The first tile has an offset in each operand, the loops over tiles a stride.
    """
    words = [*TileHead(len(outer), len(steps)), *_of_each_operand(offsets)]
    for node in outer:
        words += [*LoopHead(node.extent, node.valid), *_of_each_operand(node.strides)]
    return [*words, *(word for step in steps for word in step)]


def _of_each_operand(values: Sequence[int]) -> list[int]:
    """Return a value for each operand, 0 for those that a reorder lacks."""
    assert len(values) <= OPERANDS  # noqa: S101 - there are no others
    return [*values, *[0] * (OPERANDS - len(values))]
