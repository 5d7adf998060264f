"""What a log of oneDNN says about time: by primitive, and of its reorders."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError
from memdesc.errors import short_repr
from memdesc.verbose import VerboseLog
from reorder.logs.reorders import group_reorders, round_trips
from reorder.logs.repetition import Repetition, find_repetition

if TYPE_CHECKING:
    from memdesc.verbose import VerboseEntry
    from reorder.logs.reorders import LoggedReorder, RoundTrip

__all__ = ["KindTime", "LogReport", "report"]


class KindTime(NamedTuple):
    """Time of all executions of one kind of primitive; `by_reference` counts the slow ones."""

    kind: str
    executions: int
    milliseconds: float
    by_reference: int


class LogReport(NamedTuple):
    """What `report` found.

    Parameters
    ----------
    kinds : tuple of KindTime
        Executions by kind of primitive, the most expensive first.
    created : tuple of KindTime
        Creations likewise.
    repetition : Repetition or None
        The runs, where the log repeats itself: their first execution, length and number.
    reorders : tuple of LoggedReorder
        Equal reorders together, the most expensive first.
    round_trips : tuple of RoundTrip
        Reorders to a layout, and soon back.
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
    """Add up the times of a log, and look for reorders that need not be.

    Parameters
    ----------
    log : VerboseLog
        What `memdesc.read_verbose` returned.

    Raises
    ------
    MemdescError
        If it is no log.

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
            f"a report is made of what read_verbose() returns, not of {short_repr(log)}"
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
