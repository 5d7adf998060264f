"""Immutable values: how they are made, and what they say when an attribute is set or deleted."""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from operator import attrgetter
from typing import Any, NoReturn, TypeVar, dataclass_transform

from memdesc.errors import short_repr
from memdesc.tuples import constructor

T = TypeVar("T")


def immutable(cls: type[T]) -> type[T]:
    """Refuse to set or delete any attribute of a class's instances; a decorator.

    A class sets its fields with `object.__setattr__`. Its `_another`, if it has one, says in
    messages how to make another value.

    >>> memdesc.Block(axis=0, step=1, extent=0, stride=4).stride = 8
    Traceback (most recent call last):
        ...
    AttributeError: a Block is immutable, so 'stride' cannot be set; \
value._replace(stride=...) returns a changed copy
    """
    cls.__setattr__ = _refuse_set  # type: ignore[method-assign] # it never returns
    cls.__delattr__ = _refuse_delete  # type: ignore[method-assign] # likewise
    return cls


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value_class(cls: type[T]) -> type[T]:
    """Make an immutable dataclass; add equality, a hash and a repr unless the class has its own.

    `dataclass(frozen=True)` compiles six functions for each class, and so took a tenth of the first
    call of a process; this compiles none.
    """
    cls = dataclass(init=False, repr=False, eq=False)(cls)
    members = fields(cls)  # type: ignore[arg-type] # it is a dataclass now
    own = vars(cls)
    made = {"__init__": _constructor(cls, members)}
    if "__repr__" not in own:
        shown = [member.name for member in members if member.repr]
        made["__repr__"] = lambda self: (
            f"{type(self).__qualname__}"
            f"({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"
        )
    if "__eq__" not in own:
        compared = attrgetter(*(member.name for member in members if member.compare))
        made["__eq__"] = lambda self, other: (
            compared(self) == compared(other) if type(other) is type(self) else NotImplemented
        )
        made["__hash__"] = lambda self: hash(compared(self))
    for name, function in made.items():
        function.__name__ = name
        function.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, function)
    return immutable(cls)


def _constructor(cls: type, members: tuple[Field[Any], ...]) -> Any:
    """Return a constructor that sets the fields, and calls `__post_init__` if there is one."""
    has_check = hasattr(cls, "__post_init__")
    given = [member for member in members if member.init]
    names = tuple(member.name for member in given)
    factories = {member.name: member.default_factory for member in given}
    defaults = (member.default for member in given if member.default is not member.default_factory)
    put = object.__setattr__

    def fill(self: Any, values: tuple[Any, ...]) -> None:
        for name, value in zip(names, values):  # noqa: B905 - the constructor gives one for each
            put(self, name, factories[name]() if value is MISSING else value)  # type: ignore[operator] # only a field with a factory has no default
        if has_check:
            self.__post_init__()

    made = constructor(names, defaults, fill, cls.__module__)
    made.__annotations__ = {member.name: member.type for member in given} | {"return": None}
    return made


def part(path: str, doc: str | None) -> Any:
    """Return a property with the value of a part, such as `layout.dims`."""
    return property(attrgetter(path), doc=doc)


def _refuse_set(self: object, name: str, _value: object) -> NoReturn:
    raise AttributeError(_reason(type(self), name, "set"), name=name, obj=self)


def _refuse_delete(self: object, name: str) -> NoReturn:
    raise AttributeError(_reason(type(self), name, "deleted"), name=name, obj=self)


def _reason(cls: type, name: str, done: str) -> str:
    """Return why an attribute cannot be set, and how to get a changed copy."""
    title = cls.__name__
    article = "an" if title[0] in "AEIOU" else "a"
    members = fields(cls) if is_dataclass(cls) else ()
    named = [member.name for member in members if member.init]
    if not hasattr(cls, name) and name not in {member.name for member in members}:
        return f"{article} {title} is immutable, and has no attribute {short_repr(name)}"
    if (another := getattr(cls, "_another", None)) is not None:
        copied = another
    elif name in getattr(cls, "_fields", ()):
        copied = f"value._replace({name}=...) returns a changed copy"
    elif name in named:
        copied = f"dataclasses.replace(value, {name}=...) returns a changed copy"
    else:
        copied = f"make another {title}"
    return f"{article} {title} is immutable, so {name!r} cannot be {done}; {copied}"
