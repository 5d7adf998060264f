"""Checked: values whose copies and pickles go through the constructor, which checks the fields.

A damaged pickle, or one of another version, then gives an error or a valid value. That protects
against accidents only: a pickle made to do harm runs any code.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, NoReturn

from memdesc.errors import MemdescError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Checked", "make"]


def make(kind: Callable[..., Any], *arguments: Any) -> Any:
    """Make a value by its constructor: what pickles name.

    They do not name the class itself, as pickle can make an object of a class without calling its
    constructor.
    """
    return kind(*arguments)


class Checked:
    """Mixin of values that are made by their constructor only.

    Dataclasses need nothing else. Other classes define `__reduce__`, which returns `make` and its
    arguments.
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        # in each class: frozen dataclasses with slots get their own, which would set any field
        cls.__setstate__ = _refuse_state  # type: ignore[attr-defined] # pickle looks for it

    def __reduce__(self) -> tuple[Any, ...]:
        given = (getattr(self, part.name) for part in fields(self) if part.init)  # type: ignore[arg-type] # see above
        return make, (type(self), *given)


def _refuse_state(self: Checked, _state: object) -> NoReturn:
    msg = (
        f"the pickle of a {type(self).__name__} sets fields without its constructor: it is damaged "
        "or from another version; make it again"
    )
    raise MemdescError(msg)
