"""Batches with addresses: what a schedule names is compiled, and runs on src and dst."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from reorder.cpu.runtime.interpreters import compiled_interpreter, interpreter_at
from reorder.cpu.runtime.job import Job, make_job, repeated_at
from reorder.cpu.runtime.pool import run_job
from reorder.cpu.schedule.partition import JobRange
from reorder.cpu.schedule.program import Point, each_points
from reorder.memory.buffers import address_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from reorder.cpu.kernels.interpreter import InterpreterCall
    from reorder.cpu.schedule.batches import Batch


class LinkedBatch:
    """A batch whose program has the addresses of what it names; it keeps the arrays alive."""

    __slots__ = ("_interpreter", "_origin", "batch", "program")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.program, self._interpreter = _linked(batch)
        self._origin = batch.place(np.zeros((1, len(Point._fields)), np.int64))

    @property
    def job(self) -> Job:
        """The job at the origin; this batch must outlive it."""
        interpreter, program = self._interpreter(), address_of(self.program)
        return make_job(interpreter, program, self.batch.partition, self._origin)

    def execute(self, src_at: int, dst_at: int) -> None:
        """Run the program on src and dst at two addresses."""
        job = self.job
        if not self.batch.indirect:
            run_job(src_at, dst_at, job)
            return
        for offsets in each_points(self.batch.indirect):
            points = self.batch.place(offsets)
            if len(points):
                repeated, _bounds = repeated_at(job, points)
                run_job(src_at, dst_at, repeated)


def _linked(batch: Batch) -> tuple[NDArray[np.int64], Callable[[], int]]:
    """Return a program with addresses, and what returns that of its interpreter."""
    kernel = batch.kernel
    if kernel is not None:
        return batch.program, lambda: interpreter_at(kernel)
    # programs of boxes alone load none of this
    from reorder.cpu.runtime.stages import link, tile_interpreter_at

    return link(batch), tile_interpreter_at


class JoinedJob:
    """The jobs of batches as one job, which a call runs without Python code in between.

    Its chunks are those of all jobs, in order. Threads run them at once, so no job may read what
    another one writes, and no two may write 4-bit elements of the same byte. Without workers the
    caller runs the chunks in their order. The batches must outlive it.
    """

    def __init__(self, batches: Sequence[LinkedBatch]) -> None:
        jobs = [batch.job for batch in batches]
        starts = np.cumsum([0, *(job.steps for job in jobs)]).tolist()
        parts = [
            JobRange(
                start, end, job.interpreter, job.program, job.ranges, job.points, job.point_count
            )
            for (start, end), job in zip(pairwise(starts), jobs, strict=True)
        ]
        bounds = [
            batch.batch.partition.bounds[:-1] + start
            for batch, start in zip(batches, starts[:-1], strict=True)
        ]
        # the job has addresses of these arrays
        self._program = np.array([len(parts), *(word for part in parts for word in part)], np.int64)
        self._bounds = np.array([*np.concatenate(bounds), starts[-1]], np.int64)
        self.job = jobs[0]._replace(
            interpreter=joined_interpreter_at(),
            program=address_of(self._program),
            steps=starts[-1],
            bounds=address_of(self._bounds),
            chunks=len(self._bounds) - 1,
            workers=max(job.workers for job in jobs),
        )


def joined_interpreter_at() -> int:
    """Return the address of the compiled interpreter of joined jobs."""
    return compiled_interpreter("interpreter of joined jobs", _emit_joined, moves=True)


def _emit_joined(call: InterpreterCall) -> None:
    from reorder.cpu.kernels.joined import emit_joined

    emit_joined(call)
