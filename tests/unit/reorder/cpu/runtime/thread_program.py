"""A program that reorders on threads and in forked children; run by test_threads.py.

Arguments: the scenarios, separated by commas, and the library of an OpenMP runtime, if each reorder
is to follow a parallel region. A child that dies or hangs, a wrong element and a dead thread all
end it with a failure.
"""

import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import reorder
from memdesc import memory_desc
from reorder.cpu import count_threads

_DIMS = (32, 32, 24, 24)
_X = np.arange(np.prod(_DIMS), dtype=np.float32).reshape(_DIMS)
_PLAN = reorder.plan_reorder(memory_desc(_DIMS, "f32", "nchw"), memory_desc(_DIMS, "f32", "nhwc"))
_WANTED = np.ascontiguousarray(_X.transpose(0, 2, 3, 1)).reshape(-1)
# seconds; a child may have to compile, for 40 seconds where the processor is emulated
_PATIENCE = 150


class _Before:
    """What runs before each reorder."""

    @staticmethod
    def call() -> None:
        """Do nothing."""


def move() -> None:
    """Reorder a tensor that is large enough for several threads, and check it."""
    out = np.full(_X.size, np.nan, np.float32)
    _Before.call()
    reorder.execute(_PLAN, _X, out)
    assert np.array_equal(out, _WANTED)


def move_a_little() -> None:
    """Reorder a few times."""
    for _ in range(5):
        move()


def move_often() -> None:
    """Reorder again and again."""
    for _ in range(1000):
        move()


def fork(function: Callable[[], Any] = move) -> int:
    """Run a function in a forked child; returns its process id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function()
            code = 0
        except BaseException:  # noqa: BLE001 - the parent sees the exit code
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def reap(pid: int) -> None:
    """Wait for a child, not forever."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            assert status == 0, f"a child ended with status {status}"
            return
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    msg = "a child hangs"
    raise AssertionError(msg)


class Crowd:
    """Threads that run a function at once; `join` raises what any of them raised."""

    def __init__(self, count: int, function: Callable[[], Any]) -> None:
        self._errors: list[BaseException] = []
        self._function = function
        self._threads = [threading.Thread(target=self._run) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001 - raised by join
            self._errors.append(error)

    def join(self) -> None:
        """Wait for all threads."""
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]


def crowds() -> None:
    """Reorder on two, and on eight threads at once."""
    for count in (2, 8):
        Crowd(count, move_a_little).join()


def fork_first() -> None:
    """Fork before anything was reordered."""
    reap(fork())
    move()


def fork_after() -> None:
    """Fork after reorders on several threads, children of children too."""
    move()
    pids = [fork() for _ in range(3)]
    move()
    for pid in pids:
        reap(pid)
    reap(fork(fork_first))


def fork_meanwhile() -> None:
    """Fork while other threads reorder, from the main thread and from others."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            move()

    crowd = Crowd(3, work)
    try:
        for _ in range(3):
            reap(fork())
        Crowd(2, lambda: reap(fork())).join()
    finally:
        stop.set()
        crowd.join()
    move()


def convert() -> None:
    """Reorder and convert, exactly."""
    assert np.array_equal(reorder.reorder(_X, "nhwc", dtype="f64").elements.view("f8"), _WANTED)


def fork_often() -> None:
    """Fork a hundred times while other threads reorder and convert."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            both()

    def both() -> None:
        move()
        convert()

    crowd = Crowd(3, work)
    try:
        for _ in range(100):
            reap(fork(both))
    finally:
        stop.set()
        crowd.join()


def fork_pool() -> None:
    """Reorder in the workers of multiprocessing."""
    move()
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        pool.starmap(move, [()] * 4)


def leave() -> None:
    """End the interpreter while threads reorder."""
    move()
    for _ in range(2):
        threading.Thread(target=move_often, daemon=True).start()
    time.sleep(0.1)


def count() -> None:
    """Count the threads that were started: no more than two threads reorder."""
    move_a_little()
    started = sum(thread.name == "reorder" for thread in threading.enumerate())
    # where one core may be used, there is none
    assert started == min(1, count_threads() - 1), started


def compile_boxes() -> None:
    """Compile an interpreter of boxes that nothing else here needs."""
    from reorder.cpu.runtime.jit import interpreter_at
    from reorder.cpu.schedule.select import Kernel

    assert interpreter_at(Kernel(64))


if __name__ == "__main__":
    faulthandler.dump_traceback_later(3 * _PATIENCE, exit=True)
    if sys.argv[2]:
        from tests.unit.reorder.cpu.runtime.openmp import OpenMP

        parent, runtime = os.getpid(), OpenMP(sys.argv[2])

        def region() -> None:
            """Run a parallel region; a forked child cannot run one."""
            if os.getpid() == parent:
                runtime.region()

        _Before.call = region  # type: ignore[method-assign] # set once, before the scenario
    scenarios = {
        function.__name__: function
        for function in (
            compile_boxes,
            count,
            crowds,
            fork_first,
            fork_after,
            fork_meanwhile,
            fork_often,
            fork_pool,
            leave,
        )
    }
    for name in sys.argv[1].split(","):
        scenarios[name]()
