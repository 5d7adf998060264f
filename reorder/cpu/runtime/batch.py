"""Batches of a plan: boxes scheduled, encoded, partitioned among threads, and run in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from reorder.cpu.runtime.job import Job, make_job
from reorder.cpu.runtime.pool import run_job
from reorder.cpu.runtime.walkers import walker_at
from reorder.cpu.schedule.cache_tiling import tile_boxes
from reorder.cpu.schedule.partition import partition
from reorder.cpu.schedule.program import Point, each_points, encode, points_in_bytes
from reorder.cpu.schedule.select import MICRO_KERNELS, Kernel, pack_for_kernels
from reorder.cpu.schedule.streaming import stream_box
from reorder.cpu.target import BYTE_BITS, LINE_NBYTES
from reorder.memory.buffers import address_of
from reorder.plan.passes import join_zeros

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from reorder.cpu.schedule.partition import Partition, Workload
    from reorder.cpu.schedule.scheduled_box import ScheduledBox
    from reorder.cpu.target import Machine
    from reorder.plan.nodes import Box, IndirectLoop
    from reorder.plan.plan import ReorderPlan

__all__ = ["Batch", "BatchBuilder", "BoxBatch"]

_ORIGIN = np.array([Point(0, 0)], np.int64)


class Batch(Protocol):
    """Boxes that run together."""

    @property
    def direct_job(self) -> Job | None:
        """The job, if every call runs the same one; else None."""

    def execute(self, src_at: int, dst_at: int) -> None:
        """Run the boxes on src and dst at two addresses."""


class BoxBatch:
    """Boxes of one kernel that are placed at the same points."""

    __slots__ = ("_indirect", "_jobs", "_kernel", "_partition", "_program")

    def __init__(
        self,
        program: NDArray[np.int64],
        partition: Partition,
        kernel: Kernel,
        indirect: tuple[IndirectLoop, ...] = (),
    ) -> None:
        # jobs have addresses of these arrays
        self._program, self._partition = program, partition
        self._kernel, self._indirect = kernel, indirect
        # jobs at the origin
        self._jobs: dict[Kernel, Job] = {}

    @property
    def direct_job(self) -> Job | None:
        """The job, if every call runs the same one; else None."""
        if self._indirect or self._kernel.streams:
            return None
        return self._job(self._kernel)

    def execute(self, src_at: int, dst_at: int) -> None:
        """Run the boxes on src and dst at two addresses."""
        if not self._indirect:
            kernel = self._kernel
            # non-temporal stores need aligned cache lines
            if kernel.streams and dst_at % LINE_NBYTES:
                kernel = kernel._replace(streams=False)
            run_job(src_at, dst_at, self._job(kernel))
            return
        for points in each_points(self._indirect):
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


class BatchBuilder:
    """Makes the batches that move elements, and partitions those that convert.

    Parameters
    ----------
    plan : ReorderPlan
        The plan whose boxes are run.
    threads : int
        The largest number of threads.
    machine : Machine
        The machine to schedule for.
    """

    def __init__(self, plan: ReorderPlan, threads: int, machine: Machine) -> None:
        self.plan = plan
        self.boxes = join_zeros(plan.boxes)
        self.threads = threads
        self.machine = machine
        # bytes of src and dst together
        self.nbytes = plan.src.min_nbytes + plan.dst.min_nbytes
        # whether they exceed the caches
        self.exceeds = machine.exceeds_cache(self.nbytes)
        # whether moves write whole lines of dst by non-temporal stores
        self.streams = machine.streams(self.nbytes, threads)
        # names of the micro-kernels, with the width of their elements, and of tiles
        self.kernels: tuple[str, ...] = ()

    def move_all(self, boxes: Iterable[Box]) -> list[Batch]:
        """Return batches that move boxes, those without indirect loops first."""
        kernel = Kernel(self.plan.dst.dtype.bits)
        boxes = list(boxes)
        batches = self.move(box for box in boxes if not box.indirect)
        for box in boxes:
            if box.indirect:
                batches.append(
                    self.box_batch(tile_boxes((box,), kernel.bits), kernel, box.indirect)
                )
        return batches

    def move(self, boxes: Iterable[Box]) -> list[Batch]:
        """Return batches that move boxes without indirect loops, one for each kernel."""
        by_kernel: dict[Kernel, list[ScheduledBox]] = {}
        for box in boxes:
            packed, bits, element_stride = pack_for_kernels(box, self.plan.dst.dtype.bits)
            for scheduled in self._schedule(packed, bits, element_stride):
                kernel = Kernel(bits, streams=bits >= BYTE_BITS and self._streams(scheduled, bits))
                by_kernel.setdefault(kernel, []).append(scheduled)
        return [self.box_batch(tuple(part), kernel) for kernel, part in by_kernel.items()]

    def _schedule(self, box: Box, bits: int, element_stride: int) -> tuple[ScheduledBox, ...]:
        """Cut and order a box for the caches, or for non-temporal stores."""
        streamed = stream_box(box, bits, element_stride) if self.streams else ()
        return streamed or tile_boxes((box,), bits, element_stride, sweeps_lines=not self.exceeds)

    def _streams(self, scheduled: ScheduledBox, bits: int) -> bool:
        """Whether a box is written by non-temporal stores."""
        return self.streams and scheduled.fills_lines(bits)

    def box_batch(
        self,
        boxes: tuple[ScheduledBox, ...],
        kernel: Kernel,
        indirect: tuple[IndirectLoop, ...] = (),
    ) -> BoxBatch:
        """Return the batch of boxes of one kernel; if it streams, they must fill cache lines."""
        bits = kernel.bits
        names = {f"{MICRO_KERNELS[box.choice.micro_kernel]} {bits}-bit" for box in boxes}
        self.kernels += tuple(sorted(names - {*self.kernels}))
        src_end = (self.plan.src.layout.last + 1) * self.plan.src.dtype.bits // BYTE_BITS
        program, workloads = encode(boxes, bits, src_end)
        nbytes = sum(scheduled.written_nbytes(bits) for scheduled in boxes)
        # two threads must not write the two 4-bit elements of one byte
        shares = self.partition(workloads, nbytes, is_whole=kernel.is_packed)
        return BoxBatch(program, shares, kernel, indirect)

    def partition(self, workloads: list[Workload], nbytes: int, *, is_whole: bool) -> Partition:
        """Partition instructions that write some bytes; `is_whole` gives one thread all."""
        return partition(workloads, nbytes, 1 if is_whole else self.threads, self.machine)
