"""Prepare a plan for execution on the CPU, and run it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from memdesc import MemoryDesc, array_desc
from memdesc.dtypes import BYTE_BITS
from memdesc.lazy import cached_property
from reorder.cpu.host import this_machine
from reorder.cpu.machine import LINE_NBYTES, Machine
from reorder.cpu.runtime.jit import FAST_CALL, SHARED_JOB, interpreter_at, is_due
from reorder.cpu.runtime.pool import load_pool, make_job, run_job
from reorder.cpu.runtime.worker import Job
from reorder.cpu.schedule.batches import Batch, BatchBuilder, needs_tiles
from reorder.cpu.schedule.program import Point, each_points
from reorder.cpu.tables import Array, Words
from reorder.memory.buffers import ArrayView, BufferCheck, address_of, check_disjoint
from reorder.memory.compensation import compensate
from reorder.plan.plan import ReorderPlan, checked_plan, plan_reorder
from reorder.stack import load_late
from reorder.threads import checked_threads

# loaded late: a first call needs no fast call, and most moves have no tiles
_fast_calls = load_late("reorder.cpu.runtime.fast_call")
_tile_batches = load_late("reorder.cpu.schedule.tile_batches")
_stages = load_late("reorder.cpu.runtime.stages")
# how much longer a repeated call takes without its fast call
_LOST_SECONDS = 2e-5


class PreparedReorder:
    """A plan with all that its execution on `machine` needs; call it with the buffers of x and out.

    Safe to call from several threads at once, with different dst buffers.
    """

    def __init__(
        self, plan: ReorderPlan, threads: int | None = None, machine: Machine | None = None
    ) -> None:
        self.plan = checked_plan(plan)
        machine = this_machine() if machine is None else machine
        limit = machine.threads
        self.threads = limit if threads is None else min(checked_threads(threads), limit)
        self._src = BufferCheck(plan.src, "x", write=False)
        self._dst = BufferCheck(plan.dst, "out", write=True)
        self._machine = machine
        nbytes = self._src.min_nbytes + self._dst.min_nbytes
        # whether dst may be written by whole lines, so that its place within one matters
        self._writes_lines = (
            machine.streams(nbytes, self.threads) or self._dst.min_nbytes >= machine.filled_nbytes
        )
        # by bytes between the start of a cache line and dst
        self._places: dict[int, _Schedule] = {}
        # what copies the elements before they are summed, where compensation follows them
        self._copy = (
            copies_of(plan.dst, self.threads, machine)
            if plan.dst.extra is not None and plan.dst.nelems
            else None
        )
        # the jobs that compiled code runs, by the place of dst in its cache line
        self._jobs = np.zeros(LINE_NBYTES, np.int64)
        self._fast_call: Callable[[Any, Any], object] | None = None
        self._was_called = False

    def __reduce__(self) -> tuple[Any, ...]:
        # pickled as its plan, because tables and compiled code belong to this process
        return PreparedReorder, (self.plan, self.threads)

    def __repr__(self) -> str:
        return f"<PreparedReorder of {self.plan!s}>"

    def __call__(self, x: Any, out: Any) -> None:
        """Reorder x into out.

        Parameters
        ----------
        x, out : buffer
            As for `execute`.

        Raises
        ------
        MemdescError
            If a buffer does not fit its descriptor, or they overlap; nothing is
            written then.
        """
        call = self._fast_call
        if call is not None and call(x, out) is None:
            return
        source, target = self._src(x), self._dst(out)
        src_at, dst_at = address_of(source), address_of(target)
        schedule = self._schedule_at(dst_at)
        has_code = not schedule.has_workers or is_due(SHARED_JOB)
        if self._was_called and has_code and is_due(FAST_CALL, _LOST_SECONDS):
            self.load_fast_call(dst_at)
        batches = schedule.batches
        if not batches:
            return
        distance = dst_at - src_at
        if distance < self._src.min_nbytes and -distance < self._dst.min_nbytes:
            check_disjoint(source, self.plan.src, target, self.plan.dst)
        for batch in batches:
            batch.execute(src_at, dst_at)
        if self._copy is not None:
            compensate(target, self.plan.dst, self._copy(target))
        self._was_called = True

    def _schedule_at(self, dst_at: int) -> "_Schedule":
        """Return the schedule for a dst at an address."""
        place = dst_at % LINE_NBYTES if self._writes_lines else 0
        schedule = self._places.get(place)
        if schedule is None:
            # if several threads make it at once, one of them keeps it
            made = _Schedule(self.plan, self.threads, self._machine, place)
            schedule = self._places.setdefault(place, made)
        return schedule

    def kernels_at(self, dst_at: int) -> tuple[str, ...]:
        """Return the kernels, "tiles" and "rotated rows" that move a dst at an address."""
        return self._schedule_at(dst_at).kernels

    def is_fast_at(self, dst_at: int) -> bool:
        """Whether calls with a dst at an address are fast: the second one may have seen to it."""
        return bool(self._jobs[dst_at % LINE_NBYTES])

    def load_fast_call(self, dst_at: int = 0) -> None:
        """Load or compile what makes later calls fast, and the code of the threads.

        It makes calls fast whose dst is as far into a cache line as an address. The second call
        does this itself if no compiler is needed, so short programs do not wait for it.
        """
        schedule = self._schedule_at(dst_at)
        if schedule.has_workers:
            load_pool()
        # batches have their code, although there may be no job of them all
        if not (schedule.batches and schedule.has_job):
            return
        if not self.is_fast_at(dst_at):
            place = dst_at % LINE_NBYTES
            self._jobs[place if self._writes_lines else slice(None)] = schedule.job_at()
        if self._fast_call is None:
            self._fast_call = self.fast_call()

    def fast_call(
        self, src: ArrayView | None = None, dst: ArrayView | None = None
    ) -> Callable[[Any, Any], object] | None:
        """Return a builtin function, which this object must outlive; None if calls need Python."""
        if not self._jobs.any():
            return None
        made: Callable[[Any, Any], object] | None = _fast_calls().make_fast_call(
            self._jobs, (self._src, self._dst), (src, dst)
        )
        return made


class _Schedule:
    """The batches of a plan for dst at a place within its cache line, and the job of them all."""

    def __init__(self, plan: ReorderPlan, threads: int, machine: Machine, place: int) -> None:
        builder = BatchBuilder(plan, threads, machine, place)
        tiles = _tile_batches() if needs_tiles(plan) else None
        scheduled = tiles.tile_batches(builder) if tiles else builder.move(plan.boxes)
        self.scheduled = scheduled
        self.kernels = builder.kernels
        self.has_workers = any(batch.partition.workers for batch in scheduled)
        # two jobs may write 4-bit elements of the same byte, so they must not run at the same time
        is_shared = plan.dst.dtype.bits < BYTE_BITS and self.has_workers
        # whether one job runs all batches
        self.has_job = (
            plan.dst.extra is None
            and not any(batch.indirect for batch in scheduled)
            and (len(scheduled) == 1 or (len(scheduled) > 1 and not is_shared))
        )
        # the job, once it was needed, and what owns its tables
        self._kept: list[tuple[Any, LinkedBatch]] = []

    @cached_property
    def batches(self) -> list["LinkedBatch"]:
        """The batches with their code, which is compiled where there is none."""
        return [*map(LinkedBatch, self.scheduled)]

    def job_at(self) -> int:
        """Return the address of the job of all batches; its interpreters are compiled first."""
        if not self._kept:
            batch = self.batches[0]
            if len(self.batches) > 1:
                join = _tile_batches().join
                batch = LinkedBatch(join(self.scheduled))
            # several threads may come here at once: all get the first one
            job, _ = batch.job_at(batch.origin)
            self._kept.append((np.array(job, np.int64), batch))
        return address_of(self._kept[0][0])


class LinkedBatch:
    """A batch with its code, whose program has the addresses of the arrays that it keeps alive."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        if batch.kernel is not None:
            self._program, self._interpreter = batch.program, interpreter_at(batch.kernel)
        else:
            stages = _stages()
            self._program, self._interpreter = stages.link(batch), stages.tile_interpreter_at()
        self.origin = batch.place(np.zeros((1, len(Point._fields)), np.int64))

    def job_at(self, points: Words) -> tuple[Job, Words]:
        """Return the job at some points, and the bounds of its chunks.

        The points, the bounds and this batch must outlive the job.
        """
        return make_job(self._interpreter, self._program, self.batch.partition, points)

    def execute(self, src_at: int, dst_at: int) -> None:
        """Run the program on src and dst at two addresses."""
        indirect = self.batch.indirect
        for points in map(self.batch.place, each_points(indirect)) if indirect else [self.origin]:
            if len(points):
                job, _bounds = self.job_at(points)
                run_job(src_at, dst_at, job)


def copies_of(
    desc: MemoryDesc, threads: int, machine: Machine | None = None
) -> Callable[[Array], Array]:
    """Return what copies the elements of weights to an array over the dims.

    Those of compensation are innermost there, so that numpy adds whole rows.
    """
    mask = min(desc.extra.masks.values()) if desc.extra else 0
    order = sorted(range(desc.ndims), key=lambda dim: mask >> dim & 1)
    shape, axes = [desc.dims[dim] for dim in order], np.argsort(order)

    def empty() -> Array:
        return np.empty(shape, desc.dtype.numpy).transpose(axes)

    plan = plan_reorder(desc.with_extra(None), array_desc(empty()))
    move = PreparedReorder(plan, threads, machine)

    def copy(data: Array) -> Array:
        copied = empty()
        move(data, copied.base)
        return copied

    return copy
