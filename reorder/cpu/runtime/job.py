"""A job: an interpreter, what it reads, and how threads share its steps."""

from collections.abc import Callable
from typing import Any

import numpy as np

from memdesc.tuples import NamedTuple
from reorder.cpu.runtime.pool_block import ADDRESS, MAX_WORKERS
from reorder.cpu.schedule.partition import Partition
from reorder.cpu.tables import Words, fields_of
from reorder.memory.buffers import address_of

# A call of src and dst: it returns None when it has run the job, and False when it did nothing.
FastCall = Callable[[Any, Any], object]


class Job(NamedTuple):
    """What an interpreter takes besides src and dst, and its chunks: a table for compiled code."""

    # address of the compiled interpreter
    interpreter: int
    # addresses of the program and of the table of ranges
    program: int
    ranges: int
    # steps of the interpreter: ranges times points
    steps: int
    # address of the table of points, and how many there are
    points: int
    point_count: int
    # address of the bounds of the chunks, which are ranges of steps, and number of chunks
    bounds: int
    chunks: int
    # the most workers of the pool that help the caller
    workers: int
    # address of the block of the pool
    pool: int = ADDRESS


JOB = fields_of(Job)
# The table of a single point, for interpreters that read no offsets from it.
_NO_POINTS = np.zeros(1, np.int64)


def make_job(
    interpreter: int, program: int, partition: Partition, points: Words = _NO_POINTS
) -> Job:
    """Return the job of a partition at one point; its arrays must outlive it."""
    return Job(
        interpreter=interpreter,
        program=program,
        ranges=address_of(partition.ranges),
        steps=len(partition.ranges),
        points=address_of(points),
        point_count=1,
        bounds=address_of(partition.bounds),
        chunks=partition.chunks,
        workers=min(partition.workers, MAX_WORKERS),
    )


def repeated_at(job: Job, points: Words) -> tuple[Job, Words]:
    """Return the job of all ranges at each of some points, and the bounds of its equal chunks."""
    steps = job.steps * len(points)
    chunks = min(job.chunks, steps)
    bounds = np.arange(chunks + 1) * steps // chunks
    return job._replace(
        steps=steps,
        points=address_of(points),
        point_count=len(points),
        bounds=address_of(bounds),
        chunks=chunks,
        workers=min(job.workers, chunks - 1),
    ), bounds
