"""Solve a linear Diophantine equation with bounded unknowns, by a search that does bounded work.

Such an equation decides whether two indices of a layout share an element, whether two buffers share
a byte, and which index has a given offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
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


class _Suffix(NamedTuple):
    """Bounds of the sums of a term and all terms after it, and a common divisor of these sums.

    Without terms the only sum is 0, and the divisor is 0.
    """

    low: int
    high: int
    divisor: int

    def before(self, term: Term) -> _Suffix:
        """Return the bounds with one more term in front."""
        ends = term.stride * term.low, term.stride * term.high
        return _Suffix(self.low + min(ends), self.high + max(ends), gcd(self.divisor, term.stride))


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
    # suffixes[k] covers the k-th term and all after it
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
    """Return the values of a term that leave a remainder within reach of the terms after it."""
    stride, first, last = term
    low, high = remainder - suffix.high, remainder - suffix.low
    if stride < 0:
        low, high = -high, -low
    first = max(first, -(-low // abs(stride)))
    last = min(last, high // abs(stride))
    return range(first, last + 1)
