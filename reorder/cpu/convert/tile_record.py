"""Records of tiles: what Python writes and the walker over tiles reads.

A program is `TilesHead`, then the records of tiles. The record of a tile is `TileHead`; the offset
of each operand; for each outer loop, outermost first, `LoopHead` and its stride in each operand;
then a `Step` for each step. There are always `OPERANDS` operands: those that a reorder lacks have
offset and strides 0. Offsets and strides are in elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reorder.cpu.record import fields_of
from reorder.cpu.schedule.program import LoopHead

if TYPE_CHECKING:
    from reorder.cpu.convert.records import Step
    from reorder.plan.nodes import Node

__all__ = ["OPERANDS", "TILES", "TileHead", "TilesHead", "encode_tile"]

# src, dst, and a scale and a zero point of either.
OPERANDS = 6


class TilesHead(NamedTuple):
    """The start of a program of tiles."""

    # address of the block of scratch
    scratch_block: int


TILES = fields_of(TilesHead)


class TileHead(NamedTuple):
    """The start of the record of a tile."""

    # number of outer loops, and of steps
    outer: int
    steps: int


def encode_tile(offsets: tuple[int, ...], outer: tuple[Node, ...], steps: list[Step]) -> list[int]:
    """Return the record of a tile, as a list of int64."""
    words = [*TileHead(len(outer), len(steps)), *_of_each_operand(offsets)]
    for node in outer:
        words += [*LoopHead(node.extent, node.valid), *_of_each_operand(node.strides)]
    return [*words, *(word for step in steps for word in step)]


def _of_each_operand(values: tuple[int, ...]) -> list[int]:
    """Return a value for each operand, 0 for those that a reorder lacks."""
    assert len(values) <= OPERANDS  # noqa: S101 - there are no others
    return [*values, *[0] * (OPERANDS - len(values))]
