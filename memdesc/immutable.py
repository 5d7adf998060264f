"""Immutable values: how they are made, and what they say when an attribute is set or deleted."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, NoReturn, TypeVar, dataclass_transform

from memdesc.errors import short_repr
from memdesc.lazy import import_lock
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


class _Options(dict[str, Any]):
    """The options of a field of a value class: what `dataclasses.field` takes."""


def field(**options: Any) -> Any:
    """Return what the body of a value class assigns to a field with options."""
    return _Options(options)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value_class(cls: type[T]) -> type[T]:
    """Make an immutable dataclass; add equality, a hash and a repr unless the class has its own.

    `dataclasses` takes long to load, and compiles six functions for each frozen class. Without it,
    the first call of a process takes a tenth less time.
    """
    members: dict[str, _Options] = {}
    for name, declared in cls.__annotations__.items():
        if not str(declared).startswith("ClassVar"):
            given = vars(cls).get(name, _Options())
            members[name] = given if isinstance(given, _Options) else _Options(default=given)
            if "default" in members[name]:
                setattr(cls, name, members[name]["default"])
            elif name in vars(cls):
                delattr(cls, name)
    arguments = {name: member for name, member in members.items() if member.get("init", True)}
    made = {"__init__": _constructor(cls, arguments)}
    if "__repr__" not in vars(cls):
        shown = [name for name, member in members.items() if member.get("repr", True)]
        made["__repr__"] = lambda self: (
            f"{type(self).__qualname__}"
            f"({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"
        )
    if "__eq__" not in vars(cls):
        compared = attrgetter(
            *(name for name, member in members.items() if member.get("compare", True))
        )
        made["__eq__"] = lambda self, other: (
            compared(self) == compared(other) if type(other) is type(self) else NotImplemented
        )
        made["__hash__"] = lambda self: hash(compared(self))
    for name, function in made.items():
        function.__name__ = name
        function.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, function)
    further = {"__match_args__": tuple(arguments), "__replace__": _replace}
    for name, value in {**further, "__dataclass_fields__": _Fields(cls, members)}.items():
        setattr(cls, name, value)
    return immutable(cls)


def _constructor(cls: type, arguments: dict[str, _Options]) -> Any:
    """Return a constructor that sets the fields, and calls `__post_init__` if there is one."""
    has_check = hasattr(cls, "__post_init__")
    names = tuple(arguments)
    defaults = (option["default"] for option in arguments.values() if "default" in option)
    put = object.__setattr__

    def fill(self: Any, values: tuple[Any, ...]) -> None:
        for name, value in zip(names, values):  # noqa: B905 - the constructor gives one for each
            put(self, name, value)
        if has_check:
            self.__post_init__()

    made = constructor(names, defaults, fill, cls.__module__)
    made.__annotations__ = {name: cls.__annotations__[name] for name in names} | {"return": None}
    return made


class _Fields:
    """The fields of a class as `dataclasses` has them, made when it asks for them."""

    def __init__(self, owner: Any, members: dict[str, _Options]) -> None:
        self._owner, self._members = owner, members

    def __get__(self, _value: object, _cls: type) -> Any:
        module, owner = _dataclasses(), self._owner
        parts = [
            (name, owner.__annotations__[name], module.field(**member))
            for name, member in self._members.items()
        ]
        made = module.make_dataclass(owner.__name__, parts, init=False, repr=False, eq=False)
        # a dataclass that inherits from this class asks for both, the fields first
        owner.__dataclass_params__ = made.__dataclass_params__
        owner.__dataclass_fields__ = made.__dataclass_fields__
        return made.__dataclass_fields__


def _replace(self: Any, /, **changes: Any) -> Any:
    return _dataclasses().replace(self, **changes)


def _dataclasses() -> Any:
    with import_lock:
        import dataclasses
    return dataclasses


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
    if not hasattr(cls, name) and name not in getattr(cls, "__dataclass_fields__", ()):
        return f"{article} {title} is immutable, and has no attribute {short_repr(name)}"
    if (another := getattr(cls, "_another", None)) is not None:
        copied = another
    elif name in getattr(cls, "_fields", ()):
        copied = f"value._replace({name}=...) returns a changed copy"
    elif name in getattr(cls, "__match_args__", ()):
        copied = f"dataclasses.replace(value, {name}=...) returns a changed copy"
    else:
        copied = f"make another {title}"
    return f"{article} {title} is immutable, so {name!r} cannot be {done}; {copied}"
