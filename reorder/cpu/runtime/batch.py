"""Batches: a prepared reorder runs them one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from reorder.cpu.runtime.job import Job, make_job
from reorder.cpu.runtime.pool import run_job
from reorder.cpu.runtime.walker import walker_at
from reorder.cpu.schedule.points import Point, each_points, points_in_bytes
from reorder.cpu.target import LINE_NBYTES
from reorder.memory.buffers import address_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reorder.cpu.schedule.kernel import Kernel
    from reorder.cpu.schedule.partition import Partition
    from reorder.plan.nodes import Lookup

__all__ = ["Batch", "BoxBatch"]

_ORIGIN = np.array([Point(0, 0)], np.int64)


class Batch(Protocol):
    """Boxes that are run together."""

    @property
    def direct_job(self) -> Job | None:
        """The job, if every call runs the same one; else None."""

    def execute(self, src_at: int, dst_at: int) -> None:
        """Run the boxes on src and dst at two addresses."""


class BoxBatch:
    """Boxes of one kernel that are placed at the same points."""

    __slots__ = ("_jobs", "_kernel", "_lookups", "_partition", "_program")

    def __init__(
        self,
        program: NDArray[np.int64],
        partition: Partition,
        kernel: Kernel,
        lookups: tuple[Lookup, ...] = (),
    ) -> None:
        # jobs have addresses of these arrays
        self._program, self._partition = program, partition
        self._kernel, self._lookups = kernel, lookups
        # jobs at the origin
        self._jobs: dict[Kernel, Job] = {}

    @property
    def direct_job(self) -> Job | None:
        """The job, if every call runs the same one; else None."""
        if self._lookups or self._kernel.streams:
            return None
        return self._job(self._kernel)

    def execute(self, src_at: int, dst_at: int) -> None:
        """Run the boxes on src and dst at two addresses."""
        if not self._lookups:
            kernel = self._kernel
            # non-temporal stores need aligned cache lines
            if kernel.streams and dst_at % LINE_NBYTES:
                kernel = kernel._replace(streams=False)
            run_job(src_at, dst_at, self._job(kernel))
            return
        for points in each_points(self._lookups):
            self.execute_at(src_at, dst_at, points)

    def execute_at(self, src_at: int, dst_at: int, points: NDArray[np.int64]) -> None:
        """Run the boxes at a table of points, whose offsets are in elements."""
        points = points_in_bytes(points, self._kernel.bits)
        job = self._job(self._kernel)._replace(points=address_of(points), point_count=len(points))
        run_job(src_at, dst_at, job)

    def _job(self, kernel: Kernel) -> Job:
        """Return the job at the origin."""
        if kernel not in self._jobs:
            program_at = address_of(self._program)
            self._jobs[kernel] = make_job(walker_at(kernel), program_at, self._partition, _ORIGIN)
        return self._jobs[kernel]
