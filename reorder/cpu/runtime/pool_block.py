"""The memory that a caller and the workers of the pool share: a block of int64.

It is `PoolFields`, then `ThreadFields` for the caller, which is thread 0, and for each worker.
Fields that different threads write often are in separate cache lines.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, NamedTuple

import numpy as np

from reorder.cpu.record import WORD_NBYTES, fields_in_lines, nbytes_in_lines
from reorder.cpu.target import LINE_NBYTES
from reorder.memory.buffers import address_of

__all__ = [
    "ADDRESS",
    "INSIDE_MASK",
    "JOB_NUMBER",
    "MAX_WORKERS",
    "OPEN",
    "POOL",
    "THREAD",
    "THREADS_AT",
    "THREAD_NBYTES",
    "PoolFields",
    "ThreadFields",
    "pool_words",
    "thread_words",
]

# Threads that help a caller, at most.
MAX_WORKERS = 255


class PoolFields(NamedTuple):
    """What all threads share."""

    # whether a caller uses the pool: 0 or 1
    busy: int
    # number of the job, whether it is open, and how many workers have entered it; see `OPEN`
    state: int
    # how many of the workers that entered have finished
    finished: int
    # addresses of the open job, of src and of dst
    job: int
    src_at: int
    dst_at: int
    # the highest number of a worker that may enter it
    last_worker: int
    # number of workers that were started
    started: int
    # how often a worker polls for a job before it sleeps
    spins: int
    # addresses of C functions: yield the core; sleep for some microseconds; acquire and release
    # a lock of Python
    yield_at: int
    sleep_at: int
    acquire_at: int
    release_at: int


class ThreadFields(NamedTuple):
    """The fields of one thread."""

    # how many chunks of its group were taken, by any thread
    taken: int
    # whether it sleeps, or is about to: 0 or 1
    asleep: int
    # address of the lock on which it sleeps
    lock: int


POOL = fields_in_lines(PoolFields, "busy", "state", "finished", "job", "started")
THREAD = fields_in_lines(ThreadFields, "taken", "asleep")
# Byte offset of the fields of thread 0, and the bytes of each thread.
THREADS_AT = nbytes_in_lines(POOL)
THREAD_NBYTES = nbytes_in_lines(THREAD)

# Bits of the state, lowest first: the workers that entered, whether the job is open, its number.
INSIDE_MASK, OPEN, JOB_NUMBER = (1 << 16) - 1, 1 << 16, 1 << 17


def pool_words() -> Any:
    """Return the words of `PoolFields`."""
    return _words_at(ADDRESS, THREADS_AT)


def thread_words(thread: int) -> Any:
    """Return the words of the `ThreadFields` of a thread."""
    return _words_at(ADDRESS + THREADS_AT + THREAD_NBYTES * thread, THREAD_NBYTES)


def _words_at(address: int, nbytes: int) -> Any:
    return (ctypes.c_int64 * (nbytes // WORD_NBYTES)).from_address(address)


def _allocate() -> int:
    """Return the address of a block that is never freed: workers read it until the process ends."""
    nbytes = THREADS_AT + THREAD_NBYTES * (MAX_WORKERS + 1)
    buffer = np.zeros(nbytes + LINE_NBYTES, np.uint8)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(buffer))
    return -(-address_of(buffer) // LINE_NBYTES) * LINE_NBYTES


def _write_functions() -> None:
    """Write the addresses of the functions that workers call."""
    python = ctypes.pythonapi
    if os.name == "nt":
        yields = sleeps = getattr(ctypes, "WinDLL")("kernel32").SwitchToThread  # noqa: B009 - ctypes has WinDLL on Windows only
    else:
        yields, sleeps = ctypes.CDLL(None).sched_yield, ctypes.CDLL(None).usleep
    words = pool_words()
    words[POOL.yield_at] = _function_at(yields)
    words[POOL.sleep_at] = _function_at(sleeps)
    words[POOL.acquire_at] = _function_at(python.PyThread_acquire_lock)
    words[POOL.release_at] = _function_at(python.PyThread_release_lock)


def _function_at(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


ADDRESS = _allocate()
_write_functions()
