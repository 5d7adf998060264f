"""Partition of a program among threads: records are cut into tasks, which make up chunks."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reorder.cpu.schedule.scheduled_box import MAX_CALL_SIZE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reorder.cpu.target import Machine

__all__ = ["MAX_THREAD_CHUNKS", "Partition", "Task", "Workload", "partition", "partition_chunks"]

# Most chunks of a thread. Several are better than one: if a thread loses its core to another
# process, others take its remaining chunks.
MAX_THREAD_CHUNKS = 4
# A thread gets more than one chunk only if each has at least this many bytes.
_MIN_CHUNK_NBYTES = 1 << 18
# Upper limit of the rounds in which records are interleaved.
_MAX_ROUNDS = 1024


class Workload(NamedTuple):
    """A record, and how it can be cut."""

    # word of the program where the record starts
    record: int
    # product of the extents of all outer loops
    outer: int
    # rows or columns of its micro-kernel; cuts between them are at multiples of `grain`
    inner: int
    grain: int
    # number of elements
    size: int


class Task(NamedTuple):
    """A range of the steps of a record; a walker reads a table of these."""

    # word of the program where the record starts
    record: int
    # steps of the outer loops, taken as one loop: the first, and one past the last
    first: int
    last: int
    # rows or columns of the micro-kernel: the first, and one past the last
    inner_first: int
    inner_last: int


class Partition(NamedTuple):
    """Tasks, and how threads share them."""

    # a table of `Task`
    tasks: NDArray[np.int64]
    # the first task of each chunk, and one past the last of all
    bounds: NDArray[np.int64]
    threads: int

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self.bounds) - 1


def partition(workloads: list[Workload], nbytes: int, threads: int, machine: Machine) -> Partition:
    """Partition records that write `nbytes` bytes among at most `threads` threads."""
    threads = max(1, min(threads, nbytes // machine.min_thread_nbytes))
    chunks = 1
    if threads > 1:
        chunks = threads * max(1, min(MAX_THREAD_CHUNKS, nbytes // threads // _MIN_CHUNK_NBYTES))
    tasks, bounds = partition_chunks(workloads, chunks)
    return Partition(tasks, bounds, threads)


def partition_chunks(
    workloads: list[Workload], chunks: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide records into a number of chunks; returns the tasks, and the bounds of the chunks.

    Records are cut along their outer loops, taken as one loop, or along the rows or columns of
    their micro-kernel if the outer loops have fewer steps than there are chunks. Large records are
    interleaved, some steps of each in every round, since they read the same cache lines.
    """
    total = sum(workload.size for workload in workloads)
    rounds = 1
    if len(workloads) > 1:
        rounds = max(1, min(_MAX_ROUNDS, total // (MAX_CALL_SIZE * len(workloads))))
    tasks: list[Task] = []
    bounds = [0]
    done = 0
    for number, workload in product(range(rounds), workloads):
        grains = -(-workload.inner // workload.grain)
        is_outer = workload.outer >= chunks or workload.outer >= grains
        extent = workload.outer if is_outer else grains
        first, end = (extent * step // rounds for step in (number, number + 1))
        while first < end:
            # how much the chunk still takes, in elements, then in steps
            space = -(-total * len(bounds) // chunks) - done
            count = end - first
            if len(bounds) < chunks:
                count = min(count, max(1, -(-space * extent // workload.size)))
            tasks.append(_task(workload, first, first + count, is_outer=is_outer))
            first += count
            done += count * workload.size // extent
            if done >= -(-total * len(bounds) // chunks) and len(bounds) < chunks:
                bounds.append(len(tasks))
    bounds += [len(tasks)] * (chunks + 1 - len(bounds))
    table = np.array(tasks, dtype=np.int64).reshape(-1, len(Task._fields))
    return table, np.array(bounds, dtype=np.int64)


def _task(workload: Workload, first: int, last: int, *, is_outer: bool) -> Task:
    """Return the task of some steps of the outer loops, or of some grains of the inner ones."""
    if is_outer:
        return Task(workload.record, first, last, 0, workload.inner)
    inner = first * workload.grain, min(last * workload.grain, workload.inner)
    return Task(workload.record, 0, workload.outer, *inner)
