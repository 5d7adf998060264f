"""How boxes that convert are cut: what is in place, what is moved, what goes through scratch.

`tests/property/reorder/test_tile_laws.py` has the laws of all tiles.
"""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from memdesc import memory_desc
from reorder import Attr, Box, Node, plan_reorder
from reorder.cpu.schedule.tiles import (
    SIDES,
    SlotLimits,
    Tile,
    covered_steps,
    cut_into_tiles,
    each_piece,
    is_scattered,
    order_between,
    order_by_cost,
    tile_counts,
)
from tests.property.reorder.test_convert_laws import check
from tests.reorders import beyond_caches

_LIMIT = 4096
_LIMITS = SlotLimits(_LIMIT, 2 * _LIMIT)


def _tiles(
    dims: tuple[int, ...], src: str, dst: str, widths: tuple[int, int] = (32, 8)
) -> list[Tile]:
    plan = plan_reorder(memory_desc(dims, "s8", src), memory_desc(dims, "s8", dst))
    cuts = [cut_into_tiles(box, widths, _LIMITS, in_place=True) for box in plan.boxes]
    return [tile for tiles, _ in cuts for tile in tiles]


def test_runs_that_are_contiguous_on_both_sides_are_converted_in_place() -> None:
    for tile in _tiles((64, 1000), "ab", "ab"):
        assert tile.reads
        assert tile.writes


@pytest.mark.parametrize(
    ("widths", "reads", "writes"), [((32, 8), True, False), ((8, 32), False, True)]
)
def test_the_narrower_side_is_moved(widths: tuple[int, int], reads: bool, writes: bool) -> None:
    for tile in _tiles((512, 512), "ab", "ba", widths):
        assert (tile.reads, tile.writes) == (reads, writes)


def test_padding_is_written_by_a_move() -> None:
    tiles = _tiles((30, 70, 5, 7), "abcd", "aBcd16b", (8, 32))
    padded = [tile for tile in tiles if any(node.valid < node.extent for node in tile.inner)]
    assert padded
    assert not any(tile.writes for tile in padded)


@pytest.mark.parametrize(
    ("stag", "dtag", "masks", "zeroes"),
    [
        ("aBcd16b", "aBcd16b", True, True),
        ("aBcd16b", "aBcd16b", False, False),
        # rows longer than a block, in dst and in src
        ("aBcd32b", "aBcd32b", True, False),
        ("acdb", "aBcd16b", True, False),
    ],
)
def test_a_conversion_writes_the_padding_behind_short_rows(
    stag: str, dtag: str, masks: bool, zeroes: bool
) -> None:
    dims = 3, 13, 5, 7
    plan = plan_reorder(memory_desc(dims, "f32", stag), memory_desc(dims, "s8", dtag))
    tiles, zeros = cut_into_tiles(plan.boxes[0], (32, 8), _LIMITS, in_place=True, masks=masks)
    assert not zeros
    assert {tile.writes for tile in tiles} == {zeroes}


@pytest.mark.parametrize(
    ("src", "dst", "expected"),
    [
        ("AB8b16a2b", "AB8a16b2a", True),
        ("AB8b16a2b", "ab", False),
        ("ab", "ba", False),
    ],
)
def test_boxes_with_pairs_of_other_dims_are_scattered(src: str, dst: str, expected: bool) -> None:
    plan = plan_reorder(memory_desc((64, 64), "bf16", src), memory_desc((64, 64), "bf16", dst))
    assert [is_scattered(box, 16) for box in plan.boxes] == [expected] * len(plan.boxes)


@pytest.mark.parametrize(
    ("sides", "bits", "expected"),
    [((5, 5), 8, True), ((7, 5), 16, True), ((5, 5), 32, False), ((8, 5), 8, False)],
)
def test_small_matrices_of_narrow_elements_are_scattered(
    sides: tuple[int, int], bits: int, expected: bool
) -> None:
    dims, name = (40, *sides), f"u{bits}"
    plan = plan_reorder(memory_desc(dims, name, "abc"), memory_desc(dims, name, "acb"))
    assert [is_scattered(box, bits) for box in plan.boxes] == [expected]


@pytest.mark.parametrize(
    ("sides", "first"),
    [((4, 3), 2), ((3, 4), 0), ((7, 2), 2), ((2, 7), 0), ((3, 3), 2), ((2, 2), 0)],
)
def test_the_innermost_node_of_src_is_taken_out_first_where_it_is_interleaved(
    sides: tuple[int, int], first: int
) -> None:
    # rows of dst have sides[0] elements, those of src sides[1]
    nodes = (
        Node(40, 40, (sides[0] * sides[1],) * 2),
        Node(sides[1], sides[1], (1, sides[0])),
        Node(sides[0], sides[0], (sides[1], 1)),
    )
    counts = {k: node.extent for k, node in enumerate(nodes)}
    order = order_between(nodes, counts).nodes
    assert order == ([1, 0, 2] if first == 2 else [2, 0, 1])


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "s8"])
@pytest.mark.parametrize(
    ("dims", "src", "dst"),
    [
        ((611, 203), "ab", "ba"),
        ((40, 7, 9), "abc", "acb"),
        ((64, 208), "ba", "Ba8b"),
        ((131, 40, 3), "cba", "ABc4a4b"),
    ],
)
def test_moves_beyond_the_caches_are_right_bit_for_bit(
    dims: tuple[int, ...], src: str, dst: str, dtype: str
) -> None:
    with beyond_caches():
        pair = memory_desc(dims, dtype, src), memory_desc(dims, dtype, dst)
        check((*pair, None), 3, at_end=True, threads=2)


def test_a_tile_takes_a_chain_of_each_side() -> None:
    nodes = (Node(512, 512, (512, 1)), Node(512, 512, (1, 512)))
    counts = tile_counts(nodes, _LIMITS, SIDES, in_place=False)
    assert counts[0] >= SIDES[1]
    assert counts[1] >= SIDES[0]
    assert prod(counts.values()) <= _LIMIT


def test_a_tile_takes_whole_nodes_where_they_fit() -> None:
    nodes = (Node(25, 25, (2704, 2704)), Node(16, 16, (1, 169)), Node(169, 169, (16, 1)))
    assert tile_counts(nodes, _LIMITS, SIDES, in_place=False) == {1: 16, 2: 169}


@pytest.mark.parametrize("pixels", [144, 196, 729])
@pytest.mark.parametrize(
    ("types", "tags"), [(("f32", "s8"), ("abc", "acb")), (("bf16", "f32"), ("acb", "abc"))]
)
def test_conversions_of_rows_with_tails_are_right(
    types: tuple[str, str], tags: tuple[str, str], pixels: int
) -> None:
    src, dst = (
        memory_desc((2, 130, pixels), dtype, tag) for dtype, tag in zip(types, tags, strict=True)
    )
    for attr in (None, Attr(src_scale=0.3), Attr(dst_scale=np.arange(1.0, 131), dst_scale_mask=2)):
        check((src, dst, attr), 3, at_end=True)


def test_the_order_is_that_of_the_side_that_stays() -> None:
    nodes = (Node(64, 64, (1, 64)), Node(64, 64, (64, 1)))
    counts = {0: 64, 1: 64}
    # src is wider: it is read in its order, and dst is moved
    assert order_by_cost(nodes, counts, (32, 8), streams=False)[:3] == ([1, 0], True, False)
    assert order_by_cost(nodes, counts, (8, 32), streams=False)[:3] == ([0, 1], False, True)
    # moves have no non-temporal stores: long rows of dst are converted in place instead
    assert order_by_cost(nodes, counts, (32, 16), streams=True)[:3] == ([0, 1], False, True)
    assert sorted(order_between(nodes, counts).nodes) == [0, 1]


@pytest.mark.parametrize("pads", [True, False])
def test_pieces_cover_all_data_once(pads: bool) -> None:
    box = Box((5, 7), (Node(12, 10, (100, 1)), Node(9, 9, (1, 16))))
    counts = {0: 4, 1: 9}
    data = written = 0
    for piece in each_piece(box, counts, pads=pads):
        tiles = prod(node.extent for node in piece.outer)
        data += tiles * prod(node.valid for _, node in piece.inner)
        written += tiles * prod(node.extent for _, node in piece.inner)
    assert data == 10 * 9
    assert written == covered_steps(box.nodes[0], 4, pads=pads) * 9 == (12 if pads else 10) * 9
