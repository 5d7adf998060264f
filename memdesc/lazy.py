"""What is made at its first use: names of a package, and attributes of a value."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property as locked_property
from importlib import import_module
from typing import Any, TypeVar

_Value = TypeVar("_Value")

# Held during an import: a child forked meanwhile by another thread could not finish that import.
import_lock = threading.RLock()
with suppress(AttributeError):  # Windows does not fork
    os.register_at_fork(
        before=import_lock.acquire,
        after_in_parent=import_lock.release,
        after_in_child=import_lock.release,
    )


class cached_property(locked_property[_Value]):  # noqa: N801 - that of functools
    """A cached property that holds no lock, unlike that of Python 3.11.

    A child that is forked while another thread holds one could never get it.
    """

    def __init__(self, function: Callable[[Any], _Value]) -> None:
        super().__init__(function)
        self.lock = nullcontext()


def lazy(
    package: str,
    homes: Mapping[str, str],
    modules: Collection[str] = (),
    importing: Callable[[], AbstractContextManager[Any]] = lambda: import_lock,
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
