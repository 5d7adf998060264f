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
from time import perf_counter
from typing import Any

from reorder.cpu import settings
from reorder.cpu.runtime.jit import c_function, compiled_at, is_on_disk
from reorder.cpu.runtime.pool_block import (
    ADDRESS,
    MAX_WORKERS,
    POOL,
    THREAD,
    Job,
    function_at,
    pool_words,
    publish,
    taken_lock,
    thread_words,
)
from reorder.cpu.runtime.worker import enter_region, serve, share_job
from reorder.forks import at_fork

# How long a worker spins before it sleeps, and how many spins are timed to convert that to spins.
_SPIN_SECONDS, _TIMED_SPINS = 1e-4, 1000
# Where the code of the pool must be compiled, which takes most of a second, jobs run on the calling
# thread until they have taken this long: no longer, as later processes profit too.
_ALONE_SECONDS = 0.02
_NAME = "thread pool: job"
_INTERPRETER = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 8)
# How files of OpenMP runtimes are named among those that a process has mapped, and the functions
# whose addresses are in the words of the pool.
_RUNTIME = r"/\S*/lib(?:gomp|iomp5|omp)\b[^/\s]*\.so[^/\s]*$"
_OPENMP = (
    (POOL.number_at, "omp_get_thread_num"),
    (POOL.inside_at, "omp_in_parallel"),
    (POOL.region_at, "GOMP_parallel"),
)


class _State:
    # held while workers are started; a forked child gets a new one
    starting = threading.Lock()
    # seconds of jobs that had to run without the pool
    seconds = 0.0


def run_job(src_at: int, dst_at: int, job: Job) -> None:
    """Run a job on src and dst at two addresses; missing workers are started."""
    if not (job.workers and is_due()):
        run, start = _INTERPRETER(job.interpreter), perf_counter()
        run(src_at, dst_at, job.program, job.ranges, 0, job.steps, job.points, job.point_count)
        if job.workers:
            _State.seconds += perf_counter() - start
        return
    share = load_pool()
    starting = _State.starting
    words = pool_words()
    is_short = job.workers > words[POOL.started] and not words[POOL.region_at]
    if is_short and starting.acquire(blocking=False):
        try:
            _start_workers(min(job.workers, MAX_WORKERS), starting)
        finally:
            starting.release()
    table = (ctypes.c_int64 * len(job))(*job)
    share(src_at, dst_at, ctypes.addressof(table))


def is_due() -> bool:
    """Whether jobs use the pool now: it needs no compiler, or they have run long without it."""
    has_waited = _State.seconds >= _ALONE_SECONDS
    return has_waited or bool(pool_words()[POOL.share_at]) or is_on_disk(share_job, _NAME)


def load_pool() -> Any:
    """Return the function that shares a job, compiled or loaded."""
    if not pool_words()[POOL.share_at]:
        if settings.uses_openmp():
            _load_openmp()
        publish(ADDRESS, POOL.share_at, compiled_at(share_job, _NAME))
    return c_function(share_job, _NAME)


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
            # the last one tells other threads that the rest is there
            for field, address in ((POOL.enter_at, enter), *addresses):
                publish(ADDRESS, field, address)
            return


def _compile_region() -> int:
    """Return the address of the function that each thread of a region runs."""
    return compiled_at(enter_region, "thread pool: region")


def _forget() -> None:
    """Reset the pool in a forked child, which has no workers."""
    _State.starting = threading.Lock()
    words = pool_words()
    # the threads of an OpenMP runtime do not survive a fork either
    for field in (POOL.busy, POOL.state, POOL.late, POOL.started, POOL.region_at):
        words[field] = 0
    for thread in range(MAX_WORKERS + 1):
        for field in (THREAD.taken, THREAD.turn, THREAD.asleep):
            thread_words(thread)[field] = 0


def compile_pool() -> None:
    """Compile all code of the pool, or load it; no thread is started."""
    load_pool()
    c_function(serve, "thread pool: worker")
    _compile_region()


def _start_workers(workers: int, starting: Any) -> None:
    """Start threads until there are `workers`; `starting` is the lock that the caller holds."""
    run = c_function(serve, "thread pool: worker")
    words = pool_words()
    if not words[POOL.spins]:
        start = perf_counter()
        run(ADDRESS, 0, _TIMED_SPINS)
        seconds = max(perf_counter() - start, 1e-9)
        words[POOL.spins] = max(1, int(_TIMED_SPINS * _SPIN_SECONDS / seconds))
    # at shutdown of the interpreter, or if the system starts no more threads, fewer workers help
    with suppress(RuntimeError):
        while words[POOL.started] < workers:
            thread = words[POOL.started] + 1
            thread_words(thread)[THREAD.lock] = taken_lock()
            arguments = ADDRESS, thread, words[POOL.spins]
            threading.Thread(target=run, args=arguments, name="reorder", daemon=True).start()
            if starting is not _State.starting:
                return  # a signal handler forked, and this child does not have the thread
            publish(ADDRESS, POOL.started, thread)


at_fork(lambda: None, lambda: None, _forget)
