"""Partition of a program among threads: instructions are cut into ranges of steps.

A chunk is one or more of these ranges, of any number of instructions; a thread takes one chunk at a
time.
"""

from __future__ import annotations

from math import ceil, floor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reorder.cpu.machine import Machine

# Most chunks of a thread. Several are better than one: if a thread loses its core to another
# process, others take its remaining chunks.
MAX_THREAD_CHUNKS = 4
# A thread gets more than one chunk only if each has at least this many bytes.
_MIN_CHUNK_NBYTES = 1 << 18
# Bytes that instructions write in one turn; a quarter of this was slower.
_TURN_NBYTES = 1 << 20
# An instruction is cut at whole steps of a loop if each part has at least this many: then no chunk
# is more than an eighth larger than another.
_MIN_STEPS = 8
# Fewest elements of a part: calling a kernel for fewer costs as much as moving them.
_MIN_PART_SIZE = 1 << 10
# Imbalance tolerated between chunks so that all instructions share cut points. Lines that two
# threads write cost more than that; measured on 16 cores.
_TOLERANCE = 0.05


class Workload(NamedTuple):
    """An instruction, and how it can be cut."""

    # word of the program where the instruction starts
    instruction: int
    # product of the extents of all outer loops
    outer: int
    # rows or columns of its micro-kernel; cuts between them are at multiples of `grain`
    inner: int
    grain: int
    # number of elements
    size: int

    @property
    def grains(self) -> int:
        """How many parts the inner loops can be cut into."""
        return max(1, round(self.inner / self.grain))

    @property
    def steps(self) -> int:
        """The number of steps at which it can be cut: grains of the inner loops."""
        return self.outer * self.grains


class StepRange(NamedTuple):
    """A range of the steps of an instruction; interpreters read a table of ranges."""

    # word of the program where the instruction starts
    instruction: int
    # steps of the outer loops, taken as one loop: the first, and one past the last
    first: int
    last: int
    # rows or columns of the micro-kernel: the first, and one past the last
    inner_first: int
    inner_last: int


class Partition(NamedTuple):
    """The ranges of all instructions, and how threads share them."""

    # a table of `StepRange`
    ranges: NDArray[np.int64]
    # index of the first range of each chunk, and one past the last of all
    bounds: NDArray[np.int64]
    threads: int

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self.bounds) - 1

    @property
    def workers(self) -> int:
        """Threads that help the caller, at most."""
        return min(self.chunks, self.threads) - 1


def partition(
    workloads: list[Workload],
    nbytes: int,
    threads: int,
    machine: Machine,
    *,
    takes_turns: bool = False,
) -> Partition:
    """Partition instructions that write `nbytes` bytes among at most `threads` threads.

    With `takes_turns` a chunk runs a part of each instruction, then the next part of each: lines of
    src that several of them read are read once.
    """
    threads = max(1, min(threads, nbytes // machine.min_thread_nbytes))
    chunks = 1
    if threads > 1:
        chunks = threads * max(1, min(MAX_THREAD_CHUNKS, nbytes // threads // _MIN_CHUNK_NBYTES))
    turns = 1
    if takes_turns and len(workloads) > 1:
        turns = max(1, nbytes // chunks // _TURN_NBYTES)
    ranges, bounds = partition_chunks(workloads, chunks * turns)
    return Partition(ranges, bounds[::turns].copy(), threads)


def partition_chunks(
    workloads: list[Workload], chunks: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide instructions into chunks; returns the ranges, and the bounds of the chunks.

    Each chunk takes an equal part of every instruction, in the order of dst, so that chunks share
    few lines of it: a line that two threads write moves between their caches.
    """
    ranges: list[StepRange] = []
    bounds = [0]
    cuts = _cuts(workloads, chunks)
    for chunk in range(chunks):
        for workload, stops in zip(workloads, cuts, strict=True):
            ranges += _ranges_of(workload, stops[chunk], stops[chunk + 1])
        bounds.append(len(ranges))
    table = np.array(ranges, dtype=np.int64).reshape(-1, len(StepRange._fields))
    return table, np.array(bounds, dtype=np.int64)


def _cuts(workloads: list[Workload], chunks: int) -> list[list[int]]:
    """Return the steps of each instruction at which chunks begin and end.

    An instruction of many steps is cut into equal parts, so that a chunk has the same part of each:
    instructions that share lines share few of them between chunks. Instructions of few steps are
    cut as if they were one. Whole steps are rounded up or down so that chunks are equal.
    """
    granules = [_cut_granule(workload, chunks) for workload in workloads]
    counts = [
        workload.steps / granule for workload, granule in zip(workloads, granules, strict=True)
    ]
    sizes = [workload.size for workload in workloads]
    tolerance = sum(sizes) / chunks * _TOLERANCE
    few = sum(size for size, count in zip(sizes, counts, strict=True) if count < chunks)
    # elements that the chunks before a cut have in excess of their share
    beyond = [0.0] * (chunks + 1)
    cuts = [[0] for _ in workloads]
    # elements of the instructions of few steps that were already cut
    before = 0
    # instructions with the largest granules first: smaller ones even out what these leave
    for k in sorted(range(len(workloads)), key=lambda i: -sizes[i] / counts[i]):
        begin, size = (before, few) if counts[k] < chunks else (0, sizes[k])
        before += sizes[k] if counts[k] < chunks else 0
        each = sizes[k] / counts[k]
        for chunk in range(1, chunks):
            exact = min(max(0, size * chunk / chunks - begin), sizes[k]) / each
            error = beyond[chunk] if abs(beyond[chunk]) > tolerance else 0
            count = min(max(floor(exact), round(exact - error / each)), ceil(exact))
            cuts[k].append(max(cuts[k][-1], min(count * granules[k], workloads[k].steps)))
            beyond[chunk] += (count - exact) * each
        cuts[k].append(workloads[k].steps)
    return cuts


def _cut_granule(workload: Workload, chunks: int) -> int:
    """Return how many steps always stay together: whole steps of the outer loops.

    If chunks have too few of these, it is the fewest steps that make a part of `_MIN_PART_SIZE`.
    """
    steps = workload.steps
    least = min(steps, -(-_MIN_PART_SIZE * steps // workload.size))
    granules = (workload.grains, 1)
    return next((granule for granule in granules if steps >= _MIN_STEPS * granule * chunks), least)


def _ranges_of(workload: Workload, start: int, stop: int) -> list[StepRange]:
    """Split a range of steps into rectangular ranges of outer and inner loops."""
    grains, grain = workload.grains, workload.grain
    ranges: list[StepRange] = []
    while start < stop:
        first, begin = divmod(start, grains)
        count, end = 1, min(grains, begin + stop - start)
        if begin == 0 and end == grains:
            count = (stop - start) // grains
        inner = begin * grain, end * grain if end < grains else workload.inner
        ranges.append(StepRange(workload.instruction, first, first + count, *inner))
        start = (first + count - 1) * grains + end
    return ranges


class JobRange(NamedTuple):
    """One of several joined jobs: its range of the steps of all, and what its interpreter takes."""

    first: int
    last: int
    interpreter: int
    program: int
    ranges: int
    points: int
    point_count: int
