"""Handlers of signals that wait while code of others is imported or compiled.

An exception from a handler would leave a compiler half imported, or its tables half filled: every
later call would then fail.
"""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

# Signals whose handlers often raise: Ctrl-C, a request to end, a time limit, a closed terminal.
_DEFERRED = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP")
    if hasattr(signal, name)
)


class _Uninterrupted:
    """A context that defers signal handlers until it exits; it can be nested.

    Handlers only run on the main thread, so entering it on another thread has no effect.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._handlers: list[tuple[int, Any]] = []
        self._caught: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            self._depth += 1
            if self._depth == 1:
                self._replace()
        except BaseException:
            # raised by the handler of a signal that is not deferred yet
            self._depth = 0
            self._restore()
            raise

    def __exit__(self, *_: object) -> None:
        if not self._depth or threading.current_thread() is not threading.main_thread():
            return
        self._depth -= 1
        if not self._depth:
            try:
                self._restore()
            finally:
                self._deliver()

    def forget(self) -> None:
        """Restore the handlers in a child that another thread forked."""
        self._depth = 0
        self._caught.clear()
        self._restore()

    def _replace(self) -> None:
        # in an embedding program, Python's main thread may be one on which no handler can be set
        with suppress(ValueError):
            for number in _DEFERRED:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers.append((number, handler))
                    signal.signal(number, self._defer)

    def _defer(self, number: int, frame: FrameType | None) -> None:
        self._caught.append((number, frame))

    def _restore(self) -> None:
        # a restored handler may run at once and raise; the others must still be restored
        while self._handlers:
            number, handler = self._handlers[-1]
            try:
                if signal.getsignal(number) == self._defer:
                    signal.signal(number, handler)
            except BaseException:
                self._restore()
                raise
            self._handlers.pop()

    def _deliver(self) -> None:
        while self._caught:
            number, frame = self._caught.pop(0)
            handler = signal.getsignal(number)
            if callable(handler):
                try:
                    handler(number, frame)
                finally:
                    self._deliver()


uninterrupted = _Uninterrupted()
