"""Where the time of a oneDNN log went: by primitive, in reorders, and in each run of a model."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memdesc import MemdescError
from memdesc.errors import short_repr
from memdesc.verbose import VerboseLog
from reorder.logs.reorders import group_reorders, round_trips

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memdesc.verbose import VerboseEntry
    from reorder.logs.reorders import LoggedReorder, RoundTrip

__all__ = ["KindTime", "LogReport", "Repetition", "find_repetition", "report"]

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
        # as many consecutive matches as a run is long mean two runs
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


class KindTime(NamedTuple):
    """Time of all executions of a primitive kind; `by_reference` counts the slow ones."""

    kind: str
    executions: int
    milliseconds: float
    by_reference: int


class LogReport(NamedTuple):
    """What `report` found.

    Parameters
    ----------
    kinds : tuple of KindTime
        Executions by primitive kind, the most expensive first.
    created : tuple of KindTime
        The same for creations.
    repetition : Repetition or None
        The runs, if the log repeats itself: their first execution, length and number.
    reorders : tuple of LoggedReorder
        Equal reorders grouped, the most expensive first.
    round_trips : tuple of RoundTrip
        Reorders into a layout and soon back.

    Examples
    --------
    >>> import memdesc, reorder.logs
    >>> line = "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,"
    >>> line += "src:f32::blocked:ab::f0 dst:f32::blocked:ba::f0,,,2x3,0.25"
    >>> found = reorder.logs.report(memdesc.read_verbose([line]))
    >>> found.kinds[0].kind, len(found.reorders), found.round_trips
    ('reorder', 1, ())
    """

    kinds: tuple[KindTime, ...]
    created: tuple[KindTime, ...]
    repetition: Repetition | None
    reorders: tuple[LoggedReorder, ...]
    round_trips: tuple[RoundTrip, ...]

    @property
    def milliseconds(self) -> float:
        """Time of all executions."""
        return sum(each.milliseconds for each in self.kinds)


def report(log: VerboseLog) -> LogReport:
    """Add up the times of a log, and find unnecessary reorders.

    Parameters
    ----------
    log : VerboseLog
        What `memdesc.read_verbose` returned.

    Raises
    ------
    MemdescError
        If it is not a log.

    Examples
    --------
    >>> import memdesc, reorder.logs
    >>> line = "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,"
    >>> log = memdesc.read_verbose([
    ...     line + "src:f32::blocked:abcd::f0 dst:f32::blocked:acdb::f0,,,8x1x56x56,0.25"] * 3)
    >>> found = reorder.logs.report(log).reorders[0]
    >>> found.executions, found.milliseconds, found.relation
    (3, 0.75, 'no-op')
    """
    if not isinstance(log, VerboseLog):
        msg = (  # type: ignore[unreachable] # callers without types
            f"report() takes what read_verbose() returns, not {short_repr(log)}"
        )
        raise MemdescError(msg)
    executions = log.executions
    numbers: dict[int, int] = {}
    keys = [numbers.setdefault(id(entry.primitive), len(numbers)) for entry in executions]
    repetition = find_repetition(keys)
    run = executions[repetition.start :][: repetition.length] if repetition else ()
    return LogReport(
        _by_kind(list(executions)),
        _by_kind([entry for entry in log.entries if not entry.is_execution]),
        repetition,
        tuple(group_reorders(executions, run)),
        tuple(round_trips(executions)),
    )


def _by_kind(entries: list[VerboseEntry]) -> tuple[KindTime, ...]:
    groups: defaultdict[str, list[VerboseEntry]] = defaultdict(list)
    for entry in entries:
        groups[entry.primitive.kind].append(entry)
    found = [
        KindTime(
            kind,
            len(group),
            sum(entry.milliseconds for entry in group),
            sum(entry.primitive.is_reference for entry in group),
        )
        for kind, group in groups.items()
    ]
    return tuple(sorted(found, key=lambda each: -each.milliseconds))
