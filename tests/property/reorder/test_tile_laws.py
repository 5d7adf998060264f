"""How boxes that convert are cut into tiles."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memdesc import MemoryDesc, memory_desc
from reorder import Box, Node, plan_reorder
from reorder.cpu.schedule.tiles import SlotLimits, cut_into_tiles
from tests.property.reorder.test_convert_laws import check
from tests.reorders import box_map, element_map
from tests.strategies import desc_pairs


def _check_cut(
    pair: tuple[MemoryDesc, MemoryDesc],
    widths: tuple[int, int],
    limit: int,
    *,
    in_place: bool,
    streams: bool = False,
    masks: bool = False,
) -> None:
    boxes: list[Box] = []
    for box in plan_reorder(*pair).boxes:
        if box.indirect:
            return
        limits = SlotLimits(limit)
        tiles, zeros = cut_into_tiles(
            box, widths, limits, in_place=in_place, streams=streams, masks=masks
        )
        for tile in tiles:
            # bits in the scratch: nothing, the elements of one side, or those of both
            moved = [
                width
                for width, stays in zip(widths, (tile.reads, tile.writes), strict=True)
                if not (in_place and stays)
            ]
            size = prod(node.valid for node in tile.inner)
            assert size * max(moved, default=0) <= limit * max(widths)
            assert all(node.valid == node.extent for node in tile.outer)
            padded = [node for node in tile.inner if node.valid < node.extent]
            # a conversion writes zeros only after its rows, and only with masks
            assert not tile.writes or not padded or (masks and padded == [tile.inner[-1]])
            boxes.append(Box(tile.offsets, (*tile.outer, *tile.inner)))
        boxes += zeros
    to, fro = box_map(tuple(boxes))
    wanted = element_map(*pair)
    assert len(np.unique(to)) == len(to)
    for found, order in (((to, fro), np.argsort(to)), (wanted, np.argsort(wanted[0]))):
        found[0][...], found[1][...] = found[0][order], found[1][order]
    assert np.array_equal(to, wanted[0])
    assert np.array_equal(fro, wanted[1])


_WIDTHS = st.sampled_from([(32, 8), (8, 32), (4, 32), (32, 4), (16, 16), (32, 16)])


@given(
    desc_pairs(),
    _WIDTHS,
    st.sampled_from([128, 2048, 4096]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_tiles_and_zeros_together_write_every_padded_element_once_and_tiles_fit_the_scratch(
    pair: tuple[MemoryDesc, MemoryDesc],
    widths: tuple[int, int],
    limit: int,
    in_place: bool,
    streams: bool,
    masks: bool,
) -> None:
    _check_cut(pair, widths, limit, in_place=in_place, streams=streams, masks=masks)


def test_a_padded_tensor_longer_than_the_scratch_is_converted_without_leaving_it() -> None:
    for sizes, stag, dtag, types in (
        ((65, 65), "BA4a2b", "BA4a2b", ("s8", "f64")),
        ((40, 21, 43), "acb", "ABc48a32b", ("f64", "s32")),
    ):
        src, dst = memory_desc(sizes, types[0], stag), memory_desc(sizes, types[1], dtag)
        check((src, dst, None), 1, at_end=True)


def test_a_broadcast_source_is_read_again_for_each_tile() -> None:
    src = memory_desc((70, 80), "f32", strides=(0, 1))
    _check_cut((src, memory_desc((70, 80), "f32", "ba")), (32, 8), 256, in_place=False)
    zeros = Box((0, 0), (Node(4, 0, (0, 1)),))
    assert cut_into_tiles(zeros, (32, 8), SlotLimits(256), in_place=False)[0] == []
