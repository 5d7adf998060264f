"""Jobs, and the memory that a caller and the workers of the pool share.

A job is an interpreter, what it reads, and how threads share its steps. The memory is a block of
int64: `PoolFields`, then `ThreadFields` for the caller, which is thread 0, and for each worker.
Fields that different threads write often are in separate cache lines.

The comments of the fields say what orders writes and reads, in C11's terms. `state` publishes a
job: the caller writes the fields of the job, then stores `state` (release); a worker loads it
(acquire), and enters by an exchange of its own `turn`. The caller ends the job by an exchange of
the `turn` of each worker that has not entered, so whatever a worker reads after entering belongs to
this job. `turn` publishes the results: a worker stores it after its last write, and the caller
loads it (acquire). A caller that takes `busy` sees what the caller before it had written.
tests/unit/reorder/cpu/runtime/test_memory_order.py runs the functions of worker.py in every order
that this allows.

All counters contain the number of their job, so they need no reset. A reset would take the lines of
all workers from their caches before a job could begin.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from memdesc.tuples import NamedTuple
from reorder.cpu.machine import SHARED_NBYTES
from reorder.cpu.runtime.intrinsics import store_shared
from reorder.cpu.runtime.jit import c_function
from reorder.cpu.schedule.partition import Partition
from reorder.cpu.tables import WORD_NBYTES, Words, fields_in_lines, fields_of, nbytes_in_lines
from reorder.memory.buffers import address_of
from reorder.system import system_function

# Threads that help a caller, at most.
MAX_WORKERS = 255


class PoolFields(NamedTuple):
    """What all threads share."""

    # whether a caller uses the pool: 0 or 1. An exchange takes it, a release store frees it
    busy: int
    # number of the job, and how many workers may enter it; see `JOB_UNIT`. Stored with release,
    # loaded with acquire
    state: int
    # addresses of the open job, of src and of dst: plain, written before `state` is stored, and
    # read by threads that have entered
    job: int
    src_at: int
    dst_at: int
    # number of the last job with threads that were late, whose chunks others take; chunks that
    # nobody else takes are run by the caller
    late: int
    # number of workers that were started: published by Python, loaded with acquire
    started: int
    # how often a worker polls for a job before it sleeps
    spins: int
    # addresses of C functions: yield the core; wait some microseconds for a lock of Python, which
    # is how a thread sleeps on every system, and a lock that is never free; acquire and release a
    # lock. They are written before any thread is started
    yield_at: int
    sleep_at: int
    never_free: int
    acquire_at: int
    release_at: int
    # addresses of functions of an OpenMP runtime: GOMP_parallel, or 0, published by Python after
    # the others and loaded with acquire; omp_get_thread_num, omp_in_parallel; and of the compiled
    # function that each thread of a region runs
    region_at: int
    number_at: int
    inside_at: int
    enter_at: int
    # address of the compiled function that shares a job, or 0: published by Python, loaded with
    # acquire
    share_at: int


class ThreadFields(NamedTuple):
    """The fields of one thread."""

    # how many chunks of its group were taken, by any thread, and of which job; see `TAKEN_UNIT`.
    # Changed by exchanges, which give each chunk to one thread
    taken: int
    # for a worker, twice the number of its last job, plus 1 while it is inside: the worker enters
    # and the caller ends the job by an exchange; a worker that leaves stores it with release, and
    # the caller loads it with acquire
    turn: int
    # whether it sleeps, or is about to: 0 or 1. A thread that wakes the worker clears it by an
    # exchange. A thread that reads it too early does not wake it, and others do the worker's part
    asleep: int
    # address of the lock on which it sleeps: written before the thread starts, and so before the
    # thread stores `asleep`
    lock: int


POOL = fields_in_lines(PoolFields, "busy", "state", "started")
THREAD = fields_in_lines(ThreadFields, "taken", "turn", "asleep")
# Byte offset of the fields of thread 0, and the bytes of each thread.
THREADS_AT = nbytes_in_lines(POOL)
THREAD_NBYTES = nbytes_in_lines(THREAD)
_NBYTES = THREADS_AT + THREAD_NBYTES * (MAX_WORKERS + 1)

# The low half of a word: what a function that returns a C int has returned.
INT_MASK = (1 << 32) - 1
# A state is the number of a job times this, plus the workers that may enter it.
JOB_UNIT = 1 << 16
# A counter of chunks is the number of a job times this, plus those that were taken. A group has
# fewer: some chunks for each batch of a reorder.
TAKEN_UNIT = 1 << 20


def pool_words() -> Any:
    """Return the words of `PoolFields`."""
    return _words_at(ADDRESS, THREADS_AT)


def thread_words(thread: int) -> Any:
    """Return the words of the `ThreadFields` of a thread."""
    return _words_at(ADDRESS + THREADS_AT + THREAD_NBYTES * thread, THREAD_NBYTES)


def _words_at(address: int, nbytes: int) -> Any:
    return (ctypes.c_int64 * (nbytes // WORD_NBYTES)).from_address(address)


def _allocate_block() -> int:
    """Return the address of a block that is never freed: workers read it until the process ends."""
    buffer = np.zeros(_NBYTES + SHARED_NBYTES, np.uint8)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(buffer))
    return -(-address_of(buffer) // SHARED_NBYTES) * SHARED_NBYTES


def write_functions(words: Any) -> None:
    """Write the addresses of the functions that workers call to the words of a block."""
    python = ctypes.pythonapi
    # a system that cannot yield a core gets a function that does nothing; its threads sleep sooner
    words[POOL.yield_at] = function_at(system_function("sched_yield") or python.Py_IsInitialized)
    words[POOL.sleep_at] = function_at(python.PyThread_acquire_lock_timed)
    words[POOL.never_free] = taken_lock()
    words[POOL.acquire_at] = function_at(python.PyThread_acquire_lock)
    words[POOL.release_at] = function_at(python.PyThread_release_lock)


def taken_lock() -> int:
    """Return a new lock of Python that this thread has acquired."""
    make_lock = ctypes.pythonapi.PyThread_allocate_lock
    make_lock.restype = ctypes.c_void_p
    lock: int = make_lock()
    ctypes.pythonapi.PyThread_acquire_lock(ctypes.c_void_p(lock), 1)
    return lock


def function_at(function: Any) -> int:
    """Return the address of a function of ctypes."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def publish(block: int, field: int, value: int) -> None:
    """Write a word that leads to others after all earlier writes (release).

    Python writes by plain stores, which a processor with a weak memory order may show earlier.
    """
    c_function(_store, "thread pool: publish")(block, field, value)


def _store(block: int, field: int, value: int) -> None:
    store_shared(block, field, value)


ADDRESS = _allocate_block()
write_functions(pool_words())

# A call with src and dst: it returns None if it has run the job, and False if it did nothing.
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
