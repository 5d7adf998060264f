"""Checked: values whose copies and pickles go through the constructor, which checks the fields.

A damaged pickle, or one of another version, then gives an error or a valid value. That protects
against accidents only: a pickle made to do harm runs any code.
"""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from operator import attrgetter
from typing import Any, NamedTuple, NoReturn

import numpy as np

from memdesc.errors import MemdescError


class Checked:
    """Mixin of values that are made by their constructor only.

    Dataclasses need nothing else; other classes define `_arguments`.
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        # in each class: frozen dataclasses with slots get their own, which would set any field
        cls.__setstate__ = _refuse_state  # type: ignore[attr-defined] # pickle looks for it

    def __reduce__(self) -> tuple[Any, ...]:
        return remade(type(self), *self._arguments())

    def _arguments(self) -> tuple[Any, ...]:
        """Return what the constructor takes."""
        return tuple(getattr(self, part.name) for part in fields(self) if part.init)  # type: ignore[arg-type] # see above


def remade(kind: type[Checked], *arguments: Any) -> tuple[Any, ...]:
    """Return what `__reduce__` must, so that the constructor is called with these arguments.

    The class is a string, as pickle can make an object of a class without its constructor.
    """
    return _make, (f"{kind.__module__}:{kind.__qualname__}", *map(_pickled, arguments))


def _make(name: str, *arguments: Any) -> Any:
    module, _, qualname = name.partition(":")
    kind = attrgetter(qualname)(import_module(module))
    if not (isinstance(kind, type) and issubclass(kind, Checked)):
        msg = f"a pickle says that {name!r} is a value of memdesc, which it is not: it is damaged"
        raise MemdescError(msg)
    return kind(*map(_unpickled, arguments))


class _Array(NamedTuple):
    """An array, or a scalar without a shape, as bytes.

    numpy's own pickles hold flags of dtypes, which crash the process where they are damaged.
    """

    data: bytes
    dtype: str
    shape: tuple[int, ...] | None


def _pickled(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        shape = value.shape if isinstance(value, np.ndarray) else None
        return _Array(value.tobytes(), value.dtype.name, shape)
    return tuple(map(_pickled, value)) if type(value) is tuple else value


def _unpickled(value: Any) -> Any:
    if isinstance(value, _Array):
        array = np.frombuffer(value.data, value.dtype)
        return array[0] if value.shape is None else array.reshape(value.shape)
    return tuple(map(_unpickled, value)) if type(value) is tuple else value


def _refuse_state(self: Checked, _state: object) -> NoReturn:
    msg = (
        f"the pickle of a {type(self).__name__} sets fields without its constructor: it is damaged "
        "or from another version; make it again"
    )
    raise MemdescError(msg)
