"""Where a log repeats itself: the runs of a model."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Repetition", "find_repetition"]

# how many lengths of a run are tried, the most common distances of equal executions
_MAX_LENGTHS = 64


class Repetition(NamedTuple):
    """`runs` runs of `length` executions each, equal and one behind the other, from `start` on."""

    start: int
    length: int
    runs: int


def find_repetition(keys: Sequence[int]) -> Repetition | None:
    """Return the repetition that covers most of a sequence, with the shortest run; None if none.

    *Law*: each of `runs` slices of `length` keys from `start` on equals the first.

    Parameters
    ----------
    keys : sequence of int
        Equal for equal executions.

    Examples
    --------
    >>> find_repetition([9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 8])
    Repetition(start=1, length=3, runs=3)
    """
    numbers = np.asarray(keys, np.int64)
    best, covered = None, 0
    for length in sorted(_distances(numbers)):
        start, matched = _longest(numbers[length:] == numbers[:-length])
        # a stretch of matches as long as a run are two runs
        if matched >= length and matched + length > covered:
            covered = matched + length
            best = Repetition(start, length, covered // length)
    return best


def _distances(numbers: NDArray[np.int64]) -> list[int]:
    """Return the most common distances between an execution and the next equal one."""
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
