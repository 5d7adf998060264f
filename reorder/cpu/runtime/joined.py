"""Jobs that are joined to one: a call then runs them without Python code between them."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reorder.cpu.record import WORD_NBYTES, fields_of, nbytes_of
from reorder.cpu.runtime.intrinsics import WALKER, call_walker, load_int
from reorder.cpu.runtime.jit import compile_callback
from reorder.memory.buffers import address_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from reorder.cpu.runtime.job import Job

__all__ = ["JoinedJob", "joined_walker_at"]


class _Part(NamedTuple):
    """One of the jobs: a range of the steps of all, and what its walker takes."""

    first: int
    last: int
    walker: int
    program: int
    tasks: int
    points: int
    point_count: int


_PART, _PART_NBYTES = fields_of(_Part), nbytes_of(_Part)


class JoinedJob:
    """Jobs with fixed points as one job, whose chunks are those of all, one job after the other.

    Threads run them at once, so no job may read what another one writes, and no two may write
    elements of one byte. Without workers the caller runs the chunks in their order.
    The arrays of the jobs must outlive it. The field `walker` of `job` is 0 until the first call
    that needs it, since compiling it takes time: then it is `joined_walker_at`.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        starts = np.cumsum([0, *(job.steps for job in jobs)]).tolist()
        parts = [
            _Part(
                first=start,
                last=start + job.steps,
                walker=job.walker,
                program=job.program,
                tasks=job.tasks,
                points=job.points,
                point_count=job.point_count,
            )
            for start, job in zip(starts[:-1], jobs, strict=True)
        ]
        bounds = [_bounds(job)[:-1] + start for start, job in zip(starts[:-1], jobs, strict=True)]
        # the job has addresses of these arrays
        self._program = np.array([len(parts), *(word for part in parts for word in part)], np.int64)
        self._bounds = np.array([*np.concatenate(bounds), starts[-1]], np.int64)
        self.job = jobs[0]._replace(
            walker=0,
            program=address_of(self._program),
            steps=starts[-1],
            bounds=address_of(self._bounds),
            chunks=len(self._bounds) - 1,
            workers=max(job.workers for job in jobs),
        )


def joined_walker_at() -> int:
    """Return the address of the compiled walker of joined jobs."""
    return int(compile_callback(_walk, WALKER, "walker of joined jobs").address)


def _bounds(job: Job) -> NDArray[np.int64]:
    """Return the bounds of the chunks of a job."""
    words = ctypes.c_int64 * (job.chunks + 1)
    return np.array(words.from_address(job.bounds), np.int64)


def _walk(
    src_at: int,
    dst_at: int,
    program: int,
    _tasks: int,
    begin: int,
    end: int,
    _points: int,
    _point_count: int,
) -> None:
    for k in range(load_int(program, 0)):
        part = program + WORD_NBYTES + _PART_NBYTES * k
        first, last = load_int(part, _PART.first), load_int(part, _PART.last)
        # numba has `max` and `min` of integers only where it compiles
        start = first if begin < first else begin  # noqa: FURB136 - see above
        stop = last if end > last else end  # noqa: FURB136 - likewise
        if start < stop:
            call_walker(
                load_int(part, _PART.walker),
                (
                    src_at,
                    dst_at,
                    load_int(part, _PART.program),
                    load_int(part, _PART.tasks),
                    start - first,
                    stop - first,
                    load_int(part, _PART.points),
                    load_int(part, _PART.point_count),
                ),
            )
