"""The limit on threads for the reorders within a block of code."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from operator import index as to_int
from typing import Any, NoReturn, TypeAlias

from memdesc import MemdescError
from memdesc.errors import short_repr

# The limit of the innermost block, or None outside of all, and those of the blocks around it. These
# may be nested without end, so no key has them: Python hashes nested tuples by recursion.
_Limits: TypeAlias = "tuple[int | None, _Limits | None]"
_OUTSIDE: _Limits = None, None
_limits: ContextVar[_Limits] = ContextVar("reorder.use_threads", default=_OUTSIDE)
# bound once: looking them up takes a tenth of a small reorder in a block
limits, _set_limits = _limits.get, _limits.set


def use_threads(threads: int) -> AbstractContextManager[None]:
    """Limit the threads of reorders within a block; a number passed to a call takes precedence.

    The limit applies to the thread or task that sets it. The settings of numba do not change, and
    reorders on devices have no limit.

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
    >>> with reorder.use_threads(1):
    ...     reorder.reorder(np.ones((1, 3, 2, 2), np.float32), "nChw8c").nbytes
    128
    """
    return _blocks[threads if type(threads) is int else checked_threads(threads)]


class _Limited(AbstractContextManager[None]):
    """A block with a limit. It holds no state, so that threads may share it."""

    __slots__ = ("_count", "_outermost")

    def __init__(self, count: int) -> None:
        self._count, self._outermost = count, (count, _OUTSIDE)

    def __enter__(self) -> None:
        around = limits()
        _set_limits(self._outermost if around is _OUTSIDE else (self._count, around))

    def __exit__(self, _kind: object, _error: object, _traceback: object) -> None:
        _set_limits(limits()[1] or _OUTSIDE)


class _Blocks(dict[int, _Limited]):
    """The block of each limit: a dict takes half as long as `functools.cache`."""

    def __missing__(self, count: int) -> _Limited:
        return self.setdefault(count, _Limited(checked_threads(count)))


_blocks = _Blocks()


def current_limit() -> int | None:
    """Return the limit in force; None without one."""
    return limits()[0]


def refuse_threads(threads: Any) -> NoReturn:
    """Refuse a number of threads for a reorder on a device; a wrong one as on the CPU."""
    raise MemdescError(
        f"threads={short_repr(checked_threads(threads))} limits CPU threads, but this "
        "reorder runs on a device; leave threads out"
    )


def checked_threads(threads: Any) -> int:
    """Return a number of threads as an int. Fails if it is not an integer of 1 or more."""
    if type(threads) is int and threads > 0:
        return threads
    return checked_count("threads", threads)


def checked_count(name: str, value: Any) -> int:
    """Return an integer of 1 or more as a Python int; refuse anything else."""
    count = 0
    with suppress(TypeError):
        count = 0 if isinstance(value, bool) else to_int(value)
    if count < 1:
        raise MemdescError(f"{name} must be an integer of 1 or more, not {short_repr(value)}")
    return count
