"""The limit on threads for the reorders within a block of code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from memdesc.int64 import checked_count

_limit: ContextVar[int | None] = ContextVar("reorder.use_threads", default=None)


def use_threads(threads: int) -> AbstractContextManager[None]:
    """Limit the threads of reorders within a block; a number passed to a call takes precedence.

    The limit applies to the thread or task that sets it. The settings of numba do not change.

    Parameters
    ----------
    threads : int
        1 or more; a reorder never uses more threads than there are cores.

    Raises
    ------
    MemdescError
        If it is not an integer of 1 or more.

    Examples
    --------
    >>> import numpy as np, reorder
    >>> with reorder.use_threads(1):
    ...     reorder.reorder(np.ones((1, 3, 2, 2), np.float32), "nChw8c").nbytes
    128
    """
    return _limited(checked_threads(threads))


@contextmanager
def _limited(count: int) -> Iterator[None]:
    token = _limit.set(count)
    try:
        yield
    finally:
        _limit.reset(token)


def current_limit() -> int | None:
    """Return the limit in force; None without one."""
    return _limit.get()


def checked_threads(threads: Any) -> int:
    """Return a number of threads as an int. Fails if it is not an integer of 1 or more."""
    return checked_count("threads", threads)
