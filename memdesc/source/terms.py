"""Expressions of offsets: sums of digits times strides."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memdesc.blocks import Block

__all__ = ["digit_terms", "joined_index", "sum_of"]


def sum_of(constant: int, terms: Iterable[tuple[str, int]]) -> str:
    """Return the sum of a constant and of factors times strides.

    Partial sums from the left stay within int64 if the whole does, since the sum over the first
    digits of an index is the offset of another index.

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

    Blocks of one step add nothing, and the outermost block that has more needs no remainder.

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
