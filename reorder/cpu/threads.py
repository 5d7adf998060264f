"""On which threads a reorder runs, and what is safe when.

numba's layers differ: TBB survives forks and concurrent callers, if the thread that
forks is the one that always called; OpenMP does not survive a fork once started;
workqueue aborts the process when two Python threads enter it, so it is never
entered: a pool of Python threads runs the kernels instead, which hold no GIL. Only
one caller at a time gets all threads; a second one runs on its own thread meanwhile.

A fork waits until no reorder is on several threads and nothing is being compiled. A
child of threads that do not survive runs on its own thread.
"""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import numba
from numba.core.compiler_lock import global_compiler_lock

from reorder.cpu.walk import walk, walk_parallel
from reorder.forks import at_fork

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Shares", "count_threads", "layer_name", "run"]

_busy = threading.Lock()


class _State:
    """What is known of this process; a forked child starts from it."""

    layer: str | None = None
    # the thread inside of _busy, and the one that forks
    owner: int | None = None
    forking: int | None = None
    # all that started numba's threads or called upon them, 0 for what is not ours
    callers: frozenset[int] = frozenset()
    # what the pool's threads take their work from, and how many there are
    work: SimpleQueue[Callable[[], None]] = SimpleQueue()
    helpers: int = 0
    # what forks hold: a signal handler may fork inside of a fork
    held: tuple[tuple[Any, ...], ...] = ()


def count_threads() -> int:
    """Return how many threads a reorder may use: numba's limit, and the cores allowed."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit: int = numba.config.NUMBA_NUM_THREADS
    return max(1, min(cores, limit))


def layer_name() -> str:
    """Start the threads if need be, and return `tbb`, `omp`, `pool` or `serial`."""
    me = threading.get_ident()
    if _State.layer is None:
        if _State.owner == me:
            return "serial"  # a signal handler, inside of what follows
        with _busy:
            _State.owner = me
            try:
                _State.layer = _State.layer or _start(me)
            finally:
                _State.owner = None
    return _State.layer


class Shares(NamedTuple):
    """Tasks and how they are shared: addresses of both tables, how many parts and tasks, and for how many threads."""

    tasks: int
    bounds: int
    parts: int
    total: int
    threads: int


def run(starts: tuple[int, int, int], shares: Shares, places: tuple[int, int], bits: int, alive: object) -> None:
    """Run a program, its parts all at once where that is safe.

    Parameters
    ----------
    starts : tuple of int
        Addresses of src, dst and the program.
    shares : Shares
        Which part runs which tasks.
    places : tuple of int
        Address of the points, and their number.
    bits : int
        Width of an element.
    alive : object
        What owns the memory at all these addresses: threads hold it while they use it.
    """
    tasks, bounds, parts, total, threads = shares
    layer = layer_name() if min(parts, threads) > 1 else "serial"
    if layer == "serial" or _busy.locked():
        walk(*starts, tasks, 0, total, *places, bits)
        return
    me = threading.get_ident()
    with _busy:
        _State.owner = me
        try:
            if layer == "pool":
                ends = (ctypes.c_int64 * (parts + 1)).from_address(bounds)

                def run_part(part: int, _alive: object = alive) -> None:
                    walk(*starts, tasks, ends[part], ends[part + 1], *places, bits)

                _run_pool(run_part, parts, threads)
            else:
                _State.callers |= {me}
                walk_parallel(*starts, tasks, bounds, parts, *places, bits, threads)
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
    """Load the library of the tbb wheel: numba looks for it by name only."""
    try:
        found = [file for file in distribution("tbb").files or () if file.name in ("libtbb.so.12", "tbb12.dll")]
        for file in found:
            ctypes.CDLL(str(file.locate()))
    except (PackageNotFoundError, OSError):
        return  # numba falls back to another layer


def _serve(work: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        work.get()()


def _count_helpers(wanted: int) -> int:
    """Start threads of the pool that are missing, and return how many there are."""
    with suppress(RuntimeError):  # the interpreter shuts down, or the system gives no thread: less help
        while _State.helpers < wanted:
            threading.Thread(target=_serve, args=(_State.work,), name="reorder", daemon=True).start()
            _State.helpers += 1
    return min(wanted, _State.helpers)


def _run_pool(run_part: Callable[[int], None], parts: int, threads: int) -> None:
    """Run all parts on this thread and some of the pool's; whoever is free takes the next one."""
    left = iter(range(parts))
    errors: list[BaseException] = []
    turns = [threading.Lock() for _ in range(_count_helpers(min(parts, threads) - 1))]

    def help_out(turn: threading.Lock) -> None:
        if turn.acquire(blocking=False):  # else it comes too late
            try:
                for part in left:
                    run_part(part)
            except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
                errors.append(error)
            finally:
                turn.release()

    try:
        for turn in turns:
            _State.work.put(partial(help_out, turn))
        for part in left:
            run_part(part)
    finally:
        for turn in turns:
            turn.acquire()
    if errors:
        raise errors[0]


def _before_fork() -> None:
    me = threading.get_ident()
    # no lock is awaited that a signal handler's own thread has
    is_inside = me in {_State.owner, _State.forking}
    locks = (global_compiler_lock,) if is_inside else (_busy, global_compiler_lock)
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
    _State.work, _State.helpers = SimpleQueue(), 0
    started = _started_layer()
    is_clean = started == "tbb" and _State.layer == "tbb" and _State.callers == {threading.get_ident()}
    if started not in {None, "workqueue"} and not is_clean:
        _State.layer = "serial"
    _after_fork()


at_fork(_before_fork, _after_fork, _after_fork_in_child)
