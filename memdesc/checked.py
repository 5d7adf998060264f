"""Checked: values that are copied and unpickled through their constructor, which checks the fields.

So a damaged pickle, or one from another version, gives an error or a valid value. This protects
against accidents only: a malicious pickle can run any code.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

import numpy as np

from memdesc.errors import MemdescError, short_repr
from memdesc.tuples import NamedTuple


class Checked:
    """Mixin for values that only their constructor makes. They are formatted as their text.

    Dataclasses need nothing else; other classes define `_arguments`.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return remade(type(self), *self._arguments())

    def __setstate__(self, _state: object) -> NoReturn:
        raise MemdescError(
            f"the pickle of a {type(self).__name__} sets fields without its constructor: it is "
            "damaged or from another version; make it again"
        )

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    @classmethod
    def _made(cls, *arguments: Any) -> Any:
        """Make a value from what `_arguments` returns."""
        return cls(*arguments)

    def _arguments(self) -> tuple[Any, ...]:
        """Return the arguments for the constructor."""
        return tuple(getattr(self, part.name) for part in fields(self) if part.init)  # type: ignore[arg-type] # of a dataclass; other classes override this


def remade(kind: type[Checked], *arguments: Any) -> tuple[Any, ...]:
    """Return what `__reduce__` returns, so that pickle calls the constructor with these arguments.

    The class is named by a string: given the class itself, pickle can make an object of it without
    the constructor.
    """
    return _make, (f"{kind.__module__}:{kind.__qualname__}", *map(_pickled, arguments))


def _make(name: str, *arguments: Any) -> Any:
    """Call the constructor of a class named `module:class`; unpickling calls this."""
    module, _, qualname = name.partition(":")
    kind = attrgetter(qualname)(import_module(module))
    if not (isinstance(kind, type) and issubclass(kind, Checked)):
        raise MemdescError(
            f"a pickle says that {name!r} is a value of memdesc, which it is not: it is damaged"
        )
    return kind._made(*map(_unpickled, arguments))  # noqa: SLF001 - of a class of this module


def check_types(value: Any, way_out: str = "") -> None:
    """Refuse a value by hand with a field that is not of the type that its class declares."""
    kind = type(value)
    for name, wanted in _types_of(kind):  # type: ignore[arg-type] # a class is hashable
        given = getattr(value, name)
        if not _is_of(given, wanted):
            declared = kind.__annotations__[name]
            text = getattr(declared, "__forward_arg__", declared)
            article = "an" if kind.__name__[0] in "AEIOU" else "a"
            raise MemdescError(
                f"{name} of {article} {kind.__name__} must be {text}, not {short_repr(given)}"
                f"{way_out}"
            )


@cache
def _types_of(kind: Hashable) -> list[tuple[str, Any]]:
    return [(name, hint) for name, hint in get_type_hints(kind).items() if name[0] != "_"]


def _is_of(value: Any, wanted: Any) -> bool:
    """Whether a value is of a type, or a tuple or a union of types; a bool is not a number."""
    parts = get_args(wanted)
    if get_origin(wanted) is tuple:
        if parts[-1] is ...:
            return isinstance(value, tuple) and all(_is_of(each, parts[0]) for each in value)
        is_pair = isinstance(value, tuple) and len(value) == len(parts)
        return is_pair and all(map(_is_of, value, parts))
    if parts:
        return any(_is_of(value, part) for part in parts)
    if wanted in (int, float):
        return type(value) is int or type(value) is wanted
    return isinstance(value, wanted)


class _Array(NamedTuple):
    """An array as bytes, or a numpy scalar, which has no shape here.

    numpy's own pickles contain dtype flags, which crash the process if they are damaged.
    """

    data: bytes
    dtype: str
    shape: tuple[int, ...] | None


def _pickled(value: Any) -> Any:
    """Return an argument with each array, also those in tuples, as an `_Array`."""
    if isinstance(value, np.ndarray | np.generic):
        shape = value.shape if isinstance(value, np.ndarray) else None
        return _Array(value.tobytes(), value.dtype.name, shape)
    return tuple(map(_pickled, value)) if type(value) is tuple else value


def _unpickled(value: Any) -> Any:
    """Undo `_pickled`."""
    if isinstance(value, _Array):
        array = np.frombuffer(value.data, value.dtype)
        return array[0] if value.shape is None else array.reshape(value.shape)
    return tuple(map(_unpickled, value)) if type(value) is tuple else value
