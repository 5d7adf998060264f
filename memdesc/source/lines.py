"""Lines of generated functions and their expressions, before a language spells them.

Both have Python's syntax. Expressions are made of integers, names, parentheses and
``+ - * // % >> << & ^ | < >= and or``; operands of ``//`` and ``%`` are never negative, so all
languages agree. A comment ``# shared`` marks a loop that the work items of a device share, and
``# packed`` the store of a byte with two elements. The body of ``once:`` runs in one work item.
What follows ``return`` and its comment are an index and the condition that it is not padding. A
line that ends with a semicolon is C's.
"""

from __future__ import annotations

from collections.abc import Iterable

from memdesc.dtypes import DataType
from memdesc.layout import Block
from memdesc.tuples import NamedTuple


class Line(NamedTuple):
    """A statement, and those inside it."""

    text: str
    body: tuple[Line, ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.text, *map(str, self.body)])


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
    body: tuple[Line, ...]


def let(name: str, value: str) -> Line:
    """Return the definition of a 64-bit constant; it is left out if nothing uses it."""
    return Line(f"{name} = {value}")


def loops(extents: Iterable[tuple[str, int]], body: tuple[Line, ...]) -> tuple[Line, ...]:
    """Return nested loops over names from 0 to below their extents, outermost first."""
    for name, extent in reversed([*extents]):
        body = (Line(f"for {name} in range({extent}):", body),)
    return body


def when(condition: str, body: tuple[Line, ...], other: tuple[Line, ...] = ()) -> tuple[Line, ...]:
    """Return a branch; without a condition its body."""
    if not condition:
        return body
    return (Line(f"if {condition}:", body), *((Line("else:", other),) if other else ()))


def store(dtype: DataType, at: str, value: str) -> tuple[Line, ...]:
    """Return the lines that store an element of dst."""
    if not dtype.is_packed:
        return (Line(f"dst[{at}] = {value}"),)
    kept = "dst[at_dst // 2] & (240 >> (at_dst % 2 * 4))"
    bits = kept if value == "0" else f"({kept}) | {value} << (at_dst % 2 * 4)"
    return let("at_dst", at), Line(f"dst[at_dst // 2] = {bits}  # packed")


def store_data(
    dtype: DataType, at: str, value: str, is_data: str, lets: tuple[Line, ...] = ()
) -> tuple[Line, ...]:
    """Return the lines that store a value, which needs some constants, or zero for padding."""
    if not lets and not dtype.is_packed:
        return store(dtype, at, f"{value} if {is_data} else 0" if is_data else value)
    return when(is_data, (*lets, *store(dtype, at, value)), store(dtype, at, "0"))


def element(array: str, dtype: DataType, at: str) -> str:
    """Return the expression of an element; `at` must be a name if two elements share a byte."""
    if dtype.is_packed:
        return f"(({array}[{at} // 2] >> ({at} % 2 * 4)) & 15)"
    return f"{array}[{at}]"


def share_loops(body: tuple[Line, ...], dtype: DataType) -> tuple[Line, ...]:
    """Return a loop nest whose outermost loop the work items of a device share.

    If there is no loop, or two elements share a byte, one work item runs all of it.
    """
    first, *others = body
    if others or not first.text.startswith("for ") or dtype.is_packed:
        return (Line("once:", body),)
    return (first._replace(text=f"{first.text}  # shared"),)


def about_elements(dtype: DataType) -> str:
    """Return the sentence of a comment that describes the elements of an array."""
    if dtype.is_packed:
        return f"Elements are {dtype}, two per byte, the even one in its low half."
    return f"Elements are {dtype}, or its bits."


def sum_of(constant: int, terms: Iterable[tuple[str, int]]) -> str:
    """Return the sum of a constant and of products of a factor and a stride.

    Partial sums from the left stay within int64 if the whole sum does, because the sum over the
    first digits of an index is the offset of another index.
    """
    text = str(constant) if constant else ""
    for factor, stride in terms:
        if stride:
            product = factor if abs(stride) == 1 else f"{factor} * {abs(stride)}"
            sign = "-" if stride < 0 else "+"
            text = f"{text or '0'} {sign} {product}" if text or stride < 0 else product
    return text or "0"


def digit_terms(index: str, blocks: tuple[Block, ...]) -> list[tuple[str, int]]:
    """Return the digits of one axis and their strides; `index` is a name.

    Blocks of extent 1 add nothing, and the outermost other block needs no remainder.
    """
    terms: list[tuple[str, int]] = []
    for _, step, extent, stride in blocks:
        if extent > 1:
            digit = f"{index} // {step}" if step > 1 else index
            terms.append((f"{digit} % {extent}" if terms else digit, stride))
    return terms


def joined_index(names: tuple[str, ...], sizes: tuple[int, ...]) -> str:
    """Return the row-major index of several dims."""
    joined = names[0]
    for k in range(1, len(names)):
        joined = f"{f'({joined})' if k > 1 else joined} * {sizes[k]} + {names[k]}"
    return joined
