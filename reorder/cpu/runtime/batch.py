"""Batches with addresses: what a schedule names is compiled, and runs on src and dst."""

from collections.abc import Callable

import numpy as np

from reorder.cpu.runtime.interpreters import interpreter_at
from reorder.cpu.runtime.job import Job, make_job, repeated_at
from reorder.cpu.runtime.pool import run_job
from reorder.cpu.schedule.batches import Batch
from reorder.cpu.schedule.program import Point, each_points
from reorder.cpu.tables import Words
from reorder.memory.buffers import address_of


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


def _linked(batch: Batch) -> tuple[Words, Callable[[], int]]:
    """Return a program with addresses, and what returns that of its interpreter."""
    kernel = batch.kernel
    if kernel is not None:
        return batch.program, lambda: interpreter_at(kernel)
    # programs of boxes alone load none of this
    from reorder.cpu.runtime.stages import link, tile_interpreter_at

    return link(batch), tile_interpreter_at
