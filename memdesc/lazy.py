"""Names of a package that are imported at their first use."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from typing import Any

# Held during an import: a child forked meanwhile by another thread could not finish that import.
_importing = threading.RLock()
with suppress(AttributeError):  # Windows does not fork
    os.register_at_fork(
        before=_importing.acquire,
        after_in_parent=_importing.release,
        after_in_child=_importing.release,
    )


def lazy(
    package: str,
    homes: Mapping[str, str],
    modules: Collection[str] = (),
    importing: Callable[[], AbstractContextManager[Any]] = lambda: _importing,
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package; `homes` has the module of each name.

    `modules` are those that the package's name alone gives access to; `importing` returns the lock
    that is held during an import.
    """

    def load(name: str) -> Any:
        if name in modules:
            with importing():
                return import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with importing():
            value = getattr(import_module(homes[name]), name)
        vars(sys.modules[package])[name] = value
        return value

    return load


def public(package: dict[str, Any]) -> Callable[[], list[str]]:
    """Return the `__dir__` of a package: its public names and the dunder names, no submodules."""
    return lambda: [*package["__all__"], *(name for name in package if name.startswith("__"))]
