"""Where the time of a oneDNN log went: by primitive, in reorders, and in each run of a model."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError
from memdesc.errors import short_repr
from memdesc.verbose import VerboseLog
from reorder.logs.reorders import group_reorders, round_trips
from reorder.logs.repetition import find_repetition
from reorder.logs.times import times_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memdesc.verbose import VerboseEntry, VerbosePrimitive
    from reorder.logs.layers import Layer, Layers
    from reorder.logs.reorders import LoggedReorder, RoundTrip
    from reorder.logs.repetition import Repetition
    from reorder.logs.times import Times

__all__ = [
    "KindTime",
    "LayerTime",
    "LogReport",
    "Reason",
    "report",
]


class KindTime(NamedTuple):
    """Time of all executions of a primitive kind; `by_reference` counts the slow ones."""

    kind: str
    executions: int
    milliseconds: float
    by_reference: int


class LayerTime(NamedTuple):
    """A layer of a model, and the time of one of its runs that was spent in oneDNN.

    Parameters
    ----------
    layer : Layer
        As the framework describes it.
    milliseconds : float
        What its executions take in one run.

    Examples
    --------
    >>> from reorder.logs import Layer, LayerTime
    >>> found = LayerTime(Layer("conv1", "Convolution", "aBcd16b", 0.25, 10), 0.2)
    >>> found.layer.name, found.milliseconds
    ('conv1', 0.2)
    """

    layer: Layer
    milliseconds: float


class Reason(NamedTuple):
    """Why an implementation was passed over.

    Parameters
    ----------
    kind, implementation, reason : str
        As in `memdesc.verbose.PassedOver`.
    primitives : int
        For how many primitives.
    by_reference : int
        How many of these became plain loops, which are slow.

    Examples
    --------
    >>> from reorder.logs import Reason
    >>> Reason("reorder", "jit:uni", "unsupported format tag", 2, by_reference=1).primitives
    2
    """

    kind: str
    implementation: str
    reason: str
    primitives: int
    by_reference: int


class LogReport(NamedTuple):
    """What `report` found. Times are medians times counts, unless they are said to be sums.

    Parameters
    ----------
    kinds : tuple of KindTime
        Executions by primitive kind, the most expensive first.
    created : tuple of (int, float)
        How many primitives were created, and the sum of the times.
    repetition : Repetition or None
        The runs, if the log repeats itself: their first execution, length and number.
    before_runs : tuple of (int, float)
        How many executions came before the first run, and the sum of their times.
    is_steady : bool
        Whether `kinds`, `reorders`, `round_trips` and `layers` describe one run instead of the log.
    reorders : tuple of LoggedReorder
        Equal reorders grouped, the most expensive first.
    round_trips : tuple of RoundTrip
        Reorders into a layout and soon back.
    skewed : tuple of (VerbosePrimitive, Times)
        Primitives whose mean time is above three times the median, the most different first.
    reasons : tuple of Reason
        Why implementations were passed over: first those that left a primitive to plain loops, then
        the most frequent.
    layers : tuple of LayerTime
        The layers that a program named, the most expensive first.

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
    created: tuple[int, float]
    repetition: Repetition | None
    before_runs: tuple[int, float]
    is_steady: bool
    reorders: tuple[LoggedReorder, ...]
    round_trips: tuple[RoundTrip, ...]
    skewed: tuple[tuple[VerbosePrimitive, Times], ...]
    reasons: tuple[Reason, ...]
    layers: tuple[LayerTime, ...]

    @property
    def milliseconds(self) -> float:
        """Time of all executions."""
        return sum(each.milliseconds for each in self.kinds)


def report(log: VerboseLog, layers: Layers | None = None, *, steady: bool = False) -> LogReport:
    """Add up the times of a log, and find unnecessary reorders.

    Parameters
    ----------
    log : VerboseLog
        What `memdesc.read_verbose` returned.
    layers : OpenVinoLayers or TorchLayers, optional
        What `read_layers` returned: names for the executions.
    steady : bool
        Leave out what came before and after the equal runs of the log, and report one run.

    Raises
    ------
    MemdescError
        If it is not a log; for `steady`, if the log does not repeat itself; if the layers are those
        of another program.

    Examples
    --------
    >>> import memdesc, reorder.logs
    >>> line = "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,"
    >>> log = memdesc.read_verbose([
    ...     line + f"src:f32::blocked:abcd::f0 dst:f32::blocked:acdb::f0,,,8x1x56x56,{milliseconds}"
    ...     for milliseconds in (0.25, 0.25, 40)])
    >>> found = reorder.logs.report(log).reorders[0]
    >>> found.times.executions, found.times.cost, found.times.total, found.relation
    (3, 0.75, 40.5, 'no-op')
    >>> reorder.logs.report(log, steady=True).milliseconds  # one of three equal runs
    0.25
    """
    if not isinstance(log, VerboseLog):
        msg = (  # type: ignore[unreachable] # callers without types
            f"report() takes what read_verbose() returns, not {short_repr(log)}"
        )
        raise MemdescError(msg)
    everything = log.executions
    numbers: dict[int, int] = {}
    keys = [numbers.setdefault(id(entry.primitive), len(numbers)) for entry in everything]
    repetition = find_repetition(keys)
    if steady and repetition is None:
        msg = (
            f"the log has no steady state: the {len(everything)} executions hold no equal runs; "
            "log several runs of the model with equal inputs"
        )
        raise MemdescError(msg)
    all_names, named = (
        layers.name(everything, repetition) if layers else ([""] * len(everything), ())
    )
    start, length, runs = repetition or (0, 0, 1)
    part = slice(start, start + length * runs) if steady else slice(None)
    divisor = runs if steady else 1
    executions, names = everything[part], all_names[part]
    times = {
        group[0].primitive: times_of([entry.milliseconds for entry in group]).per_run(divisor)
        for group in _groups(executions)
    }
    found = group_reorders(executions, names, everything[start:][:length])
    trips = round_trips(executions, names)
    created = [entry.milliseconds for entry in log.entries if not entry.is_execution]
    skewed = [each for each in times.items() if each[1].is_skewed]
    return LogReport(
        _by_kind(times.items()),
        (len(created), sum(created)),
        repetition,
        (start, sum(entry.milliseconds for entry in everything[:start])),
        steady,
        tuple(each._replace(times=each.times.per_run(divisor)) for each in found),
        tuple(each._replace(times=each.times.per_run(divisor)) for each in trips),
        tuple(sorted(skewed, key=lambda each: each[1].cost - each[1].total)),
        _reasons(log),
        _layer_times(named, everything, all_names),
    )


def _groups(executions: Sequence[VerboseEntry]) -> list[list[VerboseEntry]]:
    """Return the executions of each primitive."""
    groups: defaultdict[int, list[VerboseEntry]] = defaultdict(list)
    for entry in executions:
        groups[id(entry.primitive)].append(entry)
    return list(groups.values())


def _by_kind(times: Iterable[tuple[VerbosePrimitive, Times]]) -> tuple[KindTime, ...]:
    found: dict[str, KindTime] = {}
    for primitive, each in times:
        kind = primitive.kind
        _, count, spent, slow = found.get(kind, KindTime(kind, 0, 0.0, 0))
        found[kind] = KindTime(
            kind,
            count + each.executions,
            spent + each.cost,
            slow + each.executions * primitive.is_reference,
        )
    return tuple(sorted(found.values(), key=lambda each: -each.milliseconds))


def _reasons(log: VerboseLog) -> tuple[Reason, ...]:
    # a primitive that was not created is counted by its line
    found: defaultdict[tuple[str, str, str], dict[int, bool]] = defaultdict(dict)
    for line, kind, implementation, reason, _, primitive in log.passed_over:
        key = -line if primitive is None else id(primitive)
        found[kind, implementation, reason][key] = primitive is not None and primitive.is_reference
    reasons = [Reason(*key, len(slow), sum(slow.values())) for key, slow in found.items()]
    return tuple(sorted(reasons, key=lambda each: (-each.by_reference, -each.primitives)))


def _layer_times(
    layers: Sequence[Layer], executions: Sequence[VerboseEntry], names: Sequence[str]
) -> tuple[LayerTime, ...]:
    spent: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for entry, name in zip(executions, names, strict=True):
        spent[name, id(entry.primitive)].append(entry.milliseconds)
    costs: defaultdict[str, float] = defaultdict(float)
    for (name, _), milliseconds in spent.items():
        costs[name] += times_of(milliseconds).cost
    found = [LayerTime(layer, costs[layer.name] / layer.runs) for layer in layers]
    return tuple(
        sorted(found, key=lambda each: -max(each.milliseconds, each.layer.milliseconds or 0.0))
    )
