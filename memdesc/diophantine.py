"""Solve a linear Diophantine equation with bounded unknowns, by a search that does bounded work.

Such an equation decides whether two indices of a layout share an element, whether two buffers share
a byte, and which index has a given offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from memdesc.tuples import NamedTuple

# Values tried in one search; 20,000 take about 20 ms.
_BUDGET = 20_000


class SearchLimitError(Exception):
    """A search used up its budget before it found an answer."""


class Term(NamedTuple):
    """An integer from `low` to `high`, which is multiplied by `stride` in the sum."""

    stride: int
    low: int
    high: int


def solve(terms: Iterable[Term], target: int, *, trivial: bool = True) -> tuple[int, ...] | None:
    """Find integers within their ranges whose sum, weighted by the strides, is a target.

    A depth-first search, largest stride first. The range that the smaller strides can add limits
    each choice to a few values, so strides that nearly nest take a few steps. A choice is skipped
    if the common divisor of the smaller strides does not divide what remains.

    Ranges are not empty and strides not 0; `trivial` says whether all zeros counts as an answer.
    Returns one answer, in the order of the terms; None if there is none. Fails with a
    `SearchLimitError` if the budget ran out before there was an answer.
    """
    terms = tuple(terms)
    order = sorted(range(len(terms)), key=lambda k: -abs(terms[k].stride))
    by_stride = [terms[k] for k in order]
    # for the terms from the k-th on: the least and the highest sum, and a divisor of all sums
    suffixes = [(0, 0, 0)]
    for stride, first, last in reversed(by_stride):
        (low, high, divisor), ends = suffixes[0], (stride * first, stride * last)
        suffixes.insert(0, (low + min(ends), high + max(ends), gcd(divisor, stride)))
    n_tried = 0
    stack: list[tuple[int, tuple[int, ...]]] = [(target, ())]
    while stack:
        remainder, chosen = stack.pop()
        k = len(chosen)
        if k == len(order):
            if remainder == 0 and (trivial or any(chosen)):
                return tuple(value for _, value in sorted(zip(order, chosen, strict=True)))
            continue
        stride, first, last = by_stride[k]
        low, high, divisor = suffixes[k + 1]
        # the values that leave a remainder within reach of the terms after this one
        low, high = sorted((remainder - low, remainder - high))
        if stride < 0:
            low, high = -high, -low
        size = abs(stride)
        values = range(max(first, -(-low // size)), min(last, high // size) + 1)
        n_tried += len(values)
        if n_tried > _BUDGET:
            raise SearchLimitError
        for value in values:
            left = remainder - value * stride
            if left % divisor == 0 if divisor else left == 0:
                stack.append((left, (*chosen, value)))
    return None
