"""A line on stderr when kernels are compiled for long."""

from __future__ import annotations

import sys
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NOTICE", "CompileNotice"]

_PATIENCE = 1.0
_PERIOD = 0.1
NOTICE = (
    "memdesc: compiling kernels, once for each width of elements and conversion; later calls find "
    "them on disk\n"
)


def _compiling_seconds() -> float:
    """Return how long kernels have been compiled, if they are now; nothing is loaded for that."""
    jit: Any = sys.modules.get("reorder.cpu.runtime.jit")
    seconds: Callable[[], float] = getattr(jit, "compiling_seconds", float)
    return seconds()


class CompileNotice:
    """Says that kernels are compiled, once that takes longer than a second.

    Use it as a context around what may compile; `seconds` says how long that takes so far.
    """

    def __init__(self, seconds: Callable[[], float] = _compiling_seconds) -> None:
        self._seconds = seconds
        self._ended = Event()
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        if sys.stderr is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_PERIOD):
            if self._seconds() > _PATIENCE:
                sys.stderr.write(NOTICE)
                sys.stderr.flush()
                return
