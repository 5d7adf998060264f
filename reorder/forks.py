"""Locks and imports that forks and signal handlers must wait for.

A fork waits, so that the child does not inherit a lock that none of its threads will release. This
module is imported before LLVM, so that a fork that waits for LLVM to be imported also takes the
locks of modules imported meanwhile. A signal handler is deferred while an exception from it would
leave a compiler half imported, or its tables half filled: every later call would then fail.

Hooks before a fork run last to first. Those here must run before that of logging: a fork that held
its lock, and waited for a thread that imports what logs, would wait for ever. Logging takes longer
to load than all kernels of a first reorder, so it is loaded, and the hooks are registered once more
after it, before anything is imported that may log.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
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


class _Importing:
    """Held while code is imported or compiled: a forked child cannot finish that."""

    _lock = threading.RLock()
    acquire = _lock.acquire
    release = _lock.release

    def __enter__(self) -> None:
        uninterrupted.__enter__()
        self.acquire()

    def __exit__(self, _kind: object, error: object, _traceback: object) -> None:
        self.release()
        uninterrupted.__exit__()
        if isinstance(error, FileNotFoundError):
            from reorder.disk import check_working_folder

            check_working_folder(error)  # packages that compilers import need one


class _ImportingOthers(_Importing):
    """The same lock, held while packages of others are imported, which may log."""

    def __enter__(self) -> None:
        if not _State.follows_logging:
            import logging

            _register()
            _State.follows_logging = True
            # waits for a fork that already holds the lock of logging, which all loggers need
            logging.getLogger("reorder")
        super().__enter__()


# for modules of this package, and for kernels that are loaded from files
importing_own = _Importing()
importing = _ImportingOthers()


class _State:
    """The registered hooks, and those whose `before` was called for the fork in progress."""

    hooks: tuple[tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]], ...] = ()
    waiting: tuple[tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]], ...] = ()
    # whether a hook here is registered after that of logging
    follows_logging = "logging" in sys.modules
    # the thread that forks, and how often `_before` was called for this fork
    forking: int | None = None
    calls = 0


def at_fork(
    before: Callable[[], Any], in_parent: Callable[[], Any], in_child: Callable[[], Any]
) -> None:
    """Register functions to call around every fork, while it holds `importing`."""
    _State.hooks += ((before, in_parent, in_child),)


def _before() -> None:
    importing.acquire()
    _State.calls += 1
    if _State.calls == 1:
        _State.forking = threading.get_ident()
        _State.waiting = _State.hooks
        for before, _, _ in _State.waiting:
            before()


def _is_last() -> bool:
    """Whether this is the last hook after a fork for which `_before` was called."""
    if _State.forking != threading.get_ident():
        return False  # registered during the fork
    _State.calls -= 1
    if _State.calls:
        importing.release()
        return False
    _State.forking = None
    return True


def _in_parent() -> None:
    if _is_last():
        for _, in_parent, _ in _State.waiting:
            in_parent()
        importing.release()


def _in_child() -> None:
    if _is_last():
        uninterrupted.forget()
        for _, _, in_child in _State.waiting:
            in_child()
        importing.release()


def _register() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)


_register()
