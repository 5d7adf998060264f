"""Prepare a plan for execution on the CPU, and run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reorder.cpu.runtime.batch import BoxBatch
from reorder.cpu.runtime.fast_call import fast_call, fast_call_record
from reorder.cpu.runtime.sums import Sums
from reorder.cpu.schedule.kernel import Kernel
from reorder.cpu.schedule.partition import partition
from reorder.cpu.schedule.program import encode
from reorder.cpu.schedule.select import MICRO_KERNELS
from reorder.cpu.schedule.tiling import tile_boxes
from reorder.cpu.target import this_machine
from reorder.memory.buffers import BufferCheck, address_of, check_disjoint
from reorder.memory.compensation import compensate
from reorder.plan.passes import pack_elements, simplify
from reorder.threads import checked_threads

if TYPE_CHECKING:
    from reorder.cpu.runtime.batch import Batch
    from reorder.cpu.schedule.partition import Partition, Workload
    from reorder.cpu.schedule.scheduled_box import ScheduledBox
    from reorder.cpu.target import Machine
    from reorder.plan.nodes import Box, Lookup
    from reorder.plan.plan import ReorderPlan

__all__ = ["PreparedReorder"]

_NO_RECORD = np.zeros(1, np.int64)


class PreparedReorder:
    """A plan with all that its execution needs; call it with src and dst buffers.

    Safe to call from several threads at once, with different dst buffers. `machine` is the one
    to schedule for, by default this one.
    """

    __slots__ = (
        "_batches",
        "_dst",
        "_fast_call",
        "_machine",
        "_record",
        "_record_at",
        "_src",
        "_sums",
        "kernels",
        "plan",
        "threads",
    )

    def __init__(
        self, plan: ReorderPlan, threads: int | None = None, machine: Machine | None = None
    ) -> None:
        self.plan = plan
        self._machine = this_machine() if machine is None else machine
        limit = self._machine.threads
        self.threads = limit if threads is None else min(checked_threads(threads), limit)
        self._src = BufferCheck(plan.src, "src", write=False)
        self._dst = BufferCheck(plan.dst, "dst", write=True)
        # the micro-kernels that move it, with the width of their elements
        self.kernels: tuple[str, ...] = ()
        self._batches = self._make_batches()
        extra = plan.dst.extra
        masks = (
            set(extra.masks.values())
            if extra and not plan.dst.layout.has_partial_blocks and plan.dst.nelems
            else ()
        )
        self._sums = {mask: Sums(plan.dst, mask, self.threads) for mask in masks}
        # one job with nothing to decide is called without Python in between: in half the time
        is_single = len(self._batches) == 1 and plan.dst.extra is None
        job = self._batches[0].direct_job if is_single else None
        self._fast_call = fast_call() if job else None
        self._record = fast_call_record(job, self._src, self._dst) if job else _NO_RECORD
        self._record_at = address_of(self._record)

    def _make_batches(self) -> list[Batch]:
        """Return what runs one after the other."""
        return self._move_all(self.plan.boxes)

    def _move_all(self, boxes: tuple[Box, ...]) -> list[Batch]:
        """Return batches that move elements as they are, by lookups too."""
        kernel = Kernel(self.plan.dst.dtype.bits)
        gathered: list[Batch] = [
            self._box_batch(tile_boxes((box,)), kernel, box.lookups) for box in boxes if box.lookups
        ]
        return [*self._move([box for box in boxes if not box.lookups]), *gathered]

    def _move(self, boxes: list[Box]) -> list[Batch]:
        """Return batches that move elements of boxes without lookups as they are."""
        streams = self._machine.nearly_exceeds_cache(self._nbytes)
        by_kernel: dict[Kernel, list[ScheduledBox]] = {}
        for box in boxes:
            wide, bits = pack_elements(box, self.plan.dst.dtype.bits)
            for scheduled in tile_boxes(simplify((wide,))):
                kernel = Kernel(bits)
                if streams and not kernel.is_packed and scheduled.fills_lines(bits):
                    kernel = kernel._replace(streams=True)
                by_kernel.setdefault(kernel, []).append(scheduled)
        return [self._box_batch(tuple(own), kernel) for kernel, own in by_kernel.items()]

    @property
    def _nbytes(self) -> int:
        """Bytes of src and dst together."""
        return self._src.min_nbytes + self._dst.min_nbytes

    def __repr__(self) -> str:
        return f"<PreparedReorder of {self.plan!s}>"

    def _box_batch(
        self, boxes: tuple[ScheduledBox, ...], kernel: Kernel, lookups: tuple[Lookup, ...] = ()
    ) -> BoxBatch:
        """Return the batch of boxes of one kernel; where it streams, they fill cache lines."""
        bits = kernel.bits
        names = {f"{MICRO_KERNELS[own.choice.micro_kernel]} {bits}-bit" for own in boxes}
        self.kernels += tuple(sorted(names - {*self.kernels}))
        src_end = (self.plan.src.layout.last + 1) * self.plan.src.dtype.bits // bits
        program, workloads = encode(
            boxes, src_end, prefetches=self._machine.exceeds_core_cache(self._nbytes)
        )
        nbytes = sum(own.box.size for own in boxes) * bits // 8
        # two 4-bit elements of one byte must not fall to two threads
        shares = self._partition(workloads, nbytes, is_whole=kernel.is_packed)
        return BoxBatch(program, shares, kernel, lookups)

    def _partition(self, workloads: list[Workload], nbytes: int, *, is_whole: bool) -> Partition:
        """Share out records that write a number of bytes, or leave them to one thread."""
        return partition(workloads, nbytes, 1 if is_whole else self.threads, self._machine)

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
        if call and not call(id(src), id(dst), self._record_at):
            return
        source, src_at = self._src(src)
        target, dst_at = self._dst(dst)
        if not self._batches:
            return
        apart = dst_at - src_at
        if apart < self._src.min_nbytes and -apart < self._dst.min_nbytes:
            check_disjoint(source, self.plan.src, target, self.plan.dst)
        for batch in self._batches:
            batch.execute(src_at, dst_at)
        if self.plan.dst.extra is not None:
            sums = {mask: add(dst_at) for mask, add in self._sums.items()}
            compensate(target.reshape(-1).view(np.uint8), self.plan.dst, sums)
