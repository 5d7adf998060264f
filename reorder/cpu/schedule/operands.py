"""The rows of a tile, and where an operation finds its operand: scales, zero points, the old dst.

A row is a run of elements along the innermost nodes of a tile that is contiguous on all sides. With
an operand in place, a row has one value for each element, or one for all. If that makes rows short,
the values are gathered when the reorder is scheduled: a table has a block of values for each tile,
in the order in which the tile is converted. Tiles with the same operands share a block. Examples:

* scales of the channels of `aBcd16b`: a row is one block of channels in place; gathered, its 16
  values are stored repeatedly, so a row goes on through all pixels;
* images of 3 channels in `acdb`: a block has a value for each element of the tile;
* scales in groups along dim b of `ab` if dst is `ba`: adjacent elements of a row of dst have
  different scales, which are far apart. A block has one value for each group.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, compress, takewhile
from math import prod
from operator import mul

import numpy as np

from memdesc.tuples import NamedTuple
from reorder.cpu.schedule.loops import count_contiguous, offset_table
from reorder.cpu.tables import Words
from reorder.plan.nodes import Node

# Operands that repeat along a row do so after a power of two of elements. At least this many values
# are stored twice, so that a vector can be loaded from any position in the first copy.
PERIOD = 64
# Operands that repeat after fewer elements than this gain nothing from being stored repeatedly.
_MIN_PERIOD = 8
# Rows of fewer elements than this gain from gathered operands.
_SHORT_COLUMNS = 32
# The fewest elements of a group that shares a row with others: within this many lanes of a vector,
# the operand changes at most once. Groups of more than the second number are rows of their own,
# whose operand is loaded once.
MIN_GROUP, _MAX_GROUP = 16, 128
# The most values of a table. It has more than the values of the reorder only where values are
# stored repeatedly, which takes up to 16 times the memory.
_MAX_TABLE = 1 << 22
# The most values if they repeat after more than `PERIOD` elements: rows are long in place too, and
# twice as many values, which no longer fit the first-level cache, cost more.
_MAX_LONG = 1 << 13

# Values of `StageTable.operand_mask`.
_EACH, _ONE = -1, 0


class TileRows(NamedTuple):
    """Rows of src, dst and an operand, and how an element finds its value of the operand."""

    # the loops of a tile, outermost first, and their strides on each side
    nodes: tuple[Node, ...]
    sides: Sequence[list[int]]
    # elements of a row
    columns: int
    # the `operand_mask` and the `operand_shift` of a `StageTable`
    mask: int = _ONE
    shift: int = 0
    # where the values of a block are, relative to the start of the tile; None: the operand is in
    # place
    block: Words | None = None

    @property
    def tables(self) -> list[list[int]]:
        """Where each row starts on each side."""
        extents = [node.valid for node in reversed(self.nodes)]
        sizes = accumulate(extents, mul, initial=1)
        inner = next((k for k, size in enumerate(sizes) if size >= self.columns), len(extents))
        return [offset_table(extents[inner:], strides[::-1][inner:]) for strides in self.sides]


class Sides(NamedTuple):
    """The strides of a tile's nodes, outermost first, in src, dst and an operand."""

    src: list[int]
    dst: list[int]
    operand: list[int]


def dense_strides(extents: Sequence[int]) -> list[int]:
    """Return the strides of a tile whose data has no gaps, in the order of the nodes."""
    return [prod(extents[k + 1 :]) for k in range(len(extents))]


def tile_rows(nodes: tuple[Node, ...], sides: Sequence[list[int]]) -> TileRows:
    """Return the longest rows that are contiguous on all sides."""
    return TileRows(nodes, sides, _size(nodes[len(nodes) - _count(nodes, sides) :]))


def _size(nodes: Iterable[Node]) -> int:
    return prod(node.valid for node in nodes)


def _count(nodes: Sequence[Node], sides: Sequence[list[int]]) -> int:
    """Return how many of the innermost nodes are contiguous on all sides."""
    extents = [node.valid for node in reversed(nodes)]
    return min(count_contiguous(extents, strides[::-1]) for strides in sides)


def find_rows(
    nodes: tuple[Node, ...], sides: Sides, loops: list[tuple[int, int]] | None = None
) -> TileRows:
    """Return the longest rows of a tile whose elements find their operands.

    `loops` are the extents of the loops over tiles, outermost first, with their strides in the
    operand. Without them, operands are in place, and a row has one, or one for each element.
    """
    lengths = range(_count(nodes, sides[:2]), -1, -1)
    blocks = 0 if loops is None else prod(extent for extent, stride in loops if stride)
    rows = next(filter(None, (_rows_of(nodes, sides, inner, blocks) for inner in lengths)))
    if not blocks or rows.columns >= _SHORT_COLUMNS:
        return rows
    for inner in lengths:
        first = len(nodes) - inner
        columns = _size(nodes[first:])
        # the nodes of a row have places of their own in a block
        kept = [k >= first or stride != 0 for k, stride in enumerate(sides.operand)]
        is_small = blocks == 1 or all(sides.operand[first:])
        fits = is_small and blocks * _size(compress(nodes, kept)) <= _MAX_TABLE
        if fits and columns > rows.columns:
            strides, block = _block(nodes, sides.operand, kept)
            return TileRows(nodes, (*sides[:2], strides), columns, _EACH, block=block)
    return rows


def _rows_of(nodes: tuple[Node, ...], sides: Sides, inner: int, blocks: int) -> TileRows | None:
    """Return rows of some innermost nodes; None if their operands would have to be gathered.

    `blocks` is how many blocks a table would have; 0: operands are only in place.
    """
    first = len(nodes) - inner
    row, strides = nodes[first:], sides.operand[first:]
    rows = TileRows(nodes, sides, _size(row))
    if not any(strides):
        return rows
    if _count(row, [strides]) == inner:
        return rows._replace(mask=_EACH)
    if not blocks:
        return None
    constant = len([*takewhile(lambda stride: not stride, reversed(strides))])
    if not constant:
        return _repeated(rows, inner, blocks)
    # groups whose operands follow each other
    group, outer = _size(row[inner - constant :]), inner - constant
    is_dense = _count(row[:outer], [strides[:outer]]) == outer
    if not is_dense or not MIN_GROUP <= group <= _MAX_GROUP or group & (group - 1):
        return None
    return rows._replace(mask=_EACH, shift=group.bit_length() - 1)


def _repeated(rows: TileRows, inner: int, blocks: int) -> TileRows | None:
    """Return rows whose operands repeat; None if they do not, or not after a power of two."""
    nodes, (src, dst, operand) = rows.nodes, rows.sides
    changing = len([*takewhile(bool, reversed(operand))])
    period = _size(nodes[len(nodes) - changing :])
    is_power = period >= _MIN_PERIOD and not period & (period - 1)
    if not is_power or changing > inner or any(operand[len(nodes) - inner : -changing]):
        return None
    kept = [stride != 0 for stride in operand]
    stored = max(period, PERIOD)
    times = 2 * stored // period
    limit = _MAX_TABLE if stored == PERIOD else _MAX_LONG
    if blocks * times * _size(compress(nodes, kept)) > limit:
        return None
    strides, block = _block(nodes, operand, kept)
    sides = src, dst, [times * stride for stride in strides]
    repeated = np.tile(block.reshape(-1, period), times).reshape(-1)
    return rows._replace(sides=sides, mask=stored - 1, block=repeated)


def _block(
    nodes: tuple[Node, ...], strides: list[int], kept: list[bool]
) -> tuple[list[int], Words]:
    """Return the strides of a tile in its block of operands, and where their values are.

    A block has a place for each step of the nodes that are kept.
    """
    extents = [node.valid if keep else 1 for node, keep in zip(nodes, kept, strict=True)]
    dense = dense_strides(extents)
    own = [stride if keep else 0 for stride, keep in zip(dense, kept, strict=True)]
    return own, np.array(offset_table(extents[::-1], strides[::-1]))


def gathered(start: int, loops: list[tuple[int, int]], block: Words) -> tuple[Words, list[int]]:
    """Return where the gathered operands are among all, and the strides of the loops over tiles.

    `start` is the place of the operand of the first tile; `loops` as for `find_rows`.
    """
    strides, size = [], len(block)
    for extent, stride in reversed(loops):
        strides.append(size if stride else 0)
        size *= extent if stride else 1
    moving = [loop for loop in reversed(loops) if loop[1]]
    starts = offset_table((extent for extent, _ in moving), (stride for _, stride in moving))
    places = np.add.outer(np.array(starts) + start, block).reshape(-1)
    return places, strides[::-1]
