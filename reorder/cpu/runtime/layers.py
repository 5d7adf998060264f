"""On which threads a reorder runs, and what is safe when.

What is over before a scheduler has woken its threads runs on a pool of our own. What takes long runs
on numba's, which the process has anyway. Their layers differ: TBB survives forks and concurrent callers, if the thread that
forks is the one that always called; OpenMP does not survive a fork once started;
workqueue aborts the process when two Python threads enter it, so it is never
entered: the pool runs all. Only one caller at a time gets all threads; a second one runs on its own
thread meanwhile.

A fork waits until no reorder is on numba's threads and no thread is in LLVM. A
child of threads that do not survive has the pool, which begins anew there.
"""

from __future__ import annotations

import ctypes
import threading
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite.binding import ffi
from numba.core.compiler_lock import global_compiler_lock

from reorder.cpu.runtime import pool
from reorder.cpu.runtime.pool import MAX_WORKERS, Job
from reorder.cpu.runtime.walker import walk_parallel
from reorder.forks import at_fork
from reorder.memory.buffers import address_of

__all__ = ["Shares", "job_of", "layer_name", "run"]

_busy = threading.Lock()
# held for every call of LLVM, some of them outside of the compiler's lock: a child that compiles would wait for it forever
_llvm_lock: Any = ffi.lib._lock._lock  # noqa: SLF001 - llvmlite offers callbacks, but no way to hold it


class _State:
    """What is known of this process; a forked child starts from it."""

    layer: str | None = None
    # the thread inside of _busy, and the one that forks
    owner: int | None = None
    forking: int | None = None
    # all that started numba's threads or called upon them, 0 for what is not ours
    callers: frozenset[int] = frozenset()
    # what forks hold: a signal handler may fork inside of a fork
    held: tuple[tuple[Any, ...], ...] = ()


def layer_name() -> str:
    """Start numba's threads if need be, and return what runs long reorders: `tbb`, `omp` or `pool`."""
    me = threading.get_ident()
    if _State.layer is None:
        if _State.owner == me:
            return "pool"  # a signal handler, inside of what follows
        with _busy:
            _State.owner = me
            try:
                _State.layer = _State.layer or _start(me)
            finally:
                _State.owner = None
    return _State.layer


class Shares(NamedTuple):
    """Tasks and how threads share them: addresses of both tables, how many parts, tasks and threads, and whether it takes long.

    The bounds are those of the steps at one place. At more of them parts are equal shares of all steps.
    """

    tasks: int
    bounds: int
    parts: int
    total: int
    threads: int
    is_long: bool = False


def run(starts: tuple[int, int, int], shares: Shares, places: tuple[int, int], walker: int) -> None:
    """Run a program, its parts all at once where that is safe.

    Parameters
    ----------
    starts : tuple of int
        Addresses of src, dst and the program.
    shares : Shares
        Which part runs which tasks.
    places : tuple of int
        Address of the points, and their number.
    walker : int
        Address of the compiled walker.
    """
    src_at, dst_at, program = starts
    tasks, bounds, parts, total, threads, is_long = shares
    steps = total * places[1]
    if places[1] > 1:
        parts = min(parts, steps)
        table = np.arange(parts + 1) * steps // parts
        bounds = address_of(table)
    job = job_of(shares._replace(bounds=bounds, parts=parts, total=steps), walker, program, places)
    is_shared = is_long and min(parts, threads) > 1
    if not is_shared or layer_name() not in {"tbb", "omp"}:
        pool.run(src_at, dst_at, job)
    elif _busy.locked():
        pool.run(src_at, dst_at, job._replace(workers=0))
    else:
        me = threading.get_ident()
        with _busy:
            _State.owner = me
            try:
                _State.callers |= {me}
                walk_parallel(
                    walker, src_at, dst_at, program, tasks, bounds, parts, *places, threads
                )
            finally:
                _State.owner = None


def job_of(shares: Shares, kernel: int, program: int, places: tuple[int, int]) -> Job:
    """Return what the pool runs."""
    workers = min(shares.parts, shares.threads, MAX_WORKERS + 1) - 1
    return Job(
        kernel,
        program,
        shares.tasks,
        shares.total,
        *places,
        shares.bounds,
        shares.parts,
        workers,
        pool.ADDRESS,
    )


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
    """Load the library of the tbb wheel: numba looks for it by name only."""
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
    # no lock is awaited that a signal handler's own thread has
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
    """Give up in a child what does not survive a fork."""
    pool.forget()
    started = _started_layer()
    is_clean = (
        started == "tbb" and _State.layer == "tbb" and _State.callers == {threading.get_ident()}
    )
    if started not in {None, "workqueue"} and not is_clean:
        _State.layer = "pool"
    _after_fork()


at_fork(_before_fork, _after_fork, _after_fork_in_child)
