"""Statements of generated functions, before they are written in a language.

Expressions are strings of integers, names, parentheses and ``+ - * // % >> & | < >= and or``,
with the meaning and precedence of Python; `languages` writes ``//``, ``and`` and ``or`` as others
spell them. Operands of ``//`` and ``%`` are never negative, so that all languages agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from memdesc.dtypes import DataType

__all__ = [
    "AddInt32",
    "ClearBytes",
    "Found",
    "Function",
    "If",
    "Let",
    "Loop",
    "Missing",
    "Once",
    "Parameter",
    "Return",
    "Statement",
    "Store",
    "element",
]


class Loop(NamedTuple):
    """A loop of `name` from 0 up to `extent`; `is_shared` if work items of a device divide it."""

    name: str
    extent: int
    body: tuple[Statement, ...]
    is_shared: bool = False


class Once(NamedTuple):
    """Statements that one work item of a device runs, whatever their number."""

    body: tuple[Statement, ...]


class Let(NamedTuple):
    """A constant of 64 bits; it is left out where nothing uses it."""

    name: str
    value: str


class If(NamedTuple):
    """A branch."""

    condition: str
    body: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


class Store(NamedTuple):
    """An element of an array gets a value; zero where a condition is given and does not hold."""

    array: str
    dtype: DataType
    at: str
    value: str
    condition: str = ""


class AddInt32(NamedTuple):
    """Four bytes of an array, from byte `at` on, are an int32 to which a value is added."""

    array: str
    at: str
    value: str


class ClearBytes(NamedTuple):
    """`nbytes` of an array, from byte `at` on, become 0."""

    array: str
    at: int
    nbytes: int


class Return(NamedTuple):
    """The result of a function."""

    value: str


class Found(NamedTuple):
    """The end of an inverse: the index, and a condition for elements that are no padding."""

    names: tuple[str, ...]
    is_data: str


class Missing(NamedTuple):
    """The end of an inverse for an offset that no index has."""


Statement = Loop | Once | Let | If | Store | AddInt32 | ClearBytes | Return | Found | Missing


class Parameter(NamedTuple):
    """A parameter: an integer of 64 bits, or an array of a type that is read or written."""

    name: str
    dtype: DataType | None = None
    is_written: bool = False


class Function(NamedTuple):
    """A function; `result` is ``"integer"``, ``"status"`` (an int) or empty.

    One without a result writes memory, and is a kernel on devices.
    """

    name: str
    comment: tuple[str, ...]
    result: str
    parameters: tuple[Parameter, ...]
    body: tuple[Statement, ...]


def element(array: str, dtype: DataType, at: str) -> str:
    """Return the expression of an element: `at` is a name where two elements share a byte."""
    if dtype.is_packed:
        return f"(({array}[{at} // 2] >> ({at} % 2 * 4)) & 15)"
    return f"{array}[{at}]"
