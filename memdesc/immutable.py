"""Immutable: what a value says when one of its attributes is set or deleted."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import NoReturn, TypeVar

from memdesc.errors import short_repr

T = TypeVar("T")


def immutable(kind: type[T]) -> type[T]:
    """Refuse to set or delete any attribute of a class's instances; a decorator.

    It goes above `dataclass(frozen=True)`, whose own refusal fails for names that are not fields
    if the class has slots. A class sets its fields with `object.__setattr__`. Its `_another`, if it
    has one, says in messages how to make another value.

    Examples
    --------
    >>> memdesc.Block(axis=0, step=1, extent=0, stride=4).stride = 8
    Traceback (most recent call last):
        ...
    AttributeError: a Block is immutable, so 'stride' cannot be set; \
value._replace(stride=...) returns a changed copy
    """
    kind.__setattr__ = _refuse_set  # type: ignore[method-assign] # it never returns
    kind.__delattr__ = _refuse_delete  # type: ignore[method-assign] # likewise
    return kind


def _refuse_set(self: object, name: str, _value: object) -> NoReturn:
    raise AttributeError(_reason(type(self), name, "set"), name=name, obj=self)


def _refuse_delete(self: object, name: str) -> NoReturn:
    raise AttributeError(_reason(type(self), name, "deleted"), name=name, obj=self)


def _reason(kind: type, name: str, done: str) -> str:
    """Return why an attribute cannot be set, and how to get a changed copy."""
    title = kind.__name__
    article = "an" if title[0] in "AEIOU" else "a"
    named = [part.name for part in fields(kind) if part.init] if is_dataclass(kind) else []
    if not hasattr(kind, name) and name not in named:
        from difflib import get_close_matches  # only needed for a wrong name

        known = [*named, *(part for part in dir(kind) if not part.startswith("_"))]
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"{article} {title} is immutable, and has no attribute {short_repr(name)}{hint}"
    if (another := getattr(kind, "_another", None)) is not None:
        copied = another
    elif name in getattr(kind, "_fields", ()):
        copied = f"value._replace({name}=...) returns a changed copy"
    elif name in named:
        copied = f"dataclasses.replace(value, {name}=...) returns a changed copy"
    else:
        copied = f"make another {title}"
    return f"{article} {title} is immutable, so {name!r} cannot be {done}; {copied}"
