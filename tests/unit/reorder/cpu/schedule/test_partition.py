"""How instructions are divided among threads."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reorder import plan_reorder
from reorder.cpu.schedule.partition import StepRange, Workload, partition_chunks
from reorder.cpu.schedule.program import encode
from reorder.cpu.schedule.tiling import tile_boxes
from tests.strategies import desc_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import MemoryDesc


@given(desc_pairs(max_nelems=4096), st.integers(1, 9), st.booleans())
def test_ranges_cover_every_step_of_every_box_once_and_chunks_follow_each_other(
    pair: tuple[MemoryDesc, MemoryDesc], chunks: int, fits_own_cache: bool
) -> None:
    bits = pair[0].dtype.bits
    boxes = tile_boxes(tuple(box for box in plan_reorder(*pair).boxes if not box.indirect), bits)
    _, workloads = encode(boxes, bits, pair[0].nbytes)
    ranges, bounds = partition_chunks(workloads, chunks, fits_own_cache=fits_own_cache)
    assert bounds[0] == 0
    assert bounds[-1] == len(ranges)
    assert (np.diff(bounds) >= 0).all()
    assert len(bounds) == chunks + 1
    for workload in workloads:
        rows = [StepRange(*row) for row in ranges.tolist()]
        covered = np.zeros((workload.outer, workload.inner), np.int64)
        for step_range in rows:
            if step_range.instruction == workload.instruction:
                inner = slice(step_range.inner_first, step_range.inner_last)
                covered[step_range.first : step_range.last, inner] += 1
        assert (covered == 1).all()


def test_records_of_the_same_images_are_cut_at_the_same_images() -> None:
    # most pixels of each of 153 images in ten steps, the others of two images in one
    workloads = [
        Workload(0, 76, 180, 1, 109440, 76, 20),
        Workload(50, 1530, 160, 1, 1958400, 153, 10),
    ]
    ranges, bounds = partition_chunks(workloads, 16, fits_own_cache=True)
    for first, last in pairwise(bounds):
        rows = [StepRange(*row) for row in ranges[first:last].tolist()]
        pairs = [row for row in rows if row.instruction == 0]
        images = [row for row in rows if row.instruction == 50]
        assert abs(2 * min(row.first for row in pairs) - min(r.first for r in images) // 10) <= 2
        assert abs(2 * max(row.last for row in pairs) - max(r.last for r in images) // 10) <= 2


@given(
    st.integers(1, 12), st.integers(1, 12), st.integers(20, 500), st.integers(2, 16), st.booleans()
)
def test_chunks_of_few_steps_are_equal_but_for_a_grain(
    around: int, within: int, inner: int, chunks: int, fits_own_cache: bool
) -> None:
    outer, rows, grain = around * within, 256, 16
    load = Workload(0, outer, inner, grain, outer * inner * rows, around, inner)
    loads = _loads(*partition_chunks([load], chunks, fits_own_cache=fits_own_cache))
    assert sum(loads) == outer * inner
    # a part of some steps ends at one of them
    assert max(loads) <= 4 / 3 * outer * inner / chunks + 2 * grain


def _loads(ranges: NDArray[np.int64], bounds: NDArray[np.int64]) -> list[int]:
    """Return the steps of each chunk, of outer and inner loops together."""
    parts = [[StepRange(*row) for row in ranges[a:b].tolist()] for a, b in pairwise(bounds)]
    return [
        sum((row.last - row.first) * (row.inner_last - row.inner_first) for row in rows)
        for rows in parts
    ]
