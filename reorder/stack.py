"""Run work that needs more stack than the caller's thread may have.

Compiling takes more stack than the 64 KiB that some programs give their threads,
and a stack overflow ends the process. The main thread has a stack of megabytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

from reorder.forks import at_fork, importing_own

_Result = TypeVar("_Result")

# The deepest calls of LLVM take less than a quarter of this.
_NBYTES = 1 << 22

# what threads with enough stack know of themselves
_this = threading.local()

# held while the stack size of new threads is changed; a fork waits for it
_sizing = threading.Lock()
at_fork(_sizing.acquire, _sizing.release, _sizing.release)


def on_enough_stack(function: Callable[[], _Result]) -> _Result:
    """Call a function with enough stack: directly, or on a new thread, which this one joins.

    The function must not need a lock that this thread holds.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if is_main or getattr(_this, "has_enough", False):
        return function()
    returned: list[_Result] = []
    raised: list[BaseException] = []

    def run() -> None:
        _this.has_enough = True
        try:
            returned.append(function())
        except BaseException as error:  # noqa: BLE001 - raised on the thread that waits
            raised.append(error)

    thread = threading.Thread(target=run, name="reorder-compiler", daemon=True)
    try:
        with _large_stacks():
            thread.start()
    except RuntimeError:
        # at interpreter shutdown, or when the system cannot start more threads
        return function()
    thread.join()
    for error in raised:
        raise error
    return returned[0]


def load_late(load: Callable[[], _Result]) -> Callable[[], _Result]:
    """Let a function that imports modules of ours do so once, with enough stack."""

    def run() -> _Result:
        with importing_own:
            return load()

    return cache(lambda: on_enough_stack(run))


@contextmanager
def _large_stacks() -> Iterator[None]:
    """Give new threads a large stack, then restore the size that the process had set."""
    with _sizing:
        size = threading.stack_size(_NBYTES)
        try:
            yield
        finally:
            threading.stack_size(size)
