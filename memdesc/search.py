"""A bounded search for integers in ranges whose weighted sum is a given number.

It answers three questions: do two indices of a layout share an element, do two buffers share a
byte, and which index has an offset.
"""

from __future__ import annotations

from itertools import accumulate
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

# Values tried in one search; 20,000 take about 20 ms.
_BUDGET = 20_000


class SearchLimitError(Exception):
    """The budget of a search was used up before the answer was known."""


class Term(NamedTuple):
    """An integer from `low` to `high` that adds `stride` times itself."""

    stride: int
    low: int
    high: int


class _Suffix(NamedTuple):
    """The sums of a term and all after it: their least, their largest, and a common divisor.

    The divisor is 0 if there are no terms, when the only sum is 0.
    """

    low: int
    high: int
    divisor: int

    def before(self, term: Term) -> _Suffix:
        """Return the same with one more term."""
        ends = term.stride * term.low, term.stride * term.high
        return _Suffix(self.low + min(ends), self.high + max(ends), gcd(self.divisor, term.stride))


def solve(terms: Iterable[Term], target: int, *, trivial: bool = True) -> tuple[int, ...] | None:
    """Find integers within their ranges whose strides sum up to a target.

    A depth-first search, the largest stride first. The range of the sums of the smaller strides
    bounds each choice to a few values, so strides that nearly nest take a few steps. Choices are
    skipped if the common divisor of the smaller strides does not divide the remainder.

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
        One answer, in the order of the terms; None if no answer exists.

    Raises
    ------
    SearchLimitError
        If bounded work gave no answer.
    """
    terms = tuple(terms)
    order = sorted(range(len(terms)), key=lambda k: -abs(terms[k].stride))
    by_stride = [terms[k] for k in order]
    # suffixes[k]: of the terms from the k-th on
    suffixes = list(accumulate(reversed(by_stride), _Suffix.before, initial=_Suffix(0, 0, 0)))
    suffixes.reverse()
    n_tried = 0
    stack: list[tuple[int, tuple[int, ...]]] = [(target, ())]
    while stack:
        remainder, chosen = stack.pop()
        k = len(chosen)
        if k == len(order):
            if remainder == 0 and (trivial or any(chosen)):
                return tuple(value for _, value in sorted(zip(order, chosen, strict=True)))
            continue
        suffix = suffixes[k + 1]
        values = _candidates(by_stride[k], remainder, suffix)
        n_tried += len(values)
        if n_tried > _BUDGET:
            raise SearchLimitError
        for value in values:
            left = remainder - value * by_stride[k].stride
            if left % suffix.divisor == 0 if suffix.divisor else left == 0:
                stack.append((left, (*chosen, value)))
    return None


def _candidates(term: Term, remainder: int, suffix: _Suffix) -> range:
    """Return the values of a term that leave a remainder which the terms after it can add."""
    stride, first, last = term
    low, high = remainder - suffix.high, remainder - suffix.low
    if stride < 0:
        low, high = -high, -low
    first = max(first, -(-low // abs(stride)))
    last = min(last, high // abs(stride))
    return range(first, last + 1)
