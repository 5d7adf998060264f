"""How boxes are cut to what the cache holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given

from memdesc import memory_desc
from reorder import plan_reorder
from reorder.cpu.schedule.packing import pack_for_kernels
from reorder.cpu.schedule.program import encode
from reorder.cpu.schedule.select import select
from reorder.cpu.schedule.tiling import tile_boxes
from tests.reorders import box_map
from tests.strategies import desc_pairs

if TYPE_CHECKING:
    from memdesc import MemoryDesc


@given(desc_pairs())
def test_tiling_and_packing_keep_which_element_goes_where(
    pair: tuple[MemoryDesc, MemoryDesc],
) -> None:
    bits = pair[1].dtype.bits
    for box in plan_reorder(*pair).boxes:
        if box.lookups:
            continue
        wide, width, unit = pack_for_kernels(box, bits)
        factor = width // bits
        to, fro = box_map(tuple(scheduled.box for scheduled in tile_boxes((wide,), unit)))
        step, parts = factor // unit, np.arange(factor)
        found = np.stack(
            [
                (to[:, None] * step + parts).ravel(),
                np.where(fro[:, None] < 0, -1, fro[:, None] * step + parts).ravel(),
            ]
        )
        wanted = np.stack(box_map((box,)))
        assert np.array_equal(found[:, np.argsort(found[0])], wanted[:, np.argsort(wanted[0])])


@given(desc_pairs())
def test_a_scheduled_box_has_the_kernel_that_is_selected_for_it(
    pair: tuple[MemoryDesc, MemoryDesc],
) -> None:
    for scheduled in tile_boxes(plan_reorder(*pair).boxes):
        assert scheduled.choice == select(scheduled.box)


def test_small_groups_are_moved_with_the_loop_around_them() -> None:
    plan = plan_reorder(
        memory_desc((64, 64, 3, 3), "f32", "abcd"), memory_desc((64, 64, 3, 3), "f32", "aBcd16b")
    )
    _, workloads = encode(tile_boxes(plan.boxes), 32, plan.src.nbytes, prefetches=False)
    assert sum(workload.outer for workload in workloads) * 10 < 64 * 4


def test_padding_of_many_short_blocks_is_written_with_their_data() -> None:
    dims = 20000, 3, 16
    src = memory_desc(dims, "s8", strides=(72, 24, 1))
    dst = memory_desc(dims, "s8", strides=(64, 16, 1), padded_dims=(20000, 4, 16))
    boxes = [tile.box for tile in tile_boxes(plan_reorder(src, dst).boxes)]
    assert not any(box.is_zero for box in boxes)
