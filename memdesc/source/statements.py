"""Statements and expressions of generated functions, before a language spells them.

Expressions are strings of integers, names, parentheses, ``+ - * // % >> << & ^ | < >= and or``,
with the meaning and precedence of Python; `languages` replaces ``//``, ``and`` and ``or`` for other
languages. Operands of ``//`` and ``%`` are never negative, so all languages agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memdesc.dtypes import DataType
    from memdesc.layout import Block


class Loop(NamedTuple):
    """A loop of `name` from 0 to below `extent`; `is_shared` if work items of a device share it."""

    name: str
    extent: int
    body: tuple[Statement, ...]
    is_shared: bool = False


class Once(NamedTuple):
    """Statements that only one work item of a device runs."""

    body: tuple[Statement, ...]


class Let(NamedTuple):
    """A 64-bit constant; left out if nothing uses it."""

    name: str
    value: str


class If(NamedTuple):
    """A branch on a condition."""

    condition: str
    body: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


class Store(NamedTuple):
    """Store a value in an array's element, or zero if a given condition does not hold."""

    array: str
    dtype: DataType
    at: str
    value: str
    condition: str = ""


class AddInt32(NamedTuple):
    """Add a value to the int32 that starts at byte `at` of an array."""

    array: str
    at: str
    value: str


class ClearBytes(NamedTuple):
    """Set `nbytes` bytes of an array to 0, starting at byte `at`."""

    array: str
    at: int
    nbytes: int


class Return(NamedTuple):
    """Return the result of a function."""

    value: str


class Found(NamedTuple):
    """The end of an inverse: the index, and the condition that it is not padding."""

    names: tuple[str, ...]
    is_data: str


class Missing(NamedTuple):
    """The end of an inverse for an offset that no index has."""


Statement = Loop | Once | Let | If | Store | AddInt32 | ClearBytes | Return | Found | Missing


class Parameter(NamedTuple):
    """A parameter: a 64-bit integer, or an array of some type that is read or written."""

    name: str
    dtype: DataType | None = None
    is_written: bool = False


class Function(NamedTuple):
    """A function; `result` is ``"integer"``, ``"status"`` (an int) or empty.

    A function without a result writes memory, and is a kernel on devices.
    """

    name: str
    comment: tuple[str, ...]
    result: str
    parameters: tuple[Parameter, ...]
    body: tuple[Statement, ...]


def element(array: str, dtype: DataType, at: str) -> str:
    """Return the expression of an element; `at` must be a name if two elements share a byte."""
    if dtype.is_packed:
        return f"(({array}[{at} // 2] >> ({at} % 2 * 4)) & 15)"
    return f"{array}[{at}]"


def sum_of(constant: int, terms: Iterable[tuple[str, int]]) -> str:
    """Return the sum of a constant and of products of a factor and a stride.

    Partial sums from the left stay within int64 if the whole sum does, because the sum over the
    first digits of an index is the offset of another index.

    >>> sum_of(3, [("a", 20), ("b // 8", -1), ("c", 0)])
    '3 + a * 20 - b // 8'
    """
    parts = [str(constant)] if constant else []
    for factor, stride in terms:
        if not stride:
            continue
        size = abs(stride)
        product = factor if size == 1 else f"{factor} * {size}"
        sign = "-" if stride < 0 else "+"
        if parts:
            parts.append(f" {sign} {product}")
        elif stride < 0:
            parts.append(f"0 - {product}")
        else:
            parts.append(product)
    return "".join(parts) or "0"


def digit_terms(index: str, blocks: tuple[Block, ...]) -> list[tuple[str, int]]:
    """Return the digits of one axis and their strides; `index` is a name.

    Blocks of extent 1 add nothing, and the outermost other block needs no remainder.

    >>> from memdesc import memory_desc
    >>> digit_terms("b", memory_desc((2, 17), "f32", "aB8b").layout.axis_blocks(1))
    [('b // 8', 8), ('b % 8', 1)]
    """
    terms = []
    is_first = True
    for _, step, extent, stride in blocks:
        if extent <= 1:
            continue
        digit = f"{index} // {step}" if step > 1 else index
        if not is_first:
            digit += f" % {extent}"
        terms.append((digit, stride))
        is_first = False
    return terms


def joined_index(names: tuple[str, ...], sizes: tuple[int, ...]) -> str:
    """Return the row-major index of several dims.

    >>> joined_index(("a", "b", "c"), (2, 3, 4))
    '(a * 3 + b) * 4 + c'
    """
    first, *others = names
    joined = first
    for k, (name, size) in enumerate(zip(others, sizes[1:], strict=True)):
        joined = f"{f'({joined})' if k else joined} * {size} + {name}"
    return joined
