"""A pool of threads that wait in compiled code: a job reaches them in less than a microsecond.

A worker spins for a short time after each job, so that successive calls find it awake.
Then it sleeps, also in compiled code, since waking must not wait for the GIL. The caller works
too, and waits only for workers that have entered the job: a worker that wakes late, or has lost
its core, finds no chunk left.

With `MEMDESC_OPENMP=1`, users ask for parallel regions of an OpenMP runtime. After a parallel
region of another library, the runtime's threads spin for some milliseconds on all cores. Meanwhile
a job on our threads has to share the cores with them, while a job on theirs starts at once. Once
they sleep, they take longer to wake than ours. Only functions that OpenMP and the GNU runtime
document are called; Intel's and LLVM's runtimes have them too.
"""

import ctypes
import os
import re
import threading
from contextlib import suppress
from time import perf_counter, thread_time
from typing import Any

import numpy as np

from reorder.cpu import settings
from reorder.cpu.machine import SHARED_NBYTES
from reorder.cpu.runtime.jit import SHARED_JOB, c_function, compiled_at, is_due
from reorder.cpu.runtime.worker import (
    BLOCK_NBYTES,
    MAX_WORKERS,
    POOL,
    THREAD,
    THREAD_NBYTES,
    THREADS_AT,
    Job,
    enter_region,
    serve,
    share_job,
)
from reorder.cpu.schedule.partition import Partition
from reorder.cpu.tables import WORD_NBYTES, Words
from reorder.forks import at_fork
from reorder.memory.buffers import address_of
from reorder.system import system_function

# How long a worker spins before it sleeps, and how many spins are timed to convert that to spins.
_SPIN_SECONDS, _TIMED_SPINS = 1e-4, 1000
_INTERPRETER = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 8)
# How files of OpenMP runtimes are named among those that a process has mapped, and the functions
# whose addresses are in the words of the pool.
_RUNTIME = r"/\S*/lib(?:gomp|iomp5|omp)\b[^/\s]*\.so[^/\s]*$"
_OPENMP = (
    (POOL.number_at, "omp_get_thread_num"),
    (POOL.inside_at, "omp_in_parallel"),
    (POOL.region_at, "GOMP_parallel"),
)


def lasting_words(nbytes: int) -> Words:
    """Return zeros in cache lines of their own, which threads may use until the process ends."""
    buffer = np.zeros(nbytes + SHARED_NBYTES, np.uint8)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(buffer))
    start = -address_of(buffer) % SHARED_NBYTES
    return buffer[start : start + nbytes].view(np.int64)


# The block of the pool, and in it a row for each thread. Python writes its words under the GIL.
WORDS = lasting_words(BLOCK_NBYTES)
ADDRESS = address_of(WORDS)
_THREADS = WORDS[THREADS_AT // WORD_NBYTES :].reshape(-1, THREAD_NBYTES // WORD_NBYTES)


def write_functions(words: Any) -> None:
    """Write the addresses of the functions that workers call to the words of a block."""
    python = ctypes.pythonapi
    # a system that cannot yield a core gets a function that does nothing; its threads sleep sooner
    words[POOL.yield_at] = function_at(system_function("sched_yield") or python.Py_IsInitialized)
    words[POOL.sleep_at] = function_at(python.PyThread_acquire_lock_timed)
    words[POOL.never_free] = _taken_lock()
    words[POOL.acquire_at] = function_at(python.PyThread_acquire_lock)
    words[POOL.release_at] = function_at(python.PyThread_release_lock)


def _taken_lock() -> int:
    """Return a new lock of Python that this thread has acquired."""
    make_lock = ctypes.pythonapi.PyThread_allocate_lock
    make_lock.restype = ctypes.c_void_p
    lock: int = make_lock()
    ctypes.pythonapi.PyThread_acquire_lock(ctypes.c_void_p(lock), 1)
    return lock


def function_at(function: Any) -> int:
    """Return the address of a function of ctypes."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


write_functions(WORDS)
# The table of a single point, for interpreters that read no offsets from it.
_NO_POINTS = np.zeros(1, np.int64)


def make_job(
    interpreter: int, program: Words, partition: Partition, points: Words = _NO_POINTS
) -> tuple[Job, Words]:
    """Return the job of a partition at each of some points, and the bounds of its chunks.

    These, and the arrays that are given, must outlive it.
    """
    count, ranges, bounds = len(points), len(partition.ranges), partition.bounds
    if count > 1:
        # equal chunks
        chunks = min(partition.chunks, ranges * count)
        bounds = np.arange(chunks + 1) * (ranges * count) // chunks
    chunks = len(bounds) - 1
    return Job(
        interpreter=interpreter,
        program=address_of(program),
        ranges=address_of(partition.ranges),
        steps=ranges * count,
        points=address_of(points),
        point_count=count,
        bounds=address_of(bounds),
        chunks=chunks,
        workers=min(partition.workers, chunks - 1, MAX_WORKERS),
        pool=ADDRESS,
    ), bounds


class _State:
    # held while workers are started; a forked child gets a new one
    starting = threading.Lock()


def run_job(src_at: int, dst_at: int, job: Job) -> None:
    """Run a job on src and dst at two addresses; missing workers are started."""
    if not (job.workers and is_due(SHARED_JOB)):
        # the CPU time, so other programs on this core do not count
        run, start = _INTERPRETER(job.interpreter), thread_time()
        run(src_at, dst_at, job.program, job.ranges, 0, job.steps, job.points, job.point_count)
        if job.workers:
            is_due(SHARED_JOB, thread_time() - start)
        return
    share = load_pool()
    starting = _State.starting
    is_short = job.workers > WORDS[POOL.started] and not WORDS[POOL.region_at]
    if is_short and starting.acquire(blocking=False):
        try:
            _start_workers(min(job.workers, MAX_WORKERS), starting)
        finally:
            starting.release()
    table = (ctypes.c_int64 * len(job))(*job)
    share(src_at, dst_at, ctypes.addressof(table))


def load_pool() -> Any:
    """Return the function that shares a job, compiled or loaded."""
    if not WORDS[POOL.share_at]:
        if settings.uses_openmp():
            _load_openmp()
        WORDS[POOL.share_at] = compiled_at(share_job, SHARED_JOB)
    return c_function(share_job, SHARED_JOB)


def _load_openmp() -> None:
    """Let jobs run in regions of the first OpenMP runtime of this process."""
    enter, runtimes = _compile_region(), []
    with (
        suppress(OSError),  # where the system lists no files
        open("/proc/self/maps", encoding="utf-8", errors="replace") as maps,
    ):
        runtimes = re.findall(_RUNTIME, maps.read(), re.MULTILINE)
    for path in dict.fromkeys(runtimes):
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            addresses = [(field, function_at(library[name])) for field, name in _OPENMP]
            for field, address in ((POOL.enter_at, enter), *addresses):
                WORDS[field] = address
            return


def _compile_region() -> int:
    """Return the address of the function that each thread of a region runs."""
    return compiled_at(enter_region, "thread pool: region")


def _forget() -> None:
    """Reset the pool in a forked child, which has no workers."""
    _State.starting = threading.Lock()
    # the threads of an OpenMP runtime do not survive a fork either
    WORDS[[POOL.busy, POOL.state, POOL.late, POOL.started, POOL.region_at]] = 0
    _THREADS[:, [THREAD.taken, THREAD.turn, THREAD.asleep]] = 0


def compile_pool() -> None:
    """Compile all code of the pool, or load it; no thread is started."""
    load_pool()
    c_function(serve, "thread pool: worker")
    _compile_region()


def _start_workers(workers: int, starting: Any) -> None:
    """Start threads until there are `workers`; `starting` is the lock that the caller holds."""
    run = c_function(serve, "thread pool: worker")
    if not WORDS[POOL.spins]:
        start = perf_counter()
        run(ADDRESS, 0, _TIMED_SPINS)
        seconds = max(perf_counter() - start, 1e-9)
        WORDS[POOL.spins] = max(1, int(_TIMED_SPINS * _SPIN_SECONDS / seconds))
    # at shutdown of the interpreter, or if the system starts no more threads, fewer workers help
    with suppress(RuntimeError):
        while (thread := int(WORDS[POOL.started]) + 1) <= workers:
            _THREADS[thread, THREAD.lock] = _taken_lock()
            arguments = ADDRESS, thread, int(WORDS[POOL.spins])
            threading.Thread(target=run, args=arguments, name="reorder", daemon=True).start()
            if starting is not _State.starting:
                return  # a signal handler forked, and this child does not have the thread
            WORDS[POOL.started] = thread


at_fork(lambda: None, lambda: None, _forget)
