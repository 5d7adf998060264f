"""The choice between the pool and numba's threads for a job, and safety under forks.

Short jobs run on the pool: a scheduler would need longer to wake its threads. Long jobs run on
numba's threads, which other code of the process shares. numba's threading layers differ:

* TBB survives concurrent callers, and a fork if only the forking thread has called it.
* OpenMP does not survive a fork once started.
* workqueue aborts the process when two Python threads enter it, so the pool is used instead.

Only one caller at a time gets all threads; a second one runs on its calling thread meanwhile. A
fork waits until no reorder is on numba's threads and no thread is in LLVM. A child in which
numba's threads do not survive uses the pool, whose threads start again there.
"""

from __future__ import annotations

import ctypes
import threading
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from llvmlite.binding import ffi
from numba.core.compiler_lock import global_compiler_lock

from reorder.cpu.runtime import pool
from reorder.cpu.runtime.walker import walk_parallel
from reorder.forks import at_fork, uninterrupted
from reorder.memory.buffers import address_of

if TYPE_CHECKING:
    from reorder.cpu.runtime.job import Job
    from reorder.cpu.schedule.partition import Partition

__all__ = ["layer_name", "run_job"]

_busy = threading.Lock()
# llvmlite holds it during every call of LLVM, also outside of numba's compiler lock. A child
# forked meanwhile would wait for it forever.
_llvm_lock: Any = ffi.lib._lock._lock  # noqa: SLF001 - llvmlite has callbacks, but no way to hold it


class _State:
    """The state of this process; a forked child inherits it."""

    # the layer that runs long jobs, None before it is started
    layer: str | None = None
    # identifiers of the thread that holds _busy, and of the one that forks
    owner: int | None = None
    forking: int | None = None
    # identifiers of the threads that started or used numba's threads; 0: other code started them
    callers: frozenset[int] = frozenset()
    # the locks that forks hold, outermost first: a signal handler may fork inside of a fork
    held: tuple[tuple[Any, ...], ...] = ()


def layer_name() -> str:
    """Start numba's threads if need be; return what runs long reorders: `tbb`, `omp` or `pool`."""
    me = threading.get_ident()
    if _State.layer is None:
        if _State.owner == me:
            return "pool"  # a signal handler interrupted the code below
        with _busy:
            _State.owner = me
            try:
                with uninterrupted:
                    _State.layer = _State.layer or _start(me)
            finally:
                _State.owner = None
    return _State.layer


def run_job(src_at: int, dst_at: int, job: Job, partition: Partition) -> None:
    """Run a job on src and dst at two addresses, its chunks in parallel where that is safe.

    Parameters
    ----------
    src_at, dst_at : int
        Addresses of both buffers.
    job : Job
        Of the partition, from `make_job`.
    partition : Partition
        Number of threads, and whether the job is long.

    Notes
    -----
    With more points than one, all tasks run at each point, and chunks are equal parts of these
    steps.
    """
    threads = partition.threads
    is_long = partition.is_long
    if job.point_count > 1:
        steps = job.steps * job.point_count
        chunks = min(job.chunks, steps)
        bounds = np.arange(chunks + 1) * steps // chunks
        workers = min(job.workers, chunks - 1)
        job = job._replace(steps=steps, bounds=address_of(bounds), chunks=chunks, workers=workers)
    if not is_long or min(job.chunks, threads) == 1 or layer_name() not in {"tbb", "omp"}:
        pool.run_on_pool(src_at, dst_at, job)
    elif _busy.locked():
        pool.run_on_pool(src_at, dst_at, job._replace(workers=0))
    else:
        record = (ctypes.c_int64 * len(job))(*job)
        me = threading.get_ident()
        with _busy:
            _State.owner = me
            try:
                _State.callers |= {me}
                walk_parallel(ctypes.addressof(record), src_at, dst_at, threads)
            finally:
                _State.owner = None


def _start(me: int) -> str:
    if numba.config.DISABLE_JIT:
        return "pool"  # numba compiles no loop over threads
    _load_tbb()
    _State.callers = frozenset([me if _started_layer() is None else 0])
    try:
        numba.get_num_threads()  # starts the threads
    except ValueError:
        return "pool"  # NUMBA_THREADING_LAYER names one that is not there
    layer = _started_layer() or "pool"
    return "pool" if layer == "workqueue" else layer


def _started_layer() -> str | None:
    """Return which of numba's layers runs, if one does."""
    try:
        return str(numba.threading_layer())
    except ValueError:
        return None


def _load_tbb() -> None:
    """Load the library of the tbb wheel: numba searches for it by name only."""
    try:
        found = [
            file
            for file in distribution("tbb").files or ()
            if file.name in ("libtbb.so.12", "tbb12.dll")
        ]
        for file in found:
            ctypes.CDLL(str(file.locate()))
    except (PackageNotFoundError, OSError):
        return  # numba falls back to another layer


def _before_fork() -> None:
    me = threading.get_ident()
    # a signal handler must not wait for a lock that its own thread holds
    is_inside = me in {_State.owner, _State.forking}
    locks = (
        (global_compiler_lock, _llvm_lock)
        if is_inside
        else (_busy, global_compiler_lock, _llvm_lock)
    )
    _State.forking = me
    for lock in locks:
        lock.acquire()
    _State.held += (locks,)


def _after_fork() -> None:
    *outer, locks = _State.held or ((),)
    _State.held = tuple(outer)
    if not outer:
        _State.forking = None
    for lock in locks:
        lock.release()


def _after_fork_in_child() -> None:
    """Reset in a child what does not survive a fork."""
    pool.forget()
    started = _started_layer()
    is_clean = (
        started == "tbb" and _State.layer == "tbb" and _State.callers == {threading.get_ident()}
    )
    if started not in {None, "workqueue"} and not is_clean:
        _State.layer = "pool"
    _after_fork()


at_fork(_before_fork, _after_fork, _after_fork_in_child)
