"""How instructions are divided among threads."""

from itertools import pairwise

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
from tests.strategies import desc_pairs


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


@pytest.mark.parametrize(
    ("steps", "chunks", "largest"),
    [
        # steps of two instructions, each with its elements; what is left of large ones, small fill
        (((6, 256), (6, 256)), 2, 1.0),
        (((13, 64), (3, 1000)), 2, 1.05),
        (((44, 256), (2, 1000)), 8, 1.25),
        (((12, 1000), (11, 1024)), 8, 1.06),
        (((26, 64), (16, 256), (31, 64)), 8, 1.06),
        (((35, 100), (38, 100)), 8, 1.21),
    ],
)
def test_instructions_of_few_steps_are_cut_as_if_they_were_one(
    steps: tuple[tuple[int, int], ...], chunks: int, largest: float
) -> None:
    works = [Workload(k, outer, 1, 1, outer * size) for k, (outer, size) in enumerate(steps)]
    ranges, bounds = partition_chunks(works, chunks)
    rows = [StepRange(*row) for row in ranges.tolist()]
    sizes = [
        sum((row.last - row.first) * steps[row.instruction][1] for row in rows[a:b])
        for a, b in pairwise(bounds)
    ]
    assert sum(sizes) == sum(work.size for work in works)
    assert max(sizes) <= largest * sum(sizes) / chunks


_MACHINE = Machine(16, 64 << 20, own_cache_nbytes=1 << 20, min_thread_nbytes=1 << 16)


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
    assert (shares.threads, shares.chunks) == found
    assert shares.workers == shares.threads - 1
    assert sum(_loads(shares.ranges, shares.bounds)) == 1 << 14


def test_instructions_that_take_turns_write_a_mebibyte_each_time() -> None:
    works = [Workload(k, outer=1 << 10, inner=16, grain=1, size=8 << 20) for k in range(2)]
    rows = {}
    for takes_turns in (False, True):
        shares = partition(works, 16 << 20, 1, _MACHINE, takes_turns=takes_turns)
        assert shares.chunks == 1
        rows[takes_turns] = [StepRange(*row) for row in shares.ranges.tolist()]
    assert [row.instruction for row in rows[False]] == [0, 1]
    assert [row.instruction for row in rows[True]] == [0, 1] * 16
    assert all(row.last - row.first == 64 for row in rows[True])
    # one instruction has none to take turns with
    assert len(partition(works[:1], 16 << 20, 1, _MACHINE, takes_turns=True).ranges) == 1


@pytest.mark.parametrize(
    ("shared_lines", "fits_own_cache", "found"),
    [
        # half of the rows, so that no chunk divides a line
        (1 << 10, True, (40, 32)),
        # reading src again costs more than a few shared lines, or than the caches of a core bear
        (10, True, (20, 64)),
        (1 << 10, False, (20, 64)),
    ],
)
def test_rows_are_cut_where_lines_of_dst_cost_more_than_reading_src_again(
    shared_lines: int, fits_own_cache: bool, found: tuple[int, int]
) -> None:
    work = Workload(
        0, 80, 64, grain=16, size=80 * 64 * 16, coarse_steps=2, shared_lines=shared_lines
    )
    ranges, _ = partition_chunks([work], 4, fits_own_cache=fits_own_cache)
    rows = [StepRange(*row) for row in ranges.tolist()]
    assert {(row.last - row.first, row.inner_last - row.inner_first) for row in rows} == {found}


def test_many_steps_are_cut_between_those_of_the_outermost_loop() -> None:
    work = Workload(0, 640, 64, grain=16, size=640 * 64 * 16, coarse_steps=64, shared_lines=1 << 20)
    ranges, _ = partition_chunks([work], 3, fits_own_cache=True)
    rows = [StepRange(*row) for row in ranges.tolist()]
    assert {(row.inner_first, row.inner_last, row.first % 10) for row in rows} == {(0, 64, 0)}


def _loads(ranges: NDArray[np.int64], bounds: NDArray[np.int64]) -> list[int]:
    """Return the steps of each chunk, of outer and inner loops together."""
    parts = [[StepRange(*row) for row in ranges[a:b].tolist()] for a, b in pairwise(bounds)]
    return [
        sum((row.last - row.first) * (row.inner_last - row.inner_first) for row in rows)
        for rows in parts
    ]
