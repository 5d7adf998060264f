"""Jobs joined into one: a call then runs them without Python code in between."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reorder.cpu.kernels.emit import Builder, int64, load_fields, load_int64, loop, maximum, minimum
from reorder.cpu.kernels.walk import WalkerCall, emit_call
from reorder.cpu.runtime.walkers import as_walker
from reorder.cpu.tables import WORD_NBYTES, nbytes_of
from reorder.memory.buffers import address_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from reorder.cpu.runtime.job import Job

__all__ = ["JoinedJob", "joined_walker_at"]


class _Part(NamedTuple):
    """One of the jobs: its range of the steps of all, and what its walker takes."""

    first: int
    last: int
    walker: int
    program: int
    tasks: int
    points: int
    point_count: int


class JoinedJob:
    """Jobs with fixed points as one job, whose chunks are those of all of them, in order.

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


@cache
def joined_walker_at() -> int:
    """Return the address of the compiled walker of joined jobs."""
    return as_walker("walker of joined jobs", lambda _, builder, call: _emit_joined(builder, call))


def _bounds(job: Job) -> NDArray[np.int64]:
    """Return the bounds of the chunks of a job."""
    words = ctypes.c_int64 * (job.chunks + 1)
    return np.array(words.from_address(job.bounds), np.int64)


def _emit_joined(builder: Builder, call: WalkerCall) -> None:
    """Run the part of each job that is in the range of steps of a call."""
    first_part = builder.add(call.program, int64(WORD_NBYTES))
    with loop(builder, int64(0), load_int64(builder, call.program)) as k:
        part_at = builder.add(first_part, builder.mul(k, int64(nbytes_of(_Part))))
        part = load_fields(builder, part_at, _Part)
        start, stop = (
            maximum(builder, call.begin, part.first),
            minimum(builder, call.end, part.last),
        )
        with builder.if_then(builder.icmp_signed("<", start, stop)):
            own = WalkerCall(
                call.src_at,
                call.dst_at,
                part.program,
                part.tasks,
                begin=builder.sub(start, part.first),
                end=builder.sub(stop, part.first),
                points=part.points,
                point_count=part.point_count,
            )
            emit_call(builder, part.walker, own)
