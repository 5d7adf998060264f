"""Attributes of a package whose modules are loaded at their first use."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["lazy_attributes"]

# held meanwhile: a child that another thread forks could not finish the import
_importing = threading.RLock()


def lazy_attributes(package: dict[str, Any], modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package, given by its `globals()`.

    `modules` has the module of each name.
    """

    def load(name: str) -> Any:
        if name not in modules:
            msg = f"module {package['__name__']!r} has no attribute {name!r}"
            raise AttributeError(msg)
        with _importing:
            package[name] = value = getattr(import_module(modules[name]), name)
        return value

    return load


# Windows has no forks
with suppress(AttributeError):
    os.register_at_fork(
        before=_importing.acquire,
        after_in_parent=_importing.release,
        after_in_child=_importing.release,
    )
