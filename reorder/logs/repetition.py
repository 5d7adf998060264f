"""Where a log repeats itself: equal runs of a model, or equal layers of one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from memdesc.tuples import NamedTuple

# How many run lengths are tried.
_MAX_LENGTHS = 64


class Repetition(NamedTuple):
    """Equal consecutive runs: `runs` of them, of `length` executions each, starting at `start`."""

    start: int
    length: int
    runs: int


class Stretch(NamedTuple):
    """Where a sequence has a period: `covered` keys from `start` on, all equal `period` later."""

    start: int
    period: int
    covered: int

    def repetition(self) -> Repetition:
        """Return the shortest runs that this stretch can be."""
        return Repetition(self.start, self.period, self.covered // self.period)


def find_stretch(keys: Sequence[int]) -> Stretch | None:
    """Find the stretch that covers most of a sequence, with the shortest period, or None.

    Equal executions have equal `keys`. *Law*: consecutive slices of `period` keys that begin at
    `start` are equal.
    """
    return max(_stretches(keys), key=lambda stretch: stretch.covered, default=None)


def find_runs(keys: Sequence[int], runs: int) -> Repetition | None:
    """Find this many equal runs, or None. A run may itself consist of equal parts."""
    repetitions = [
        Repetition(start, covered // period // runs * period, runs)
        for start, period, covered in _stretches(keys)
        if covered // period % runs == 0
    ]
    return max(repetitions, key=lambda repetition: repetition.length, default=None)


def _stretches(keys: Sequence[int]) -> Iterator[Stretch]:
    """Yield the longest stretch of each period, the shortest period first."""
    numbers = np.asarray(keys, np.int64)
    for period in sorted(_distances(numbers)):
        start, matched = _longest(numbers[period:] == numbers[:-period])
        # `period` matches in a row mean two equal periods
        if matched >= period:
            yield Stretch(start, period, matched + period)


def _distances(numbers: NDArray[np.int64]) -> list[int]:
    """Return the most common distances between executions that continue equally.

    What a model executes twice in each run is told apart by what follows, so distances between
    consecutive equal windows of 1, 2, 4, ... executions are counted.
    """
    tally: Counter[int] = Counter()
    windows, width = np.unique(numbers, return_inverse=True)[1], 1
    while True:
        order = np.argsort(windows, kind="stable")
        apart = np.diff(order)[np.diff(windows[order]) == 0]
        if not len(apart):
            return [distance for distance, _ in tally.most_common(_MAX_LENGTHS)]
        distances, counts = np.unique(apart, return_counts=True)
        tally.update(dict(zip(distances.tolist(), counts.tolist(), strict=True)))
        pairs = windows[:-width] * (windows.max() + 1) + windows[width:]
        windows = np.unique(pairs, return_inverse=True)[1]
        width *= 2


def _longest(is_equal: NDArray[np.bool_]) -> tuple[int, int]:
    ends = np.concatenate(([-1], np.flatnonzero(~is_equal), [len(is_equal)]))
    longest = int(np.argmax(np.diff(ends)))
    return int(ends[longest]) + 1, int(ends[longest + 1] - ends[longest]) - 1
