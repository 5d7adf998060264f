"""Which index differences reach an offset: a search whose work is bounded.

One question stands behind three: do two indices of a layout share an element, do
two buffers share a byte, and which index lies at an offset.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["SearchLimitError", "Term", "solve"]

# Steps of one search; 20,000 take about 20 ms.
_BUDGET = 20_000


class SearchLimitError(Exception):
    """The budget of a search was used up before the answer was known."""


class Term(NamedTuple):
    """An integer from `low` to `high` that adds `stride` times itself."""

    stride: int
    low: int
    high: int


def solve(terms: Iterable[Term], target: int, *, trivial: bool = True) -> tuple[int, ...] | None:
    """Find integers within their ranges whose strides sum up to a target.

    Large strides are tried first: what the others can still reach bounds each choice
    to a few values, so nearly nested strides take a handful of steps.

    Parameters
    ----------
    terms : iterable of Term
        Ranges that are not empty, strides that are not 0.
    target : int
        The sum.
    trivial : bool
        Whether all zeros is an answer.

    Returns
    -------
    tuple of int or None
        One answer, in the order of the terms; None if there is none.

    Raises
    ------
    SearchLimitError
        If bounded work gave no answer.
    """
    terms = tuple(terms)
    order = sorted(range(len(terms)), key=lambda k: -abs(terms[k].stride))
    # what the terms from k on reach at least and at most, and what all of it divides by
    low, high, common = [0], [0], [0]
    for k in reversed(order):
        stride, first, last = terms[k]
        ends = stride * first, stride * last
        low.append(low[-1] + min(ends))
        high.append(high[-1] + max(ends))
        common.append(gcd(common[-1], stride))
    low.reverse()
    high.reverse()
    common.reverse()
    steps = 0
    stack: list[tuple[int, tuple[int, ...]]] = [(target, ())]
    while stack:
        rest, chosen = stack.pop()
        k = len(chosen)
        if k == len(order):
            if rest == 0 and (trivial or any(chosen)):
                return tuple(value for _, value in sorted(zip(order, chosen, strict=True)))
            continue
        stride, first, last = terms[order[k]]
        bounds = rest - high[k + 1], rest - low[k + 1]
        if stride < 0:
            bounds = -bounds[1], -bounds[0]
        first = max(first, -(-bounds[0] // abs(stride)))
        last = min(last, bounds[1] // abs(stride))
        steps += max(last - first, 0) + 1
        if steps > _BUDGET:
            raise SearchLimitError
        for value in range(first, last + 1):
            left = rest - value * stride
            if left == 0 if common[k + 1] == 0 else left % common[k + 1] == 0:
                stack.append((left, (*chosen, value)))
    return None
