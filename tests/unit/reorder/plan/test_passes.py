"""Passes over boxes keep which element goes where."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdesc import memory_desc
from reorder import Box, Node, plan_reorder
from reorder.plan.passes import join_zeros, pack_elements, split_node
from tests.reorders import box_map
from tests.strategies import desc_pairs

if TYPE_CHECKING:
    from memdesc import MemoryDesc


@given(desc_pairs(), st.sampled_from([8, 64, 128]), st.booleans())
def test_packing_keeps_which_element_goes_where(
    pair: tuple[MemoryDesc, MemoryDesc], widest: int, packs_long_runs: bool
) -> None:
    bits = pair[1].dtype.bits
    for box in plan_reorder(*pair).boxes:
        if box.indirect:
            continue
        packed, width = pack_elements(box, bits, widest=widest, packs_long_runs=packs_long_runs)
        assert width <= max(widest, bits)
        factor = width // bits
        dst, src = box_map((packed,))
        parts = np.arange(factor)
        found = np.stack(
            [
                (dst[:, None] * factor + parts).ravel(),
                np.where(src[:, None] < 0, -1, src[:, None] * factor + parts).ravel(),
            ]
        )
        wanted = np.stack(box_map((box,)))
        assert np.array_equal(found[:, np.argsort(found[0])], wanted[:, np.argsort(wanted[0])])


@pytest.mark.parametrize(
    ("extent", "expected"),
    [(4, (64, 64)), (8, (16, 128)), (64, (16, 128)), (3, (16, 16)), (6, (16, 32))],
)
def test_long_runs_are_packed_where_they_do_not_move_as_vectors(
    extent: int, expected: tuple[int, int]
) -> None:
    box = Box((0, 0), (Node(4, 4, (64, 128)), Node(extent, extent, (1, 1))))
    on_cpu = pack_elements(box, 16)[1]
    on_device = pack_elements(box, 16, widest=128, packs_long_runs=True)[1]
    assert (on_cpu, on_device) == expected


def test_pairs_of_four_bits_become_bytes_in_runs_of_any_length() -> None:
    plan = plan_reorder(memory_desc((8, 64), "u4", "ab"), memory_desc((8, 64), "u4", "aB32b"))
    assert pack_elements(plan.boxes[0], 4)[1] == 8
    assert pack_elements(plan.boxes[0], 4, widest=8, packs_long_runs=True)[1] == 8


@given(st.integers(1, 3000), st.data())
def test_cutting_a_node_keeps_its_steps_its_data_and_its_zeros(
    extent: int, data: st.DataObject
) -> None:
    node = Node(extent, data.draw(st.integers(0, extent)), (3, 7))
    box = Box((5, 11), (node,))
    pieces = tuple(split_node(box, node, data.draw(st.integers(1, extent))))
    found, wanted = np.stack(box_map(pieces)), np.stack(box_map((box,)))
    assert np.array_equal(found[:, np.argsort(found[0])], wanted)


def test_the_zeros_of_a_block_belong_to_the_run_in_front_of_them() -> None:
    small, large = (memory_desc((4, 43, 3, 3), "f32", name) for name in ("aBcd8b", "aBcd32b"))
    runs = [box.nodes[-1] for box in join_zeros(plan_reorder(small, large).boxes)]
    assert runs == [Node(8, 8, (1, 1)), Node(8, 8, (1, 1)), Node(24, 3, (1, 1))]


@given(desc_pairs())
def test_joining_zeros_keeps_which_element_goes_where(pair: tuple[MemoryDesc, MemoryDesc]) -> None:
    boxes = plan_reorder(*pair).boxes
    found, wanted = (np.stack(box_map(each)) for each in (join_zeros(boxes), boxes))
    assert np.array_equal(found[:, np.argsort(found[0])], wanted[:, np.argsort(wanted[0])])
