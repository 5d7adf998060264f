"""On which threads a reorder runs, and what is safe when.

numba's layers differ: TBB survives forks and concurrent callers; OpenMP does not
survive a fork once started; workqueue aborts the process when two Python threads
enter it, so it is never entered: a pool of Python threads runs the kernels instead,
which hold no GIL. Only one caller at a time gets all threads; a second one runs on
its own thread meanwhile.
"""

from __future__ import annotations

import ctypes
import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Any, NamedTuple

import numba

from reorder.cpu.walk import walk, walk_parallel

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Shares", "cache_folder", "count_threads", "layer_name", "run"]

_busy = threading.Lock()


class _State:
    """What is known of this process; a forked child starts from it."""

    layer: str | None = None
    pool: ThreadPoolExecutor | None = None


def count_threads() -> int:
    """Return how many threads a reorder may use: numba's limit, and the cores allowed."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit: int = numba.config.NUMBA_NUM_THREADS
    return max(1, min(cores, limit))


def cache_folder() -> str | None:
    """Return where compiled kernels are kept, or None."""
    folder: str | None = walk.stats.cache_path  # type: ignore[attr-defined] # numba's dispatcher
    return folder


def layer_name() -> str:
    """Start the threads if need be, and return `tbb`, `omp`, `pool` or `serial`."""
    if _State.layer is None:
        with _busy:
            _State.layer = _State.layer or _start()
    return _State.layer


class Shares(NamedTuple):
    """Tasks and how they are shared: addresses of both tables, and how many parts and tasks."""

    tasks: int
    bounds: int
    parts: int
    total: int


def run(starts: tuple[int, int, int], shares: Shares, places: tuple[int, int], unit: Any) -> None:
    """Run a program, its parts all at once where that is safe.

    Parameters
    ----------
    starts : tuple of int
        Addresses of src, dst and the program.
    shares : Shares
        Which part runs which tasks.
    places : tuple of int
        Address of the points, and their number.
    unit : numpy scalar
        Whose type is the element.
    """
    tasks, bounds, parts, total = shares
    layer = layer_name() if parts > 1 else "serial"
    if layer == "serial" or not _busy.acquire(blocking=False):
        walk(*starts, tasks, 0, total, *places, unit)
        return
    try:
        if layer == "pool":
            ends = (ctypes.c_int64 * (parts + 1)).from_address(bounds)
            _run_pool(lambda part: walk(*starts, tasks, ends[part], ends[part + 1], *places, unit), parts)
        else:
            walk_parallel(*starts, tasks, bounds, parts, *places, unit)
    finally:
        _busy.release()


def _start() -> str:
    _load_tbb()
    try:
        numba.get_num_threads()  # starts the threads
        layer = str(numba.threading_layer())
    except ValueError:
        return "pool"  # NUMBA_THREADING_LAYER names one that is not there
    return "pool" if layer == "workqueue" else layer


def _load_tbb() -> None:
    """Load the library of the tbb wheel: numba looks for it by name only."""
    try:
        found = [file for file in distribution("tbb").files or () if file.name in ("libtbb.so.12", "tbb12.dll")]
        for file in found:
            ctypes.CDLL(str(file.locate()))
    except (PackageNotFoundError, OSError):
        return  # numba falls back to another layer


def _run_pool(part_of: Callable[[int], None], parts: int) -> None:
    if _State.pool is None:
        _State.pool = ThreadPoolExecutor(max(1, count_threads() - 1), thread_name_prefix="reorder")
    try:
        others = [_State.pool.submit(part_of, part) for part in range(1, parts)]
    except RuntimeError:
        # the interpreter shuts down and takes no new work
        for part in range(parts):
            part_of(part)
        return
    part_of(0)
    wait(others)


def _after_fork() -> None:
    """Give up in a child what does not survive a fork."""
    _busy.release()
    _State.pool = None
    try:
        started = numba.threading_layer()
    except ValueError:
        started = None
    if started == "omp":
        _State.layer = "serial"


if hasattr(os, "register_at_fork"):
    # a fork waits until no reorder is on several threads
    os.register_at_fork(before=_busy.acquire, after_in_parent=_busy.release, after_in_child=_after_fork)
