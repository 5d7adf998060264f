"""Passes over boxes keep which element goes where."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from memdesc import MemoryDesc
from reorder import plan_reorder
from reorder.plan import Box, Node
from reorder.plan.boxes import planned_boxes, whole_box
from reorder.plan.passes import pack_elements, split_node
from tests.reorders import sorted_map
from tests.strategies import desc_pairs


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
        assert np.array_equal(sorted_map((packed,), width // bits), sorted_map((box,)))


@given(st.integers(1, 3000), st.data())
def test_cutting_a_node_keeps_its_steps_its_data_and_its_zeros(
    extent: int, data: st.DataObject
) -> None:
    node = Node(extent, data.draw(st.integers(0, extent)), (3, 7))
    box = Box((5, 11), (node,))
    pieces = tuple(split_node(box, node, data.draw(st.integers(1, extent))))
    assert np.array_equal(sorted_map(pieces), sorted_map((box,)))


@settings(max_examples=60)
@given(desc_pairs(max_ndims=4, max_nelems=512))
def test_a_whole_box_holds_data_where_all_indices_are_below_their_sizes(
    pair: tuple[MemoryDesc, MemoryDesc],
) -> None:
    # a plan without elements has no boxes that one could stand for
    found = whole_box(pair[0].layout, pair[1].layout) if pair[1].nelems else None
    if found is None:
        return
    box, sizes = found
    places = np.array([box.offsets])
    for node in box.nodes:
        steps = np.arange(node.extent)[:, None, None] * np.array(node.strides)
        places = (places + steps).reshape(-1, len(box.offsets))
    src, dst, *indices = places.T
    is_data = np.all([index < size for index, size in zip(indices, sizes, strict=True)], axis=0)
    made = np.stack([dst, np.where(is_data, src, -1)])
    boxes = planned_boxes(*pair, ())
    assert np.array_equal(made[:, np.argsort(made[0])], sorted_map(boxes))
