"""Operations find the operand of each element, in place or gathered: a schedule, run in numpy."""

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reorder.cpu.schedule.loops import offset_table
from reorder.cpu.schedule.operands import OperandRows, Sides, gather, rows_of_operand
from reorder.cpu.schedule.tile_rows import dense_strides
from reorder.plan.nodes import Node

_COUNT = 1 << 20


def _found(rows: OperandRows, loops: list[tuple[int, int]]) -> dict[int, list[int]]:
    """Return the operands that an operation finds in each tile, by the offset of the element."""
    values = np.arange(_COUNT)
    strides = [stride for _, stride in loops]
    if rows.block is not None:
        values, strides = gather(values, 7, loops, rows.block)
    start = 7 if rows.block is None else 0
    found: dict[int, list[int]] = {}
    for tile in product(*(range(extent) for extent, _ in loops)):
        at = start + sum(k * stride for k, stride in zip(tile, strides, strict=True))
        for src, operand in zip(rows.rows.tables[0], rows.rows.tables[2], strict=True):
            for column in range(rows.columns):
                operands = found.setdefault(src + column, [])
                operands.append(int(values[at + operand + (column & rows.mask)]))
    return found


def _wanted(
    nodes: tuple[Node, ...], sides: Sides, loops: list[tuple[int, int]]
) -> dict[int, list[int]]:
    extents = [node.valid for node in reversed(nodes)]
    places = (offset_table(extents, strides[::-1]) for strides in (sides.src, sides.operand))
    tiles = offset_table(*zip(*reversed(loops), strict=True)) if loops else [0]
    return {src: [7 + tile + own for tile in tiles] for src, own in zip(*places, strict=True)}


@st.composite
def _tiles(draw: st.DrawFn) -> tuple[tuple[Node, ...], Sides, list[tuple[int, int]]]:
    extents = draw(st.lists(st.sampled_from([2, 3, 4, 8, 16]), min_size=1, max_size=4))
    extents = extents if prod(extents) <= 2048 else extents[:2]
    nodes = tuple(Node(extent, extent, ()) for extent in extents)
    other = draw(st.permutations(range(len(extents))))
    strides = dense_strides(tuple(nodes[k] for k in other))
    dst = [strides[other.index(k)] for k in range(len(nodes))]
    differs = [draw(st.booleans()) for _ in nodes]
    kept = [extent if d else 1 for extent, d in zip(extents, differs, strict=True)]
    own = dense_strides(tuple(Node(extent, extent, ()) for extent in kept))
    operand = [stride * d for stride, d in zip(own, differs, strict=True)]
    size = prod(kept)
    loops = draw(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0, size])), max_size=2))
    return nodes, Sides(dense_strides(nodes), dst, operand), loops


@given(_tiles())
def test_each_element_finds_its_operand(
    tiles: tuple[tuple[Node, ...], Sides, list[tuple[int, int]]],
) -> None:
    nodes, sides, loops = tiles
    rows = rows_of_operand(nodes, sides, loops)
    assert _found(rows, loops) == _wanted(nodes, sides, loops)


@pytest.mark.parametrize(
    ("extents", "operand", "loops", "columns", "size"),
    [
        # a block of 16 channels, stored 8 times; tiles of other blocks have other ones
        ((60, 16), (0, 1), [(4, 16)], 960, 4 * 128),
        # 3 channels: a value for each element
        ((100, 3), (0, 1), [(2, 0)], 300, 300),
        # groups that are far apart
        ((4, 48), (0, 32), [(8, 1)], 48, 8 * 48),
        # rows that are long in place
        ((4, 64), (64, 1), [(8, 256)], 256, 0),
        ((4, 64), (1, 0), [(8, 4)], 64, 0),
    ],
)
def test_operands_are_gathered_where_rows_would_be_short(
    extents: tuple[int, ...],
    operand: tuple[int, ...],
    loops: list[tuple[int, int]],
    columns: int,
    size: int,
) -> None:
    nodes = tuple(Node(extent, extent, ()) for extent in extents)
    sides = Sides(dense_strides(nodes), dense_strides(nodes), [*operand])
    rows = rows_of_operand(nodes, sides, loops)
    blocks = prod(extent for extent, stride in loops if stride)
    assert (rows.columns, 0 if rows.block is None else blocks * len(rows.block)) == (columns, size)
    assert _found(rows, loops) == _wanted(nodes, sides, loops)
