"""How records are shared out to threads."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reorder import plan_reorder
from reorder.cpu.schedule.partition import Task, Workload, partition_chunks
from reorder.cpu.schedule.program import encode
from reorder.cpu.schedule.tiling import tile_boxes
from tests.strategies import desc_pairs

if TYPE_CHECKING:
    from memdesc import MemoryDesc


@given(desc_pairs(max_nelems=4096), st.integers(1, 9))
def test_tasks_cover_every_step_of_every_box_once_and_chunks_follow_each_other(
    pair: tuple[MemoryDesc, MemoryDesc], chunks: int
) -> None:
    bits = pair[0].dtype.bits
    boxes = tile_boxes(tuple(box for box in plan_reorder(*pair).boxes if not box.lookups), bits)
    _, workloads = encode(boxes, bits, pair[0].nbytes, prefetches=False)
    tasks, bounds = partition_chunks(workloads, chunks)
    assert bounds[0] == 0
    assert bounds[-1] == len(tasks)
    assert (np.diff(bounds) >= 0).all()
    assert len(bounds) == chunks + 1
    for workload in workloads:
        rows = [Task(*row) for row in tasks.tolist()]
        covered = np.zeros((workload.outer, workload.inner), np.int64)
        for task in rows:
            if task.record == workload.record:
                inner = slice(task.inner_first, task.inner_last)
                covered[task.first : task.last, inner] += 1
        assert (covered == 1).all()


def test_chunks_of_a_large_box_are_nearly_equal() -> None:
    workloads = [
        Workload(0, 64, 3136, 64, 64 * 3136 * 16),
        Workload(50, 8, 3136, 64, 8 * 3136 * 16),
    ]
    tasks, bounds = partition_chunks(workloads, 4)
    loads = []
    for first, last in pairwise(bounds):
        rows = [Task(*row) for row in tasks[first:last].tolist()]
        loads.append(
            sum((row.last - row.first) * (row.inner_last - row.inner_first) for row in rows)
        )
    assert max(loads) < 1.1 * min(loads)


def test_large_boxes_are_interleaved() -> None:
    workloads = [Workload(0, 64, 256, 1, 64 * 256 * 16), Workload(50, 8, 64, 1, 8 * 64 * 16)]
    tasks, _ = partition_chunks(workloads, 1)
    starts = [int(start) for start in tasks[:, 0]]
    # the tail of the channels follows the blocks beside it
    assert starts.index(50) < len(starts) // 4
    assert starts.count(0) > 1 < starts.count(50)
    for workload in workloads:
        steps = [
            step for task in tasks if task[0] == workload.record for step in range(task[1], task[2])
        ]
        assert steps == list(range(workload.outer))
