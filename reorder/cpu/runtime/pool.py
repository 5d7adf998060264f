"""Threads of our own that wait in compiled code: a job reaches them in less than a microsecond.

The layers of numba wake their threads through a scheduler, which takes longer than many a reorder.
A worker looks for jobs for a moment after each one, so that calls in a row find it
awake; then it sleeps, in compiled code too, since waking up must not wait for the GIL. Who calls works as well, and
waits only for workers that have begun: one that wakes late, or has lost its core, finds nothing left to do.

All share a block of int64. A worker enters a job by exchanging the state that it saw, which has the
number of the job, for one with a worker more: so it enters no other job than that, and none
that is closed. What different threads write often stands in cache lines of its own. The parts of
a job fall to as many groups as there are threads. Each thread begins with its own group, since its caches
hold what that touched in the call before, and goes on with those of the others. Whoever enters wakes two others.
"""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import contextmanager, suppress
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numba
import numpy as np
from numba.core.compiler_lock import global_compiler_lock

from reorder.cpu.runtime.intrinsics import (
    add_shared,
    call,
    call_c,
    exchange_shared,
    load_int,
    load_shared,
    pause,
    store_int,
    store_shared,
)
from reorder.cpu.runtime.jit import compile_callback, inner
from reorder.cpu.target import LINE_NBYTES
from reorder.memory.buffers import address_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ADDRESS", "JOB_SIZE", "MAX_WORKERS", "Job", "forget", "has_workers", "run", "share"]


class Job(NamedTuple):
    """A table of what a walker takes behind src and dst, and how its tasks are shared.

    These are the address of the walker, program, tasks, how many, places, how many; the bounds of the
    parts, how many, for how many workers; and `ADDRESS`.
    """

    kernel: int
    program: int
    tasks: int
    total: int
    places: int
    points: int
    bounds: int
    parts: int
    workers: int
    block: int


JOB_SIZE = len(Job._fields)
_KERNEL, _PROGRAM, _TASKS, _TOTAL, _PLACES, _COUNT, _BOUNDS, _PARTS, _WORKERS, _BLOCK = range(
    JOB_SIZE
)

# Words of the block: whether a caller has it; the state; how many workers have left; the job, src, dst, and for how many
# workers; how many there are, how often they look, and functions of the system; for each thread the
# next part of its group, whether it sleeps, and the lock that it sleeps on.
_BUSY, _STATE, _LEFT, _JOB, _LIMIT, _THERE, _LOOKS, _SYSTEM, _TURNS, _ASLEEP, _LOCK = (
    0,
    8,
    16,
    24,
    27,
    32,
    33,
    34,
    40,
    48,
    49,
)
_EACH = 16
MAX_WORKERS = 255

# The functions of the system; a lock is one of Python's.
_YIELD, _NAP, _ACQUIRE, _RELEASE = range(_SYSTEM, _SYSTEM + 4)

# The state: workers inside, whether the job is open, and its number above that.
_INSIDE, _OPEN, _NUMBER = (1 << 16) - 1, 1 << 16, 1 << 17

# Walkers of tiles have 83 KiB of scratch on the stack.
_STACK_NBYTES = 1 << 20

# How long a worker looks for a job before it sleeps, and how many looks are timed to know how long one takes.
_AWAKE_SECONDS, _TRIAL = 1e-4, 1000
# How many looks until one lets others have the core, and how long one sleeps between looks in the end.
_LOOKS_BETWEEN, _NAP_MICROSECONDS = 16, 20


@inner
def _take_parts(block: int, me: int) -> None:
    """Wake two others, and run parts of the job until none is left, those of the own group first."""
    for k in range(2 * me + 1, min(2 * me + 2, load_int(block, _LIMIT)) + 1):
        if load_int(block, _ASLEEP + _EACH * k) and exchange_shared(
            block, _ASLEEP + _EACH * k, 1, 0
        ):
            call_c(load_int(block, _RELEASE), load_int(block, _LOCK + _EACH * k), 0)
    job, src_at, dst_at = (
        load_int(block, _JOB),
        load_int(block, _JOB + 1),
        load_int(block, _JOB + 2),
    )
    kernel, program, tasks, bounds = (
        load_int(job, _KERNEL),
        load_int(job, _PROGRAM),
        load_int(job, _TASKS),
        load_int(job, _BOUNDS),
    )
    places, count, parts, groups = (
        load_int(job, _PLACES),
        load_int(job, _COUNT),
        load_int(job, _PARTS),
        load_int(job, _WORKERS) + 1,
    )
    for step in range(groups):
        group = (me + step) % groups
        turn = block + 8 * (_TURNS + _EACH * group)
        first, last = group * parts // groups, (group + 1) * parts // groups
        part = first + add_shared(turn, 0, 1)
        while part < last:
            call(
                kernel,
                src_at,
                dst_at,
                program,
                tasks,
                load_int(bounds, part),
                load_int(bounds, part + 1),
                places,
                count,
            )
            part = first + add_shared(turn, 0, 1)


@inner
def _relax(block: int, left: int) -> None:
    """Rest between two looks; who is looked for may need this core, the more so the longer it takes."""
    if left <= 0:
        call_c(load_int(block, _NAP), _NAP_MICROSECONDS, 0)
    elif left % _LOOKS_BETWEEN:
        pause()
    else:
        call_c(load_int(block, _YIELD), 0, 0)


@inner
def share(src_at: int, dst_at: int, job: int) -> None:
    """Run a job on this thread and its workers, or on this one alone if they are busy."""
    block = load_int(job, _BLOCK)
    workers = load_int(job, _WORKERS)
    if workers == 0 or not exchange_shared(block, _BUSY, 0, 1):
        call(
            load_int(job, _KERNEL),
            src_at,
            dst_at,
            load_int(job, _PROGRAM),
            load_int(job, _TASKS),
            0,
            load_int(job, _TOTAL),
            load_int(job, _PLACES),
            load_int(job, _COUNT),
        )
        return
    store_int(block, _JOB, job)
    store_int(block, _JOB + 1, src_at)
    store_int(block, _JOB + 2, dst_at)
    store_int(block, _LIMIT, workers)
    store_int(block, _LEFT, 0)
    for group in range(workers + 1):
        store_int(block, _TURNS + _EACH * group, 0)
    store_shared(block, _STATE, (load_int(block, _STATE) // _NUMBER + 1) * _NUMBER + _OPEN)
    _take_parts(block, 0)
    inside = add_shared(block, _STATE, -_OPEN) & _INSIDE
    left = load_int(block, _LOOKS)
    while load_shared(block, _LEFT) < inside:
        left -= 1
        _relax(block, left)
    store_shared(block, _BUSY, 0)


@inner
def has_workers(job: int) -> bool:
    """Whether all workers that a job may have were started."""
    return bool(load_int(load_int(job, _BLOCK), _THERE) >= load_int(job, _WORKERS))


def _serve(block: int, me: int, looks: int) -> int:
    """Help with jobs, and sleep where so many looks in a row found none; as worker 0 return then."""
    done = -1
    left = looks
    while True:
        left -= 1
        state = load_shared(block, _STATE)
        if state & _OPEN and state // _NUMBER != done and me <= load_int(block, _LIMIT):
            if exchange_shared(block, _STATE, state, state + 1):
                done = state // _NUMBER
                _take_parts(block, me)
                add_shared(block, _LEFT, 1)
                left = looks
        elif left > 0:
            _relax(block, left)
        elif me == 0:
            return 0
        else:
            store_shared(block, _ASLEEP + _EACH * me, 1)
            call_c(load_int(block, _ACQUIRE), load_int(block, _LOCK + _EACH * me), 1)
            left = looks


def _share(src_at: int, dst_at: int, job: int) -> int:
    share(src_at, dst_at, job)
    return 0


@cache
def _compiled(function: Any, name: str) -> Any:
    """Return a function of three numbers as C calls it, and what owns its code."""
    with global_compiler_lock:
        compiled = compile_callback(function, numba.int64(*[numba.int64] * 3), name)
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)(compiled.address), compiled


def _make_block() -> Any:
    """Return the block, whose memory is never freed: workers look at it until the process is gone."""
    words = _TURNS + _EACH * (MAX_WORKERS + 1)
    room = np.zeros(words + LINE_NBYTES // 8, np.int64)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(room))
    block = (ctypes.c_int64 * words).from_address(-(-address_of(room) // LINE_NBYTES) * LINE_NBYTES)
    python = ctypes.pythonapi
    if os.name == "nt":
        yields = naps = getattr(ctypes, "WinDLL")("kernel32").SwitchToThread  # noqa: B009 - elsewhere there is none
    else:
        yields, naps = ctypes.CDLL(None).sched_yield, ctypes.CDLL(None).usleep
    block[_YIELD : _RELEASE + 1] = [
        _at(own)
        for own in (yields, naps, python.PyThread_acquire_lock, python.PyThread_release_lock)
    ]
    return block


def _at(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


_block = _make_block()
ADDRESS: int = ctypes.addressof(_block)


class _State:
    # whether somebody starts workers
    starting = threading.Lock()


def run(src_at: int, dst_at: int, job: Job) -> None:
    """Run a job; its workers are started if need be."""
    starting = _State.starting
    if job.workers > _block[_THERE] and starting.acquire(blocking=False):
        try:
            _start(min(job.workers, MAX_WORKERS), starting)
        finally:
            starting.release()
    table = (ctypes.c_int64 * JOB_SIZE)(*job)
    call_it, _ = _compiled(_share, "thread pool: job")
    call_it(src_at, dst_at, ctypes.addressof(table))


def _start(workers: int, starting: Any) -> None:
    serve, _ = _compiled(_serve, "thread pool: worker")
    if not _block[_LOOKS]:
        start = perf_counter()
        serve(ADDRESS, 0, _TRIAL)
        _block[_LOOKS] = max(1, int(_TRIAL * _AWAKE_SECONDS / max(perf_counter() - start, 1e-9)))
    make = ctypes.pythonapi.PyThread_allocate_lock
    make.restype = ctypes.c_void_p
    with (
        suppress(RuntimeError),
        _enough_stack(),
    ):  # the interpreter shuts down, or the system gives no thread: less help
        while _block[_THERE] < workers:
            me = _block[_THERE] + 1
            lock = make()
            ctypes.pythonapi.PyThread_acquire_lock(ctypes.c_void_p(lock), 1)
            _block[_LOCK + _EACH * me] = lock
            threading.Thread(
                target=serve, args=(ADDRESS, me, _block[_LOOKS]), name="reorder", daemon=True
            ).start()
            if starting is not _State.starting:
                return  # a signal handler has forked, and this is the child: the thread is the parent's
            _block[_THERE] = me


@contextmanager
def _enough_stack() -> Iterator[None]:
    """Give threads the stack that walkers need, where the process asks for less."""
    size = threading.stack_size()
    if 0 < size < _STACK_NBYTES:
        threading.stack_size(_STACK_NBYTES)
    try:
        yield
    finally:
        threading.stack_size(size)


def forget() -> None:
    """Begin anew in a forked child, which has no workers."""
    _State.starting = threading.Lock()
    _block[_BUSY] = _block[_STATE] = _block[_LIMIT] = _block[_THERE] = 0
    for k in range(MAX_WORKERS + 1):
        _block[_ASLEEP + _EACH * k] = 0
