"""How instructions are divided among threads."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from memdesc import MemoryDesc
from reorder import plan_reorder
from reorder.cpu.machine import Machine
from reorder.cpu.schedule.cuts import tile_boxes
from reorder.cpu.schedule.partition import StepRange, Workload, partition, partition_chunks
from reorder.cpu.schedule.program import encode
from reorder.cpu.schedule.select import pack_for_kernels
from tests.strategies import desc_pairs

_MACHINE = Machine(16, 64 << 20, own_cache_nbytes=1 << 20, min_thread_nbytes=1 << 16)


def _chunks(ranges: NDArray[np.int64], bounds: NDArray[np.int64]) -> list[list[StepRange]]:
    """Return the ranges of each chunk."""
    return [[StepRange(*row) for row in ranges[a:b].tolist()] for a, b in pairwise(bounds)]


def _cut(works: list[Workload], chunks: int, *, is_near: bool = False) -> list[list[StepRange]]:
    return _chunks(*partition_chunks(works, chunks, fits_own_cache=is_near))


def _steps(chunk: list[StepRange]) -> int:
    """Return the steps of a chunk, of outer and inner loops together."""
    return sum((row.last - row.first) * (row.inner_last - row.inner_first) for row in chunk)


@given(desc_pairs(max_nelems=4096), st.integers(1, 9), st.booleans())
def test_ranges_cover_every_step_of_every_box_once_and_chunks_follow_each_other(
    pair: tuple[MemoryDesc, MemoryDesc], chunks: int, is_near: bool
) -> None:
    direct = (box for box in plan_reorder(*pair).boxes if not box.indirect)
    packed = (pack_for_kernels(box, pair[0].dtype.bits) for box in direct)
    boxes = [tile for box, bits in packed for tile in tile_boxes((box,), bits)]
    _, workloads, _ = encode(boxes, pair[0].nbytes, _MACHINE.instructions)
    ranges, bounds = partition_chunks(workloads, chunks, fits_own_cache=is_near)
    assert (len(bounds), bounds[0], bounds[-1]) == (chunks + 1, 0, len(ranges))
    assert (np.diff(bounds) >= 0).all()
    rows = [row for chunk in _chunks(ranges, bounds) for row in chunk]
    for workload in workloads:
        covered = np.zeros((workload.outer, workload.inner), np.int64)
        for row in rows:
            if row.instruction == workload.instruction:
                covered[row.first : row.last, row.inner_first : row.inner_last] += 1
        assert (covered == 1).all()


def test_records_of_the_same_images_are_cut_at_the_same_images() -> None:
    # most pixels of each of 153 images in ten steps, the others of two images in one
    workloads = [
        Workload(0, 76, 180, 1, 109440, 76, 20),
        Workload(50, 1530, 160, 1, 1958400, 153, 10),
    ]
    for rows in _cut(workloads, 16, is_near=True):
        pairs, images = ([row for row in rows if row.instruction == at] for at in (0, 50))
        assert abs(2 * min(row.first for row in pairs) - min(r.first for r in images) // 10) <= 2
        assert abs(2 * max(row.last for row in pairs) - max(r.last for r in images) // 10) <= 2


@given(
    st.integers(1, 12), st.integers(1, 12), st.integers(20, 500), st.integers(2, 16), st.booleans()
)
def test_chunks_of_few_steps_are_equal_but_for_a_grain(
    around: int, within: int, inner: int, chunks: int, is_near: bool
) -> None:
    outer, rows, grain = around * within, 256, 16
    work = Workload(0, outer, inner, grain, outer * inner * rows, around, inner)
    loads = [*map(_steps, _cut([work], chunks, is_near=is_near))]
    assert sum(loads) == outer * inner
    # a part of some steps ends at one of them
    assert max(loads) <= 4 / 3 * outer * inner / chunks + 2 * grain


def test_instructions_of_few_steps_are_cut_as_if_they_were_one() -> None:
    for steps, chunks, largest in (
        # steps of instructions, each with its elements
        (((6, 256), (6, 256)), 2, 1.0),
        (((13, 6400), (3, 100_000)), 2, 1.25),
        (((44, 2560), (2, 10_000)), 8, 1.38),
        (((12, 10_000), (11, 10_240)), 8, 1.4),
        (((26, 64), (16, 256), (31, 64)), 8, 1.06),
        (((35, 100), (38, 100)), 8, 1.21),
    ):
        works = [Workload(k, outer, 1, 1, outer * size) for k, (outer, size) in enumerate(steps)]
        sizes = [
            sum((row.last - row.first) * steps[row.instruction][1] for row in rows)
            for rows in _cut(works, chunks)
        ]
        assert sum(sizes) == sum(work.size for work in works)
        assert max(sizes) <= largest * sum(sizes) / chunks, steps


@pytest.mark.parametrize(
    ("nbytes", "threads", "found"),
    [
        # a thread for every 64 KiB, and up to four chunks for each if these have 256 KiB
        ((1 << 16) - 1, 4, (1, 1)),
        (3 << 16, 4, (3, 3)),
        (1 << 20, 1, (1, 1)),
        (1 << 20, 4, (4, 4)),
        (2 << 20, 4, (4, 8)),
        (64 << 20, 4, (4, 16)),
    ],
)
def test_there_are_as_many_threads_and_chunks_as_the_bytes_are_worth(
    nbytes: int, threads: int, found: tuple[int, int]
) -> None:
    work = Workload(0, outer=1 << 10, inner=16, grain=1, size=nbytes)
    shares = partition([work], nbytes, threads, _MACHINE)
    assert (shares.threads, shares.chunks, shares.workers) == (*found, found[0] - 1)
    assert sum(map(_steps, _chunks(shares.ranges, shares.bounds))) == 1 << 14


@pytest.mark.parametrize(
    ("works", "chunks", "is_near", "found"),
    [
        # half of the rows, so that no chunk divides a line
        ({"coarse_steps": 2, "shared_lines": 1 << 10}, 4, True, {(40, 32)}),
        # reading src again costs more than a few shared lines, or than the caches of a core bear
        ({"coarse_steps": 2, "shared_lines": 10}, 4, True, {(20, 64)}),
        ({"coarse_steps": 2, "shared_lines": 1 << 10}, 4, False, {(20, 64)}),
        # many steps are cut between those of the outermost loop
        (
            {"outer": 640, "coarse_steps": 64, "shared_lines": 1 << 20},
            3,
            True,
            {(210, 64), (220, 64)},
        ),
    ],
)
def test_rows_are_cut_where_lines_of_dst_cost_more_than_reading_src_again(
    works: dict[str, Any], chunks: int, is_near: bool, found: set[tuple[int, int]]
) -> None:
    given = {"outer": 80, **works}
    work = Workload(0, inner=64, grain=16, size=given["outer"] * 64 * 16, **given)
    rows = [row for chunk in _cut([work], chunks, is_near=is_near) for row in chunk]
    assert {(row.last - row.first, row.inner_last - row.inner_first) for row in rows} == found
