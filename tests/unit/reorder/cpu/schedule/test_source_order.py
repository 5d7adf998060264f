"""Loops around a transposition follow the side whose pieces are shorter."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memdesc import memory_desc
from reorder import plan_reorder
from reorder.cpu.schedule.scheduled_box import schedule
from reorder.cpu.schedule.source_order import follow_shorter_pieces
from tests.reorders import box_map


def test_short_pieces_of_src_are_read_one_after_the_other() -> None:
    # a call reads 35 elements of src that are contiguous, and writes 462 of dst
    src = memory_desc((42, 11, 79, 15, 35), "bf16", "abcde")
    (box,) = plan_reorder(src, memory_desc(src.dims, "bf16", "edcba")).boxes
    scheduled = schedule(box, 32)
    ordered = follow_shorter_pieces(scheduled)
    assert [node.extent for node in scheduled.choice.outer] == [15, 79]
    assert [node.extent for node in ordered.choice.outer] == [79, 15]
    assert ordered.choice.rows == scheduled.choice.rows
    assert ordered.choice.columns == scheduled.choice.columns


def test_loops_stay_in_the_order_of_dst_where_its_pieces_are_shorter() -> None:
    # src has 153 x 20 elements one behind the other, dst 153
    src = memory_desc((51, 83, 153, 20), "f16", "abcd")
    (box,) = plan_reorder(src, memory_desc(src.dims, "f16", "bdac")).boxes
    scheduled = schedule(box, 32)
    assert scheduled.choice.outer
    assert follow_shorter_pieces(scheduled) == scheduled


@given(
    st.permutations("abcd"),
    st.lists(st.sampled_from([1, 2, 5, 16, 31, 60]), min_size=4, max_size=4),
    st.sampled_from(["s8", "f32"]),
)
def test_order_keeps_which_element_goes_where(order: list[str], dims: list[int], kind: str) -> None:
    if np.prod(dims) > 1 << 17:
        dims = [min(extent, 16) for extent in dims]
    src = memory_desc(dims, kind, "abcd")
    for box in plan_reorder(src, memory_desc(dims, kind, "".join(order))).boxes:
        to, fro = box_map((follow_shorter_pieces(schedule(box, 32)).box,))
        wanted_to, wanted_fro = box_map((box,))
        assert np.array_equal(np.sort(to), np.sort(wanted_to))
        assert np.array_equal(fro[np.argsort(to)], wanted_fro[np.argsort(wanted_to)])
