"""Bound and count the work that a function does; times on a busy machine mean little."""

import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

# of a processor: for what takes milliseconds, unless it is quadratic or worse
_HANG_SECONDS = 20.0
# more addresses than the libraries and runtimes of all tests map
_NBYTES = 1 << 40


class HangError(Exception):
    """A block used the processor for very long."""


@contextmanager
def hangs_fail() -> Iterator[None]:
    """Interrupt a block that has used the processor for 20 seconds, so that its test fails.

    The main thread alone may use it. Expressions of `re` are interrupted too.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        msg = f"the block did not end in {_HANG_SECONDS:.0f} s of processor time"
        raise HangError(msg)

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, _HANG_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def limited_memory(more: int | None = None) -> Iterator[None]:
    """Let this process ask for that many more bytes: some systems grant any number of them.

    By default for no more than a tebibyte in all.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) if more else 0
    most = _NBYTES if more is None else pages * resource.getpagesize() + more
    given = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([most, *given]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def count_calls(function: Callable[[], Any], *kinds: str) -> int:
    """Return how many calls of functions, also of those in C, a function makes in this thread.

    With the kind ``"call"`` only of those in Python.
    """
    calls = 0

    def count(_frame: FrameType, event: str, _value: object) -> None:
        nonlocal calls
        calls += event in (kinds or {"call", "c_call"})

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    # without the function itself
    return calls - 1
