"""Rows of tiles, and where their operands lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reorder import Node
from reorder.cpu.schedule.post_ops import PERIOD
from reorder.cpu.schedule.tile_rows import (
    contiguous_nodes,
    dense_strides,
    gathered_operands,
    operand_period,
    operand_rows,
    row_offsets,
    tile_rows,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EXTENTS = st.lists(st.integers(1, 9), min_size=1, max_size=4)


def _nodes(*extents: int) -> tuple[Node, ...]:
    return tuple(Node(extent, extent, ()) for extent in extents)


def _offsets(extents: tuple[int, ...], strides: list[int]) -> NDArray[np.int64]:
    """Return the offset of each element, in the order of the tile."""
    grid = np.indices(extents).reshape(len(extents), -1)
    return np.array(strides) @ grid


@given(_EXTENTS)
def test_a_dense_tile_is_one_row(extents: list[int]) -> None:
    nodes = _nodes(*extents)
    found = tile_rows(nodes, [dense_strides(nodes)])
    assert found.tables == [[0]]
    assert found.columns == np.prod(extents)


@given(_EXTENTS, st.data())
def test_rows_are_all_elements_in_their_order(extents: list[int], data: st.DataObject) -> None:
    nodes = _nodes(*extents)
    some = st.sampled_from([*dense_strides(nodes), 0, 7])
    strides = data.draw(st.lists(some, min_size=len(nodes), max_size=len(nodes)))
    found = tile_rows(nodes, [strides])
    rows = np.array(found.tables[0])[:, None] + np.arange(found.columns)
    assert np.array_equal(rows.ravel(), _offsets(tuple(extents), strides))


def test_rows_are_as_long_as_the_side_with_the_shortest() -> None:
    nodes = _nodes(2, 3, 4)
    assert contiguous_nodes(nodes, [12, 4, 1]) == 3
    assert contiguous_nodes(nodes, [20, 4, 1]) == 2
    found = tile_rows(nodes, [[12, 4, 1], [20, 4, 1], [9, 5, 1]])
    assert found.columns == 4
    assert found.rows == 6
    assert found.tables[2] == row_offsets(nodes, [9, 5, 1], 4) == [0, 5, 10, 9, 14, 19]
    assert tile_rows(nodes, [[12, 4, 1]], max_nodes=1).columns == 4


def test_nodes_of_one_step_are_contiguous_whatever_their_stride() -> None:
    assert contiguous_nodes(_nodes(2, 1, 4), [4, 99, 1]) == 3


@pytest.mark.parametrize(
    ("extents", "strides", "mask", "columns"),
    [
        # one for each channel: the same along the pixels, another for each row
        ((2, 64, 49), [0, 1, 0], 0, 49),
        # along the innermost node, as in channels last, and too many to repeat
        ((2, 49, 128), [0, 0, 1], -1, 128),
        # blocks of 16 channels repeat along the pixels
        ((4, 49, 16), [16, 0, 1], PERIOD - 1, 49 * 16),
        # one for all
        ((3, 5), [0, 0], 0, 15),
    ],
)
def test_operands_of_rows(
    extents: tuple[int, ...], strides: list[int], mask: int, columns: int
) -> None:
    nodes = _nodes(*extents)
    dense = dense_strides(nodes)
    period = operand_period(nodes, strides, (0,))
    found = operand_rows(nodes, (dense, dense, strides), period)
    assert (found.mask, found.columns) == (mask, columns)
    # each element gets its own operand
    position = np.arange(columns) & mask
    stored = np.array(found.tables[2])[:, None] + position
    if found.period:
        assert found.period == 16
        times = 1 << found.shift
        stored = stored // times // found.period * found.period + stored % found.period
    assert np.array_equal(stored.ravel(), _offsets(extents, strides))


def test_operands_that_start_inside_of_a_period_do_not_repeat() -> None:
    nodes = _nodes(4, 49, 16)
    assert operand_period(nodes, [16, 0, 1], (32,)) == 16
    assert operand_period(nodes, [16, 0, 1], (8,)) == 0
    assert operand_period(_nodes(4, 49, 24), [24, 0, 1], (0,)) == 0


@pytest.mark.parametrize(
    ("extents", "strides", "times", "columns"),
    [
        # groups of 32 along the outer dim of a tile: one value for each element of a row
        ((2, 32, 64), [1, 0, 32], 1, 64),
        # groups of 8 along rows: each value is stored 8 times, and the tile is one row
        ((4, 64, 8), [64, 1, 0], 8, 2048),
        ((4, 64, 2, 4), [64, 1, 0, 0], 8, 2048),
        # each element has its own value, and these lie transposed
        ((16, 16), [1, 16], 1, 256),
    ],
)
def test_operands_of_short_rows_are_gathered(
    extents: tuple[int, ...], strides: list[int], times: int, columns: int
) -> None:
    nodes = _nodes(*extents)
    dense = dense_strides(nodes)
    sides = dense, dense, strides
    found = gathered_operands(nodes, sides, operand_rows(nodes, sides, 0), streams=False)
    assert found is not None
    assert (found.times, found.columns) == (times, columns)
    # each element finds its own value among those gathered in the order of the tile
    kept = [(extent, stride) for extent, stride in zip(extents, strides, strict=True) if stride]
    slot = np.repeat(_offsets(*zip(*kept, strict=True)), times)  # type: ignore[arg-type] # pairs
    rows, mask = found, found.mask
    places = np.array(rows.tables[2])[:, None] + (np.arange(columns) & mask)
    assert np.array_equal(slot[places].ravel(), _offsets(extents, strides))


def test_operands_of_long_rows_stay_where_they_are() -> None:
    nodes = _nodes(64, 32)
    sides = dense_strides(nodes), dense_strides(nodes), [1, 0]
    rows = operand_rows(nodes, sides, 0)
    assert gathered_operands(nodes, sides, rows, streams=False) is None


def test_rows_are_as_long_as_the_tile_where_they_are_streamed() -> None:
    nodes = _nodes(64, 32)
    sides = dense_strides(nodes), dense_strides(nodes), [1, 0]
    rows = operand_rows(nodes, sides, 0)
    found = gathered_operands(nodes, sides, rows, streams=True)
    assert found is not None
    assert (rows.columns, found.columns, found.times) == (32, 64 * 32, 32)
    # elements of dst are no neighbours there: gathering makes no row longer
    sides = dense_strides(nodes), [1, 64], [1, 0]
    assert gathered_operands(nodes, sides, rows, streams=True) is None
