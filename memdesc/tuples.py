"""Named tuples like those of typing, and constructors, without compiling code for each class.

`typing.NamedTuple` compiles a function for each class and an expression for each annotation. For
the classes that a first reorder needs, this took a sixth of the time to import them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any


def constructor(
    names: tuple[str, ...], defaults: Iterable[Any], make: Callable[..., Any], home: str
) -> Any:
    """Return a function that passes its first argument on, and the named ones as a tuple.

    The last of the names have the defaults; the types of its arguments are found in module `home`.
    """
    code = _code(len(names)).replace(co_varnames=("_first", *names))
    closure = (CellType(make),)
    return FunctionType(code, vars(sys.modules[home]), make.__name__, tuple(defaults), closure)


@cache
def _code(count: int) -> CodeType:
    """Return the code of a constructor with this many arguments."""
    if count < len(_CONSTRUCTORS):
        outer = _CONSTRUCTORS[count]
    else:
        names = "".join(f"_{number}, " for number in range(count))
        outer = eval(f"lambda _make: lambda _first, {names}: _make(_first, ({names}))")  # noqa: S307 - of numbers
    code: CodeType = outer(None).__code__
    return code


# Those of few arguments, which most classes have: Python compiles them once, with this module.
_CONSTRUCTORS: tuple[Callable[..., Any], ...] = (
    lambda make: lambda first: make(first, ()),
    lambda make: lambda first, a: make(first, (a,)),
    lambda make: lambda first, a, b: make(first, (a, b)),
    lambda make: lambda first, a, b, c: make(first, (a, b, c)),
    lambda make: lambda first, a, b, c, d: make(first, (a, b, c, d)),
    lambda make: lambda first, a, b, c, d, e: make(first, (a, b, c, d, e)),
    lambda make: lambda first, a, b, c, d, e, f: make(first, (a, b, c, d, e, f)),
    lambda make: lambda first, a, b, c, d, e, f, g: make(first, (a, b, c, d, e, f, g)),
    lambda make: lambda first, a, b, c, d, e, f, g, h: make(first, (a, b, c, d, e, f, g, h)),
)


if TYPE_CHECKING or sys.version_info >= (3, 14):  # where bodies of classes hold no annotations
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - it is exported
else:

    class _Tuple(tuple):
        """The methods of all named tuples."""

        __slots__ = ()

        @classmethod
        def _make(cls, iterable: Iterable[Any]) -> Any:
            made = tuple.__new__(cls, iterable)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **changes: Any) -> Any:
            made = self._make(map(changes.pop, self._fields, self))
            if changes:
                raise ValueError(f"Got unexpected field names: {[*changes]!r}")
            return made

        __replace__ = _replace

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            shown = (f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({', '.join(shown)})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

    class _Maker(type):
        """Makes an ordinary class of each class that inherits from NamedTuple."""

        def __new__(cls, title: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
            if not bases:
                return super().__new__(cls, title, bases, body)
            fields = tuple(body.get("__annotations__", ()))
            defaults = {name: body.pop(name) for name in fields if name in body}
            new = constructor(fields, defaults.values(), tuple.__new__, body["__module__"])
            new.__qualname__ = f"{body['__qualname__']}.__new__"
            new.__annotations__ = body.get("__annotations__", {})
            items = {
                name: _Item(at, f"Alias for field number {at}") for at, name in enumerate(fields)
            }
            made = {
                "__doc__": f"{title}({', '.join(fields)})",
                "__slots__": (),
                "__match_args__": fields,
                "__orig_bases__": bases,
                "__new__": new,
                "_fields": fields,
                "_field_defaults": defaults,
            }
            return type(title, (_Tuple,), items | made | body)

    class NamedTuple(metaclass=_Maker):
        """A base class: the annotations of a class that inherits from it are its fields."""

    # the descriptor of an item, written in C
    _Item: Any = type(type(_code.cache_info()).hits)
