"""Run work on a thread with enough stack, on which no handler of a signal runs.

Compiling takes more stack than the 64 KiB that some programs give their threads,
and a stack overflow ends the process. The main thread has a stack of megabytes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from reorder.forks import at_fork, importing_own

if TYPE_CHECKING:
    from types import ModuleType

_Result = TypeVar("_Result")

# The deepest calls of LLVM take less than a quarter of this.
_NBYTES = 1 << 22

# what threads with enough stack know of themselves
_this = threading.local()

# Held while the stack size of new threads is changed, and while `uninterrupted` runs: a fork waits
# for them, also one in the handler of a signal on the thread that holds the first.
_sizing, _working = threading.RLock(), threading.RLock()
for _lock in (_sizing, _working):
    at_fork(_lock.acquire, _lock.release, _lock.release)


def on_enough_stack(function: Callable[[], _Result]) -> _Result:
    """Call a function with enough stack: directly, or on a new thread, which this one joins.

    The function must not need a lock that this thread holds.
    """
    if threading.current_thread() is threading.main_thread():
        return function()
    return _on_new_thread(function)


def uninterrupted(function: Callable[[], _Result], *, here: bool = False) -> _Result:
    """Call a function that imports or compiles code of others, as `on_enough_stack` does elsewhere.

    An exception from the handler of a signal would leave a compiler half imported, or its tables
    half filled: every later call would then fail. Handlers run on the main thread, so the function
    runs on another one, and what they raise waits for it. With `here` it runs on this thread.
    """

    def run() -> _Result:
        with _working:
            return function()

    return run() if here else _on_new_thread(run)


def load_late(name: str) -> Callable[[], ModuleType]:
    """Return a function that imports one of our modules once, with enough stack."""

    def run() -> ModuleType:
        with importing_own:
            return import_module(name)

    return cache(lambda: on_enough_stack(run))


def _on_new_thread(function: Callable[[], _Result]) -> _Result:
    """Call a function on a new thread, unless this one is such a thread."""
    # when modules are cleared at the end of the interpreter, a new thread would never start
    if getattr(_this, "has_enough", False) or sys.is_finalizing():
        return function()
    returned: list[_Result] = []
    raised: list[BaseException] = []
    begun, done = threading.Lock(), threading.Lock()
    done.acquire()

    def run() -> None:
        if begun.acquire(blocking=False):
            _this.has_enough = True
            try:
                returned.append(function())
            except BaseException as error:  # noqa: BLE001 - raised on the thread that waits
                raised.append(error)
            done.release()

    thread = threading.Thread(target=run, name="reorder-compiler", daemon=True)
    try:
        with _large_stacks():
            thread.start()
        _wait(thread, done)
    except BaseException as error:
        if not begun.acquire(blocking=False):
            _wait(thread, done)
        elif isinstance(error, RuntimeError) and "new thread" in str(error):
            # Python's, at interpreter shutdown, or when the system cannot start more threads
            return function()
        raise
    for problem in raised:
        raise problem
    # a child that a handler has forked does not have the thread
    return returned[0] if returned else function()


def _wait(thread: threading.Thread, done: threading.Lock) -> None:
    """Wait for a thread; what signal handlers raise during the wait is raised afterwards.

    `Thread.join` would take a thread for ended after the first exception.
    """
    raised: list[BaseException] = []
    is_over = False
    while not is_over:
        try:
            while thread.is_alive() and not done.acquire(timeout=1):
                pass
            is_over = True
        except BaseException as error:  # noqa: BLE001 - raised below
            raised.append(error)
    if raised:
        raise raised[-1]


@contextmanager
def _large_stacks() -> Iterator[None]:
    """Give new threads a large stack, then restore the size that the process had set."""
    with _sizing:
        size = threading.stack_size(_NBYTES)
        try:
            yield
        finally:
            threading.stack_size(size)
