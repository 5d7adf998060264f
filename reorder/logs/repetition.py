"""Where a log repeats itself: equal runs of a model."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Repetition", "find_repetition"]

# How many run lengths are tried: the most common distances between equal executions.
_MAX_LENGTHS = 64


class Repetition(NamedTuple):
    """Equal consecutive runs: `runs` of them, of `length` executions each, starting at `start`."""

    start: int
    length: int
    runs: int


def find_repetition(keys: Sequence[int]) -> Repetition | None:
    """Find the repetition that covers most of a sequence, with the shortest run, or None.

    *Law*: the `runs` consecutive slices of `length` keys that begin at `start` are equal.

    Parameters
    ----------
    keys : sequence of int
        One for each execution; equal executions have equal keys.

    Examples
    --------
    >>> find_repetition([9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 8])
    Repetition(start=1, length=3, runs=3)
    """
    numbers = np.asarray(keys, np.int64)
    best, covered = None, 0
    for length in sorted(_distances(numbers)):
        start, matched = _longest(numbers[length:] == numbers[:-length])
        # `length` matches in a row mean two equal runs
        if matched >= length and matched + length > covered:
            covered = matched + length
            best = Repetition(start, length, covered // length)
    return best


def _distances(numbers: NDArray[np.int64]) -> list[int]:
    """Return the most common distances between consecutive equal executions."""
    last: dict[int, int] = {}
    found: Counter[int] = Counter()
    for at, key in enumerate(numbers.tolist()):
        if key in last:
            found[at - last[key]] += 1
        last[key] = at
    return [distance for distance, _ in found.most_common(_MAX_LENGTHS)]


def _longest(is_equal: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the start and the length of the longest stretch of True."""
    ends = np.concatenate(([-1], np.flatnonzero(~is_equal), [len(is_equal)]))
    longest = int(np.argmax(np.diff(ends)))
    return int(ends[longest]) + 1, int(ends[longest + 1] - ends[longest]) - 1
