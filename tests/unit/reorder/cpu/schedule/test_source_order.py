"""Loops around a transposition follow the side whose pieces are shorter."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memdesc import memory_desc
from reorder import Box, Node, plan_reorder
from reorder.cpu.schedule.scheduled_box import schedule
from reorder.cpu.schedule.source_order import contiguous_size, follow_shorter_pieces
from tests.reorders import box_map

# 16-bit pairs of blocks to rows: 64 bytes of each block of src, 2 KiB of each row of dst
_PAIRS = Box(
    (0, 0),
    (
        Node(1000, 1000, (32, 2048)),
        Node(2, 2, (1, 1024)),
        Node(64, 64, (32000, 16)),
        Node(16, 16, (2, 1)),
    ),
)


def test_short_pieces_of_src_are_read_one_after_the_other() -> None:
    # without a limit of pages the order changes, and nothing is cut
    (ordered,) = follow_shorter_pieces(schedule(_PAIRS), 16, 1000)
    assert [node.strides[0] for node in ordered.choice.outer] == [32]
    box = Box(
        (0, 0),
        (
            Node(15, 15, (70, 79 * 462)),
            Node(79, 79, (1050, 462)),
            Node(462, 462, (1050 * 79, 1)),
            Node(35, 35, (1, 15 * 79 * 462)),
        ),
    )
    (ordered,) = follow_shorter_pieces(schedule(box), 16, 1000)
    assert [node.strides[0] for node in ordered.choice.outer] == [1050, 70]
    assert ordered.choice.rows == schedule(box).choice.rows


def test_rows_are_read_from_as_few_pages_as_prefetchers_follow_where_pieces_stay_long() -> None:
    (ordered,) = follow_shorter_pieces(schedule(_PAIRS), 16, 32)
    assert [node.extent for node in ordered.choice.rows] == [16, 32]
    assert [node.strides[0] for node in ordered.choice.outer] == [32 * 32000, 32]
    # 8 pages would leave pieces of 256 bytes
    (ordered,) = follow_shorter_pieces(schedule(_PAIRS), 16, 8)
    assert [node.extent for node in ordered.choice.rows] == [16, 64]


def test_loops_stay_in_the_order_of_dst_where_its_pieces_are_shorter() -> None:
    # src has 153 x 20 elements one behind the other, dst 153
    src = memory_desc((51, 83, 153, 20), "f16", "abcd")
    (box,) = plan_reorder(src, memory_desc(src.dims, "f16", "bdac")).boxes
    scheduled = schedule(box)
    assert scheduled.choice.outer
    assert follow_shorter_pieces(scheduled, 16, 32) == (scheduled,)


def test_contiguous_pieces_count_the_loops_that_continue_each_other() -> None:
    nodes = Node(4, 4, (1, 100)), Node(3, 3, (40, 1)), Node(10, 10, (4, 3))
    assert contiguous_size(nodes, 0, 1) == 120
    assert contiguous_size(nodes, 1, 1) == 30
    assert contiguous_size(nodes, 1, 2) == 1


@given(
    st.permutations("abcd"),
    st.lists(st.sampled_from([1, 2, 5, 16, 31, 60]), min_size=4, max_size=4),
    st.sampled_from(["s8", "f32"]),
    st.sampled_from([1, 4, 32]),
)
def test_order_keeps_which_element_goes_where(
    order: list[str], dims: list[int], kind: str, pages: int
) -> None:
    if np.prod(dims) > 1 << 17:
        dims = [min(extent, 16) for extent in dims]
    src = memory_desc(dims, kind, "abcd")
    for box in plan_reorder(src, memory_desc(dims, kind, "".join(order))).boxes:
        parts = follow_shorter_pieces(schedule(box), src.dtype.bits, pages)
        to, fro = box_map(tuple(part.box for part in parts))
        wanted_to, wanted_fro = box_map((box,))
        assert np.array_equal(np.sort(to), np.sort(wanted_to))
        assert np.array_equal(fro[np.argsort(to)], wanted_fro[np.argsort(wanted_to)])
