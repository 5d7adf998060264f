"""How long equal executions took: their median and its range."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from memdesc.immutable import immutable

# If the mean is above this many medians, a few executions distort it; if the median is above this
# many minima, most executions waited for something.
_SKEWED = 3


@immutable
class Times(NamedTuple):
    """How long equal executions took, in milliseconds.

    Parameters
    ----------
    executions : int
        How many there were.
    median, least, most : float
        The time of one.
    total : float
        The sum.

    Examples
    --------
    >>> times = reorder.logs.Times(3, median=0.5, least=0.5, most=20.0, total=21.0)
    >>> times.cost, times.is_skewed
    (1.5, True)
    """

    executions: int
    median: float
    least: float
    most: float
    total: float

    @property
    def cost(self) -> float:
        """The median times the executions, which a few slow executions do not change."""
        return self.median * self.executions

    @property
    def is_slow(self) -> bool:
        """Whether the median is above three times the minimum."""
        return self.median > _SKEWED * self.least

    @property
    def is_skewed(self) -> bool:
        """Whether the mean is above three times the median."""
        return self.total > _SKEWED * self.cost

    def per_run(self, runs: int) -> Times:
        """Return the times of one of several equal runs."""
        return self._replace(
            executions=max(round(self.executions / runs), 1), total=self.total / runs
        )


def times_of(milliseconds: Sequence[float]) -> Times:
    """Summarise one or more times."""
    return Times(len(milliseconds), *(f(milliseconds) for f in (median, min, max, sum)))
