"""What a fork waits for, so that no lock is held in the child that no thread of it will release.

This module is imported before numba: a fork that waits for the import of numba takes the
locks of the imported modules as well.
"""

from __future__ import annotations

import logging  # noqa: F401 - its hook must be registered first; hooks before a fork run last to first
import os
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["at_fork", "importing"]

# Held while numba is imported: a child cannot finish an import that another thread began.
importing = threading.RLock()


class _State:
    hooks: tuple[tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]], ...] = ()
    waiting: tuple[tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]], ...] = ()


def at_fork(
    before: Callable[[], Any], in_parent: Callable[[], Any], in_child: Callable[[], Any]
) -> None:
    """Call functions around every fork, once `importing` is free."""
    _State.hooks += ((before, in_parent, in_child),)


def _before() -> None:
    importing.acquire()
    _State.waiting = _State.hooks
    for before, _, _ in _State.waiting:
        before()


def _in_parent() -> None:
    for _, in_parent, _ in _State.waiting:
        in_parent()
    importing.release()


def _in_child() -> None:
    for _, _, in_child in _State.waiting:
        in_child()
    importing.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
