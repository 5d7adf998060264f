"""Run work that needs more stack than the caller's thread may have.

Compiling takes more stack than the 64 KiB that some programs give their threads,
and a stack overflow ends the process. The main thread has a stack of megabytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from reorder.forks import at_fork, importing

_Result = TypeVar("_Result")

# The deepest calls of LLVM take less than a quarter of this.
_NBYTES = 1 << 22

# held while the stack size of new threads is changed; a fork waits for it
_sizing = threading.Lock()
at_fork(_sizing.acquire, _sizing.release, _sizing.release)


class _Thread(threading.Thread, Generic[_Result]):
    """A thread that keeps what a function returned or raised."""

    def __init__(self, function: Callable[[], _Result]) -> None:
        super().__init__(name="reorder-compiler", daemon=True)
        self._function = function
        self._raised: BaseException | None = None
        self._returned: list[_Result] = []

    def run(self) -> None:
        """Call the function."""
        try:
            self._returned.append(self._function())
        except BaseException as error:  # noqa: BLE001 - raised on the thread that waits
            self._raised = error

    def result(self) -> _Result:
        """Wait; return what the function returned, or raise what it raised."""
        self.join()
        if self._raised is not None:
            raise self._raised
        return self._returned[0]


def on_enough_stack(function: Callable[[], _Result]) -> _Result:
    """Call a function with enough stack: directly, or on a new thread, which this one joins.

    The function must not need a lock that this thread holds.
    """
    this = threading.current_thread()
    if this is threading.main_thread() or isinstance(this, _Thread):
        return function()
    thread = _Thread(function)
    try:
        with _large_stacks():
            thread.start()
    except RuntimeError:
        # at interpreter shutdown, or when the system cannot start more threads
        return function()
    return thread.result()


def load_late(load: Callable[[], _Result]) -> _Result:
    """Call a function that imports modules at their first use, with enough stack, as forks wait."""

    def run() -> _Result:
        with importing:
            return load()

    return on_enough_stack(run)


@contextmanager
def _large_stacks() -> Iterator[None]:
    """Give new threads a large stack, then restore the size that the process had set."""
    with _sizing:
        size = threading.stack_size(_NBYTES)
        try:
            yield
        finally:
            threading.stack_size(size)
