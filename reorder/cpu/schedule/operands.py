"""The rows of a tile, and where an operation finds its operand: scales, zero points, the old dst.

A row is a run of elements along the innermost nodes of a tile that is contiguous in src and in dst.
All of its elements share one value of the operand, or each element has its own, or each group of
adjacent elements. Values are read in place where rows stay long. Otherwise they are gathered when
the reorder is scheduled: a table has a block of values for each tile, in the order in which the
tile is converted, and tiles with the same operands share a block. Values that repeat along a row
are stored once, and the first ones again behind them, so that a vector can be loaded from any
position. Examples:

* scales of the channels of `aBcd16b`, or of any number of channels in `acdb`: in place, a row is
  one block or one pixel; gathered, it goes on through all pixels;
* scales in groups along dim b of `ab` if dst is `ba`: adjacent elements of a row of dst have
  different scales, which are far apart. A block has one value for each group.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import dropwhile, takewhile
from math import lcm, prod

import numpy as np

from memdesc.tuples import NamedTuple
from reorder.cpu.schedule.loops import count_contiguous, offset_table
from reorder.cpu.tables import Words
from reorder.plan.nodes import DST, SRC, Node

# The operand among the strides of the nodes of a tile.
_OPERAND = 2
# How many values are stored again where they repeat: the lanes of the widest vector.
_OVERLAP = 64
# The values of a cache line, and the longest period that is made a multiple of it, so that vectors
# that start lines of src or dst start lines of a block, too.
_LINE, _MAX_PERIOD = 16, 256
# Rows of fewer elements than this gain from a gathered value for each element.
_SHORT_COLUMNS = 32
# The fewest elements of a group that shares a row with others: within this many lanes of a vector,
# the operand changes at most once. Groups of more than the second number are rows of their own,
# whose operand is loaded once.
MIN_GROUP, _MAX_GROUP = 16, 128
# The most values of a table. It has more values than the reorder only where these repeat after a
# few elements.
_MAX_TABLE = 1 << 22


class Operands(IntEnum):
    """The operands of a row."""

    # one for all elements, one for each, or one for each group
    ONE = 0
    EACH = 1
    GROUPS = 2


class TileRows(NamedTuple):
    """Rows of src, dst and an operand, and how an element finds its value of the operand."""

    # the loops over rows, outermost first, with a stride on each side
    outer: tuple[Node, ...]
    # elements of a row
    columns: int
    # after how many elements the values of a row repeat; 0: it has one value
    period: int = 0
    # a group has `1 << shift` elements
    shift: int = 0
    # where the values of a block are, relative to the start of the tile; None: the operand is in
    # place
    block: Words | None = None

    @property
    def operands(self) -> Operands:
        """Which operands a row has."""
        if self.shift:
            return Operands.GROUPS
        return Operands.EACH if self.period else Operands.ONE

    @property
    def reciprocal(self) -> int:
        """2^32 / period, rounded up; 0 if no row is longer than the period."""
        return -(-(1 << 32) // self.period) if 0 < self.period < self.columns else 0

    @property
    def tables(self) -> list[list[int]]:
        """Where each row starts on each side."""
        return [_offsets(self.outer, side) for side in range(_OPERAND + 1)]


def dense_strides(extents: Sequence[int]) -> list[int]:
    """Return the strides of a tile whose data has no gaps, in the order of the nodes."""
    return [prod(extents[k + 1 :]) for k in range(len(extents))]


def run_of(nodes: Sequence[Node], *sides: int) -> int:
    """Return the length of the longest row that is contiguous on some sides."""
    return _size(nodes[len(nodes) - _count(nodes, *sides) :])


def rows_of(nodes: Sequence[Node], side: int) -> tuple[list[int], int]:
    """Return where the longest rows that are contiguous on a side start, and their length."""
    outer = nodes[: len(nodes) - _count(nodes, side)]
    return _offsets(outer, side), run_of(nodes, side)


def _size(nodes: Iterable[Node]) -> int:
    return prod(node.valid for node in nodes)


def _offsets(nodes: Sequence[Node], side: int) -> list[int]:
    """Return the offset of each step of some loops on a side."""
    backwards = nodes[::-1]
    return offset_table(
        (node.valid for node in backwards), (node.strides[side] for node in backwards)
    )


def _count(nodes: Sequence[Node], *sides: int) -> int:
    """Return how many of the innermost nodes are contiguous on all of some sides."""
    backwards = nodes[::-1]
    extents = [node.valid for node in backwards]
    return min(
        count_contiguous(extents, [node.strides[side] for node in backwards]) for side in sides
    )


def find_rows(nodes: tuple[Node, ...], loops: list[tuple[int, int]] | None = None) -> TileRows:
    """Return the longest rows of a tile whose elements find their operands.

    Nodes have strides in src, dst and the operand. `loops` are the extents of the loops over tiles,
    outermost first, with their strides in the operand. Without them, operands are in place, and a
    row has one, or one for each element.
    """
    lengths = range(_count(nodes, SRC, DST), -1, -1)
    blocks = 0 if loops is None else prod(extent for extent, stride in loops if stride)

    def longest(*, is_short: bool) -> TileRows:
        ways = (_rows_of(nodes, inner, blocks, is_short=is_short) for inner in lengths)
        return next(filter(None, ways))

    rows = longest(is_short=False)
    return longest(is_short=True) if rows.columns < _SHORT_COLUMNS else rows


def _rows_of(
    nodes: tuple[Node, ...], inner: int, blocks: int, *, is_short: bool
) -> TileRows | None:
    """Return rows of some innermost nodes; None if their operands would cost too much.

    `blocks` is how many blocks a table would have; 0: operands are only in place. A block has fewer
    values than a row has elements, unless rows would be short without it.
    """
    outer, row = nodes[: len(nodes) - inner], nodes[len(nodes) - inner :]
    rows = TileRows(outer, _size(row))
    # the nodes along which values do not repeat; among these, the groups of a value
    changing = [*dropwhile(_is_constant, row)]
    if not changing:
        return rows
    period = _size(changing)
    if period == rows.columns and _count(changing, _OPERAND) == len(changing):
        return rows._replace(period=period)
    groups = changing[: len(changing) - len([*takewhile(_is_constant, reversed(changing))])]
    # a block has values for each step of the loops over rows that have different ones
    kept = [node for node in outer if not _is_constant(node)]
    stored = values = period
    if period < rows.columns:
        period = lcm(values, _LINE) if lcm(values, _LINE) <= _MAX_PERIOD else values
        stored = period + _OVERLAP
    if is_short:
        pays = blocks == 1 or len(groups) == len(changing)
    else:
        pays = stored < rows.columns and not any(map(_is_constant, changing))
    if not pays or not 0 < blocks * _size(kept) * stored <= _MAX_TABLE:
        group = _size(changing[len(groups) :])
        is_dense = values == rows.columns and _count(groups, _OPERAND) == len(groups)
        if blocks and is_dense and MIN_GROUP <= group <= _MAX_GROUP and not group & (group - 1):
            return rows._replace(period=values, shift=group.bit_length() - 1)
        return None
    places = np.add.outer(_offsets(kept, _OPERAND), _offsets(changing, _OPERAND))
    block = places[:, np.arange(stored) % values].reshape(-1)
    strides = iter(dense_strides([*(node.valid for node in kept), stored]))
    moved = (
        node if _is_constant(node) else node._replace(strides=(*node.strides[:2], next(strides)))
        for node in outer
    )
    return TileRows(tuple(moved), rows.columns, period, block=block)


def _is_constant(node: Node) -> bool:
    """Whether all steps of a loop have the same operand."""
    return not node.strides[_OPERAND]


def gathered(start: int, loops: list[tuple[int, int]], block: Words) -> tuple[Words, list[int]]:
    """Return where the gathered operands are among all, and the strides of the loops over tiles.

    `start` is the place of the operand of the first tile; `loops` as for `find_rows`.
    """
    moving = [loop for loop in loops if loop[1]]
    strides = iter(dense_strides([*(extent for extent, _ in moving), len(block)]))
    starts = offset_table(
        (extent for extent, _ in reversed(moving)), (stride for _, stride in reversed(moving))
    )
    places = np.add.outer(np.array(starts) + start, block).reshape(-1)
    return places, [next(strides) if stride else 0 for _, stride in loops]
