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

from collections.abc import Sequence
from itertools import accumulate, takewhile
from math import prod
from operator import mul

import numpy as np

from memdesc.tuples import NamedTuple
from reorder.cpu.schedule.loops import count_contiguous, offset_table
from reorder.cpu.tables import Array, Words
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


class Rows(NamedTuple):
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
        return [_row_offsets(self.nodes, strides, self.columns) for strides in self.sides]

    def with_operand(self, strides: list[int]) -> "Rows":
        """Return the rows with the strides of an operand as a third side."""
        return self._replace(sides=[*self.sides, strides])


class Sides(NamedTuple):
    """The strides of a tile's nodes, outermost first, in src, dst and an operand."""

    src: list[int]
    dst: list[int]
    operand: list[int]


def dense_strides(extents: Sequence[int]) -> list[int]:
    """Return the strides of a tile whose data has no gaps, in the order of the nodes."""
    return [prod(extents[k + 1 :]) for k in range(len(extents))]


def tile_rows(
    nodes: tuple[Node, ...], sides: Sequence[list[int]], max_nodes: int | None = None
) -> Rows:
    """Return the longest rows that are contiguous on all sides, of at most `max_nodes` nodes."""
    extents = [node.valid for node in reversed(nodes)]
    inner = min(count_contiguous(extents, strides[::-1]) for strides in sides)
    inner = inner if max_nodes is None else min(inner, max_nodes)
    columns = prod(node.valid for node in nodes[len(nodes) - inner :])
    return Rows(nodes, sides, columns)


def _row_offsets(nodes: tuple[Node, ...], strides: list[int], columns: int = 1) -> list[int]:
    """Return where each row of `columns` elements starts."""
    extents = [node.valid for node in reversed(nodes)]
    sizes = accumulate(extents, mul, initial=1)
    inner = next((k for k, size in enumerate(sizes) if size >= columns), len(extents))
    return offset_table(extents[inner:], strides[::-1][inner:])


def rows_in_place(nodes: tuple[Node, ...], sides: Sides) -> Rows:
    """Return the rows of a tile with an operand in place.

    A row has a value for each element, or one value if such rows are longer.
    """
    per_element = tile_rows(nodes, sides)._replace(mask=_EACH)
    per_row = tile_rows(nodes, sides[:2], _constant_nodes(nodes, sides.operand, 1))
    if per_row.columns > per_element.columns or per_element.columns == 1:
        return per_row.with_operand(sides.operand)
    return per_element


def rows_of_operand(nodes: tuple[Node, ...], sides: Sides, loops: list[tuple[int, int]]) -> Rows:
    """Return the rows of a tile with an operand in place, or gathered if that makes rows longer.

    `loops` are the extents of the loops over tiles, outermost first, with their strides in the
    operand.
    """
    rows = rows_in_place(nodes, sides)
    grouped = _grouped_rows(nodes, sides)
    if grouped is not None and grouped.columns > rows.columns:
        return grouped
    blocks = prod(extent for extent, stride in loops if stride)
    repeated = _repeated_rows(nodes, sides)
    if repeated is not None and repeated.columns > rows.columns and _fits(repeated, blocks):
        rows = repeated
    if rows.columns < _SHORT_COLUMNS and blocks == 1:
        dense = dense_strides([node.valid for node in nodes])
        whole = rows_in_place(nodes, sides._replace(operand=dense))
        if whole.columns > rows.columns:
            return whole._replace(block=np.array(_row_offsets(nodes, sides.operand)))
    if rows.columns >= _SHORT_COLUMNS:
        return rows
    gathered = rows_in_place(nodes, sides._replace(operand=_block_strides(nodes, sides.operand)))
    gathered = gathered._replace(block=_block(nodes, sides.operand))
    return gathered if gathered.columns > rows.columns and _fits(gathered, blocks) else rows


def gather(
    values: Array, start: int, loops: list[tuple[int, int]], block: Words
) -> tuple[Array, list[int]]:
    """Return the table of gathered operands, and the strides of the loops over tiles in it.

    `start` is the place of the operand of the first tile among the values; `loops` as for
    `rows_of_operand`.
    """
    strides, size = [], len(block)
    for extent, stride in reversed(loops):
        strides.append(size if stride else 0)
        size *= extent if stride else 1
    moving = [loop for loop in reversed(loops) if loop[1]]
    starts = offset_table((extent for extent, _ in moving), (stride for _, stride in moving))
    places = np.add.outer(np.array(starts) + start, block)
    return values[places].reshape(-1), strides[::-1]


def _fits(rows: Rows, blocks: int) -> bool:
    limit = _MAX_TABLE if rows.mask < PERIOD else _MAX_LONG
    return rows.block is not None and blocks * len(rows.block) <= limit


def _constant_nodes(nodes: tuple[Node, ...], strides: list[int], period: int) -> int:
    """Return the number of innermost nodes along which an operand has at most `period` values."""
    size, inner = 1, 0
    for node, stride in zip(reversed(nodes), reversed(strides), strict=True):
        if size < period:
            size *= node.valid
        elif stride:
            break
        inner += 1
    return inner


def _grouped_rows(nodes: tuple[Node, ...], sides: Sides) -> Rows | None:
    """Return rows of groups whose operands follow each other; None if their size does not fit."""
    constant = _constant_nodes(nodes, sides.operand, 1)
    outer = len(nodes) - constant
    size = prod(node.valid for node in nodes[outer:])
    if not MIN_GROUP <= size <= _MAX_GROUP or size & (size - 1):
        return None
    extents = [node.valid for node in reversed(nodes[:outer])]
    inner = constant + count_contiguous(extents, sides.operand[:outer][::-1])
    rows = tile_rows(nodes, sides[:2], inner)
    if rows.columns % size:
        return None
    rows = rows._replace(mask=_EACH, shift=size.bit_length() - 1)
    return rows.with_operand(sides.operand)


def _block_strides(nodes: tuple[Node, ...], strides: list[int]) -> list[int]:
    """Return the strides of a tile in its block, which has no place for nodes of stride 0."""
    extents = [node.valid if stride else 1 for node, stride in zip(nodes, strides, strict=True)]
    dense = dense_strides(extents)
    return [size if stride else 0 for size, stride in zip(dense, strides, strict=True)]


def _block(nodes: tuple[Node, ...], strides: list[int]) -> Words:
    """Return where the values of a block are, each once."""
    kept = [k for k, stride in enumerate(strides) if stride]
    return np.array(_row_offsets(tuple(nodes[k] for k in kept), [strides[k] for k in kept]))


def _repeated_rows(nodes: tuple[Node, ...], sides: Sides) -> Rows | None:
    """Return rows whose operands repeat, or None if they do not, or not after a power of two."""
    changing = takewhile(
        lambda pair: pair[1], zip(reversed(nodes), reversed(sides.operand), strict=True)
    )
    period = prod(node.valid for node, _ in changing)
    if period < _MIN_PERIOD or period & (period - 1):
        return None
    rows = tile_rows(nodes, sides[:2], _constant_nodes(nodes, sides.operand, period))
    if rows.columns % period:
        return None
    stored = max(period, PERIOD)
    times = 2 * stored // period
    strides = [times * stride for stride in _block_strides(nodes, sides.operand)]
    block = np.tile(_block(nodes, sides.operand).reshape(-1, period), times).reshape(-1)
    return rows.with_operand(strides)._replace(mask=stored - 1, block=block)
