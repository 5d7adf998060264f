"""Prepare a plan for execution on the CPU, and run it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc.dtypes import BYTE_BITS
from reorder.cpu.machine import Machine, this_machine
from reorder.cpu.runtime.batch import Batch, BatchBuilder, JoinedJob, joined_interpreter_at
from reorder.cpu.runtime.fast_call import job_table, make_fast_call
from reorder.cpu.runtime.job import JOB
from reorder.cpu.runtime.pool import load_pool
from reorder.cpu.runtime.sums import Sums
from reorder.cpu.schedule.tiles import needs_tiles
from reorder.forks import importing
from reorder.memory.buffers import BufferCheck, address_of, check_disjoint
from reorder.memory.compensation import compensate
from reorder.plan.validate import validate
from reorder.stack import on_enough_stack
from reorder.threads import checked_threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from reorder.cpu.runtime.fast_call import ArrayView, FastCall
    from reorder.plan.plan import ReorderPlan


class PreparedReorder:
    """A plan with everything its execution needs; call it with src and dst buffers.

    Safe to call from several threads at once, with different dst buffers. `machine` is the machine
    to schedule for; the default is the one that this process runs on.
    """

    __slots__ = (
        "_batches",
        "_dst",
        "_fast_call",
        "_job",
        "_jobs",
        "_joined",
        "_src",
        "_sums",
        "_was_called",
        "kernels",
        "plan",
        "threads",
    )

    def __init__(
        self, plan: ReorderPlan, threads: int | None = None, machine: Machine | None = None
    ) -> None:
        self.plan = plan
        machine = this_machine() if machine is None else machine
        limit = machine.threads
        self.threads = limit if threads is None else min(checked_threads(threads), limit)
        self._src = BufferCheck(plan.src, "src", write=False)
        self._dst = BufferCheck(plan.dst, "dst", write=True)
        builder = BatchBuilder(plan, self.threads, machine)
        self._batches = (
            _load_converter()(builder) if needs_tiles(plan) else builder.move_all(builder.boxes)
        )
        # what `explain` shows: micro-kernels with the width of their elements, and "tiles"
        self.kernels = builder.kernels
        # the compensation stored after the elements of s8 weights: sums, one pass for each mask
        extra = plan.dst.extra
        masks = (
            set(extra.masks.values())
            if extra and not plan.dst.layout.has_partial_blocks and plan.dst.nelems
            else ()
        )
        self._sums = {mask: Sums(plan.dst, mask, self.threads) for mask in masks}
        # a call that runs fixed jobs needs no Python code, which halves its time
        jobs = [batch.direct_job for batch in self._batches] if plan.dst.extra is None else []
        fixed = [job for job in jobs if job is not None]
        # two jobs may write 4-bit elements of the same byte, so they must not run at the same time
        is_shared = plan.dst.dtype.bits < BYTE_BITS and any(job.workers for job in fixed)
        is_joined = len(jobs) == len(fixed) > 1 and not is_shared
        self._joined = JoinedJob(self._batches) if is_joined else None
        job = fixed[0] if len(jobs) == len(fixed) == 1 else self._joined and self._joined.job
        self._job = None if job is None else np.array(job, np.int64)
        # the jobs that compiled code runs, by the place of dst in its cache line, with their table
        self._jobs = job_table()
        self._fast_call: FastCall | None = None
        self._was_called = False

    def __reduce__(self) -> tuple[Any, ...]:
        # pickled as its plan: tables and compiled code belong to this process
        return _prepare_again, (self.plan, self.threads)

    def __repr__(self) -> str:
        return f"<PreparedReorder of {self.plan!s}>"

    def __call__(self, src: Any, dst: Any) -> None:
        """Reorder src into dst.

        Parameters
        ----------
        src, dst : buffer
            As for `execute`.

        Raises
        ------
        MemdescError
            If a buffer does not fit its descriptor, or they overlap; nothing is
            written then.
        """
        call = self._fast_call
        if call is not None and call(src, dst) is None:
            return
        if self._was_called:
            self.load_fast_call()
        source, src_at = self._src(src)
        target, dst_at = self._dst(dst)
        if not self._batches:
            return
        distance = dst_at - src_at
        if distance < self._src.min_nbytes and -distance < self._dst.min_nbytes:
            check_disjoint(source, self.plan.src, target, self.plan.dst)
        for batch in self._batches:
            batch.execute(src_at, dst_at)
        if self.plan.dst.extra is not None:
            sums = {mask: add(dst_at) for mask, add in self._sums.items()}
            compensate(target.reshape(-1).view(np.uint8), self.plan.dst, sums)
        self._was_called = True

    def load_fast_call(self) -> None:
        """Load or compile what makes later calls fast, and the code of the threads.

        The second call does this itself. A plan that runs once skips it, which halves the time of a
        first reorder when no compiled code is on disk.
        """
        if self.threads > 1:
            load_pool()
        if self._fast_call is None and self._job is not None:
            if self._joined is not None:
                self._job[JOB.interpreter] = joined_interpreter_at()
            self._jobs[:] = address_of(self._job)
            self._fast_call = self.fast_call()

    def fast_call(
        self, src: ArrayView | None = None, dst: ArrayView | None = None
    ) -> FastCall | None:
        """Return a builtin function of arrays with the shapes and strides of views.

        This object must outlive it. None if calls need Python code. `load_fast_call` comes first.
        """
        if self._job is None:
            return None
        return make_fast_call(self._jobs, (self._src, self._dst), (src, dst))


@cache
def _load_converter() -> Callable[[BatchBuilder], list[Batch]]:
    """Return `tile_batches`, loaded late, since plain moves do not need it."""

    def load() -> Callable[[BatchBuilder], list[Batch]]:
        with importing:
            from reorder.cpu.runtime.tile_batches import tile_batches  # see above

        return tile_batches

    return on_enough_stack(load)


def _prepare_again(plan: ReorderPlan, threads: int) -> PreparedReorder:
    """Prepare an unpickled plan for the machine that reads it."""
    return PreparedReorder(validate(plan), threads)
