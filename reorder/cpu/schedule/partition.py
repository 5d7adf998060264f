"""Partition of a program among threads: instructions are cut into ranges of steps.

A chunk is one or more of these ranges, of any number of instructions; a thread takes one chunk at a
time.
"""

from math import prod

import numpy as np

from memdesc.tuples import NamedTuple
from reorder.cpu.machine import Machine
from reorder.cpu.tables import Words

# The most chunks of a thread. Several are better than one: if a thread loses its core to another
# process, others take its remaining chunks.
MAX_THREAD_CHUNKS = 4
# A thread gets more than one chunk only if each has at least this many bytes.
_MIN_CHUNK_NBYTES = 1 << 18
# An instruction is cut at whole steps of a loop if each part has at least this many: then no chunk
# is more than an eighth larger than another.
_MIN_STEPS = 8
# Fewest elements of a part: calling a kernel for fewer costs as much as moving them.
_MIN_PART_SIZE = 1 << 10
# A line of dst that two threads write costs as much as reading this many lines.
_SHARED_LINE = 32


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
    # product of the extents of the outer loops whose steps are farther apart in dst than the rows
    # or columns
    coarse_steps: int = 1
    # cache lines of dst that two threads would both write if they divided the outer loops
    shared_lines: int = 0


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
    ranges: Words
    # index of the first range of each chunk, and one past the last of all
    bounds: Words
    threads: int

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self.bounds) - 1

    @property
    def workers(self) -> int:
        """Threads that help the caller, at most."""
        return min(self.chunks, self.threads) - 1


def partition(workloads: list[Workload], nbytes: int, threads: int, machine: Machine) -> Partition:
    """Partition instructions that write `nbytes` bytes among at most `threads` threads."""
    threads = max(1, min(threads, nbytes // machine.min_thread_nbytes))
    chunks = 1
    if threads > 1:
        chunks = threads * max(1, min(MAX_THREAD_CHUNKS, nbytes // threads // _MIN_CHUNK_NBYTES))
    # bytes of src and dst for each thread
    fits_own_cache = not machine.exceeds_own_cache(2 * nbytes // threads)
    ranges, bounds = partition_chunks(workloads, chunks, fits_own_cache=fits_own_cache)
    return Partition(ranges, bounds, threads)


def partition_chunks(
    workloads: list[Workload], chunks: int, *, fits_own_cache: bool = False
) -> tuple[Words, Words]:
    """Divide instructions into chunks; returns the ranges, and the bounds of the chunks.

    Each chunk takes an equal part of every instruction, in the order of dst, so that chunks share
    few lines of it: a line that two threads write moves between their caches.
    """
    ranges: list[StepRange] = []
    bounds = [0]
    shapes = [_cut_loops(workload, chunks, fits_own_cache=fits_own_cache) for workload in workloads]
    cuts = _cuts(workloads, shapes, chunks)
    for chunk in range(chunks):
        for workload, shape, stops in zip(workloads, shapes, cuts, strict=True):
            ranges += _ranges_of(workload, shape, stops[chunk], stops[chunk + 1])
        bounds.append(len(ranges))
    table = np.array(ranges, dtype=np.int64).reshape(-1, len(StepRange._fields))
    return table, np.array(bounds, dtype=np.int64)


def _cut_loops(workload: Workload, chunks: int, *, fits_own_cache: bool) -> tuple[int, int, int]:
    """Return the extents of the three-loop nest in whose order chunks take steps, outermost first.

    The three are outer loops, the grains of the inner ones, and further outer loops. The model: a
    cut within the last loops divides a line in each piece of dst that a step writes. A cut within
    the grains divides few lines, but each step around it and each row in it reads one more line of
    src, which costs much less than a line that two threads write.
    """
    outer, inner = workload.outer, workload.inner
    grains = max(1, round(inner / workload.grain))
    coarse = workload.coarse_steps
    if chunks == 1:
        return outer, 1, 1
    read_again = workload.size // (outer * inner) * min(outer // coarse, outer * grains // chunks)
    if not fits_own_cache or coarse == outer or read_again >= _SHARED_LINE * workload.shared_lines:
        return outer, grains, 1
    return coarse, grains, outer // coarse


def _cuts(
    workloads: list[Workload], shapes: list[tuple[int, int, int]], chunks: int
) -> list[list[int]]:
    """Return the steps of each instruction at which chunks begin and end.

    An instruction of many steps is cut into equal parts, so that a chunk has the same part of each:
    instructions that share lines share few of them between chunks. Instructions of few steps are
    cut as if they were one. Cuts are at the nearest whole steps.
    """
    steps = [prod(shape) for shape in shapes]
    granules = [
        _cut_granule(workload, shape, chunks)
        for workload, shape in zip(workloads, shapes, strict=True)
    ]
    is_few = [count < granule * chunks for count, granule in zip(steps, granules, strict=True)]
    size_of_few = sum(workload.size for workload, few in zip(workloads, is_few, strict=True) if few)
    cuts = []
    # elements of the instructions of few steps that were already cut
    before = 0
    for workload, count, granule, few in zip(workloads, steps, granules, is_few, strict=True):
        begin, size = (before, size_of_few) if few else (0, workload.size)
        before += workload.size if few else 0
        granule_size = workload.size * granule / count
        shares = (min(max(0, size * k / chunks - begin), workload.size) for k in range(1, chunks))
        inner = (min(round(share / granule_size) * granule, count) for share in shares)
        cuts.append([0, *inner, count])
    return cuts


def _cut_granule(workload: Workload, shape: tuple[int, int, int], chunks: int) -> int:
    """Return how many steps always stay together: whole steps of outer loops.

    If chunks would have too few of these, it is the fewest steps that make a part of
    `_MIN_PART_SIZE`.
    """
    steps = prod(shape)
    least = min(steps, -(-_MIN_PART_SIZE * steps // workload.size))
    granules = (shape[1] * shape[2], shape[2])
    return next((granule for granule in granules if steps >= _MIN_STEPS * granule * chunks), least)


def _ranges_of(
    workload: Workload, shape: tuple[int, int, int], start: int, stop: int
) -> list[StepRange]:
    """Split a flat range of steps of a three-loop nest into rectangular ranges."""
    _, grains, last = shape
    ranges: list[StepRange] = []
    while start < stop:
        around, rest = divmod(start, grains * last)
        grain, step = divmod(rest, last)
        first = around * last + step
        if rest == 0 and stop - start >= grains * last:
            count, end = (stop - start) // (grains * last), grains
            size, steps = count * grains * last, count * last
        elif step == 0 and stop - start >= last:
            count = min((stop - start) // last, grains - grain)
            end, size, steps = grain + count, count * last, last
        else:
            size = steps = min(stop - start, last - step)
            end = grain + 1
        inner = grain * workload.grain, end * workload.grain if end < grains else workload.inner
        ranges.append(StepRange(workload.instruction, first, first + steps, *inner))
        start += size
    return ranges
