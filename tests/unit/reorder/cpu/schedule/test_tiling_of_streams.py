"""How boxes that no cache holds are cut and ordered for prefetchers."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdesc import memory_desc
from reorder import Box, Node, plan_reorder
from reorder.cpu.schedule.tiling import stream_box
from tests.reorders import box_map

if TYPE_CHECKING:
    from reorder.cpu.schedule.select import ScheduledBox


def _tiles(dims: tuple[int, ...], tag: str, kind: str = "f32") -> tuple[ScheduledBox, ...]:
    src = memory_desc(dims, kind, "abcdef"[: len(dims)])
    (box,) = plan_reorder(src, memory_desc(dims, kind, tag)).boxes
    return stream_box(box, src.dtype.bits)


@given(
    st.permutations("abcd"),
    st.lists(st.sampled_from([1, 2, 5, 16, 48, 96]), min_size=4, max_size=4),
    st.sampled_from(["s8", "bf16", "f32", "f64"]),
)
def test_tiles_keep_which_element_goes_where_and_fill_lines(
    order: list[str], dims: list[int], kind: str
) -> None:
    if np.prod(dims) > 1 << 18:
        dims = [min(extent, 16) for extent in dims]
    tiles = _tiles(tuple(dims), "".join(order), kind)
    if tiles:
        (box,) = plan_reorder(
            memory_desc(dims, kind, "abcd"), memory_desc(dims, kind, "".join(order))
        ).boxes
        to, fro = box_map(tuple(tile.box for tile in tiles))
        wanted_to, wanted_fro = box_map((box,))
        assert np.array_equal(fro[np.argsort(to)], wanted_fro[np.argsort(wanted_to)])
        assert np.array_equal(np.sort(to), np.sort(wanted_to))
        bits = memory_desc((1,), kind, "a").dtype.bits
        assert all(tile.fills_lines(bits) for tile in tiles)


def test_outer_loops_follow_src_and_tiles_read_few_rows() -> None:
    tiles = _tiles((128, 15, 15, 112), "dcba")
    assert tiles
    for tile in tiles:
        strides = [node.strides[0] for node in tile.outer]
        assert all(outer > inner for outer, inner in pairwise(strides))
        assert [node.extent for node in tile.rows] == [32]
        assert [node.extent for node in tile.columns] == [112]


def test_rows_that_end_within_lines_take_the_loop_that_continues_them() -> None:
    # 3 x 3 pixels of 4 channels are 144 bytes: four blocks of channels make 9 lines
    src = memory_desc((2000, 48, 3, 3), "f32", "cdba")
    (box,) = plan_reorder(src, memory_desc(src.dims, "f32", "aBcd4b")).boxes
    tiles = stream_box(box, 32)
    assert {tuple(node.extent for node in tile.rows) for tile in tiles} == {(4, 9, 4)}
    assert all(tile.fills_lines(32) for tile in tiles)
    # 40 channels are 10 blocks, or 22.5 lines for each step of dim a
    src = memory_desc((2000, 40, 3, 3), "f32", "cdba")
    (box,) = plan_reorder(src, memory_desc(src.dims, "f32", "aBcd4b")).boxes
    assert stream_box(box, 32) == ()


@pytest.mark.parametrize(
    "box",
    [
        # rows of dst off a cache line, padding, a copy
        Box((0, 0), (Node(64, 64, (1, 70)), Node(70, 70, (64, 1)))),
        Box((0, 0), (Node(64, 64, (1, 64)), Node(64, 60, (64, 1)))),
        Box((0, 0), (Node(64, 64, (1, 1)),)),
    ],
)
def test_other_boxes_are_left_to_the_tiling_for_caches(box: Box) -> None:
    assert stream_box(box, 32) == ()
