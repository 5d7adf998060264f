"""Locks and imports that forks, and the end of the interpreter, must wait for.

A fork waits, so that the child does not inherit a lock that none of its threads will release. This
module is imported before LLVM, so that a fork that waits for LLVM to be imported also takes the
locks of modules imported meanwhile.

Hooks before a fork run last to first. Those here must run before that of logging: a fork that held
its lock, and waited for a thread that imports what logs, would wait forever. Logging takes longer
to load than all kernels of a first reorder, so it is loaded, and the hooks are registered once more
after it, before anything is imported that may log.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

# Held while modules of this package are imported, or kernels loaded without LLVM: a forked child
# cannot finish that. Methods in Python would leave it held if a handler of a signal raised in them.
importing_own = threading.RLock()


def importing() -> AbstractContextManager[Any]:
    """Return the same lock, for code of others that is imported or compiled, which may log."""
    if not _State.follows_logging:
        _load_logging()
        _register()
        import logging

        # waits for a fork that already holds the lock of logging, which all loggers need
        logging.getLogger("reorder")
        _State.follows_logging = True
    return importing_own


# How many seconds the end of the interpreter waits for a thread that compiles, and how many a
# thread that would compile waits for the end.
_LONGEST, _PATIENCE = 60, 5


def is_ending() -> bool:
    """Whether the interpreter ends, and this is not its main thread, so it must not compile."""
    return _State.is_ending and threading.current_thread() is not threading.main_thread()


def wait_for_end() -> None:
    """Wait until the process has ended; go on after a while, as it may wait for this thread."""
    time.sleep(_PATIENCE)
    _State.is_ending = False


@atexit.register
def _end() -> None:
    """Wait for code that is being compiled; then other threads compile no more.

    A process that ends destroys what LLVM uses, and would crash if a thread still compiled.
    """
    _State.is_ending = True
    if importing_own.acquire(timeout=_LONGEST):
        importing_own.release()


class _State:
    """The registered hooks, and those whose `before` was called for the fork in progress."""

    hooks: tuple[tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]], ...] = ()
    waiting: tuple[tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]], ...] = ()
    # whether a hook here is registered after that of logging
    follows_logging = "logging" in sys.modules
    # the thread that forks, and how often `_before` was called for this fork
    forking: int | None = None
    calls = 0
    is_ending = False


def at_fork(
    before: Callable[[], Any], in_parent: Callable[[], Any], in_child: Callable[[], Any]
) -> None:
    """Register functions to call around every fork, while it holds `importing_own`."""
    _State.hooks += ((before, in_parent, in_child),)


def _before() -> None:
    importing_own.acquire()
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
        importing_own.release()
        return False
    _State.forking = None
    return True


def _in_parent() -> None:
    if _is_last():
        for _, in_parent, _ in _State.waiting:
            in_parent()
        importing_own.release()


def _in_child() -> None:
    if _is_last():
        _State.is_ending = False
        for _, _, in_child in _State.waiting:
            in_child()
        importing_own.release()


def _load_logging() -> None:
    """Import logging while no fork waits for the import: the fork could hold logging's lock.

    A child that is forked meanwhile can import logging, as it inherits neither a part of the module
    nor the lock of its import.
    """
    with importing_own:
        import string  # noqa: F401 - logging imports both
        import traceback  # noqa: F401
        from importlib.util import find_spec, module_from_spec
    spec = None if "logging" in sys.modules else find_spec("logging")
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules.setdefault("logging", module)


def _register() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)


_register()
