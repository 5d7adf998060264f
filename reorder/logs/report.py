"""Where the time of a oneDNN log went: by primitive, in reorders, and in each run of a model."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from memdesc import MemdescError
from memdesc.errors import short_repr
from memdesc.immutable import immutable
from memdesc.tuples import NamedTuple
from reorder.logs.layers import Layer, Layers
from reorder.logs.log import VerboseEntry, VerboseLog
from reorder.logs.primitive import VerbosePrimitive
from reorder.logs.reorders import (
    Executions,
    LoggedReorder,
    RoundTrip,
    Times,
    data_sizes,
    is_reorder,
    times_of,
)
from reorder.logs.repetition import Repetition, find_runs, find_stretch
from reorder.threads import checked_count


class KindTime(NamedTuple):
    """Time of all executions of a primitive kind; `by_reference` counts those in plain loops."""

    kind: str
    executions: int
    milliseconds: float
    by_reference: int


class LayerTime(NamedTuple):
    """A layer of a model, and the time of one of its runs that was spent in oneDNN."""

    layer: Layer
    milliseconds: float


@immutable
class LogReport(NamedTuple):
    """What `report` found. Times are medians times counts, unless they are said to be sums.

    Parameters
    ----------
    kinds : tuple of KindTime
        Executions by primitive kind, the most expensive first.
    created : tuple of (int, float)
        How many primitives were created, and the sum of the times.
    repetition : Repetition or None
        The runs, if they are known: their first execution, length and number.
    undecided : Repetition or None
        What repeats itself, if it may be equal runs as well as equal layers of one run.
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
    layers : tuple of LayerTime
        Each `layer` that a program named, and the `milliseconds` of one of its runs that were spent
        in oneDNN; the most expensive first.
    not_understood : tuple of (str, int)
        Attributes that memdesc does not understand, and how many executions have each.

    Examples
    --------
    >>> line = "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,"
    >>> line += "src:f32::blocked:ab::f0 dst:f32::blocked:ba::f0,,,2x3,0.25"
    >>> analysis = reorder.logs.report(reorder.logs.read_verbose([line]))
    >>> analysis.kinds[0].kind, len(analysis.reorders), analysis.round_trips
    ('reorder', 1, ())
    """

    kinds: tuple[KindTime, ...]
    created: tuple[int, float]
    repetition: Repetition | None
    undecided: Repetition | None
    before_runs: tuple[int, float]
    is_steady: bool
    reorders: tuple[LoggedReorder, ...]
    round_trips: tuple[RoundTrip, ...]
    skewed: tuple[tuple[VerbosePrimitive, Times], ...]
    layers: tuple[LayerTime, ...]
    not_understood: tuple[tuple[str, int], ...]

    @property
    def milliseconds(self) -> float:
        """Time of all executions."""
        return sum(kind.milliseconds for kind in self.kinds)


def report(
    log: VerboseLog, layers: Layers | None = None, *, steady: bool = False, runs: int | None = None
) -> LogReport:
    """Add up the times of a log, and find unnecessary reorders.

    A model has equal layers, and it runs several times: both repeat in the log. What repeats is
    taken for runs only if it is more than half of the log, and what the last primitive computes
    has another size than what the first one reads, so that it cannot be its input.

    Parameters
    ----------
    log : VerboseLog
        What `reorder.logs.read_verbose` returned.
    layers : optional
        What `read_layers` returned: names for the executions.
    steady : bool
        Leave out what came before and after the equal runs of the log, and report one run.
    runs : int, optional
        How many equal runs of the model the log has, if you know.

    Raises
    ------
    MemdescError
        If it is not a log; for `steady`, if it has no equal runs, or they are not known; if it does
        not have as many `runs`; if the layers are those of another program.

    Examples
    --------
    >>> line = "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,"
    >>> log = reorder.logs.read_verbose([
    ...     line + f"src:f32::blocked:abcd::f0 dst:f32::blocked:acdb::f0,,,8x1x56x56,{milliseconds}"
    ...     for milliseconds in (0.25, 0.25, 40)])
    >>> found = reorder.logs.report(log).reorders[0]
    >>> found.times.executions, found.times.cost, found.times.total, found.relation
    (3, 0.75, 40.5, 'no-op')
    >>> reorder.logs.report(log, steady=True, runs=3).milliseconds  # one of three equal runs
    0.25
    """
    if not isinstance(log, VerboseLog):
        raise MemdescError(f"report() takes what read_verbose() returns, not {short_repr(log)}")
    if not isinstance(layers, Layers | None):
        raise MemdescError(f"layers are what read_layers() returns, not {short_repr(layers)}")
    everything = log.executions
    repetition, undecided = _runs(everything, runs)
    if steady and repetition is None:
        raise MemdescError(_why_not_steady(len(everything), undecided, runs))
    all_names, named = (
        layers.name(everything, repetition) if layers else ([""] * len(everything), ())
    )
    start, length, count = repetition or (0, 0, 1)
    span = slice(start, start + length * count) if steady else slice(None)
    divisor = count if steady else 1
    # set-up counts as part of the first run, and what follows the last run as part of that
    run_of = [
        min(max(at - start, 0) // length, count - 1) if length else 0
        for at in range(len(everything))
    ][span]
    executions, names = everything[span], all_names[span]
    groups: defaultdict[int, list[VerboseEntry]] = defaultdict(list)
    for entry in executions:
        groups[id(entry.primitive)].append(entry)
    times = {
        group[0].primitive: times_of([entry.milliseconds for entry in group]).per_run(divisor)
        for group in groups.values()
    }
    analysed = Executions(executions, names, run_of)
    reorders = analysed.reorders(everything[start:][:length])
    created = [entry.milliseconds for entry in log.entries if not entry.is_execution]
    skewed = [item for item in times.items() if item[1].is_skewed]
    skewed.sort(key=lambda item: item[1].cost - item[1].total)
    return LogReport(
        _by_kind(times),
        (len(created), sum(created)),
        repetition,
        undecided,
        (start, sum(entry.milliseconds for entry in everything[:start])),
        steady,
        tuple(logged._replace(times=logged.times.per_run(divisor)) for logged in reorders),
        tuple(trip._replace(times=trip.times.per_run(divisor)) for trip in analysed.round_trips()),
        tuple(skewed),
        _layer_times(named, everything, all_names),
        tuple(
            Counter(
                text for entry in everything for text in entry.primitive.attributes.not_understood
            ).most_common()
        ),
    )


def _runs(
    executions: Sequence[VerboseEntry], given: int | None
) -> tuple[Repetition | None, Repetition | None]:
    """Return the equal runs of a log if they are known, and what may be runs otherwise."""
    numbers: dict[int, int] = {}
    keys = [numbers.setdefault(id(entry.primitive), len(numbers)) for entry in executions]
    if given is not None:
        return _given_runs(keys, given), None
    stretch = find_stretch(keys)
    if stretch is None or 2 * stretch.covered <= len(keys):
        return None, None
    start, period, covered = stretch
    # Runs end where the stretch ends, or, if the last one was cut short, begin where it begins.
    is_chain = any(
        _may_feed(executions[cut - period : cut], executions[cut : cut + period])
        for cut in (start + period, start + covered - period)
    )
    repetition = stretch.repetition()
    return (None, repetition) if is_chain else (repetition, None)


def _given_runs(keys: Sequence[int], given: int) -> Repetition | None:
    """Return as many equal runs as a caller says; None if it is one."""
    runs = checked_count("runs", given)
    repetition = find_runs(keys, runs) if runs > 1 else None
    if repetition is None and runs > 1:
        msg = f"the {len(keys)} executions of the log do not hold {runs} equal runs"
        if stretch := find_stretch(keys):
            _, length, count = stretch.repetition()
            msg += f"; {length} executions in a row repeat {count} times"
        raise MemdescError(msg)
    return repetition


def _may_feed(before: Sequence[VerboseEntry], after: Sequence[VerboseEntry]) -> bool:
    """Whether the last result of some executions may be what the first of others reads."""
    last, first = (
        next((entry.primitive for entry in entries if not is_reorder(entry.primitive)), None)
        for entries in (reversed(before), after)
    )
    if last is None or first is None:
        return True
    made, read = data_sizes(last, is_output=True), data_sizes(first, is_output=False)
    return not made or not read or not made.isdisjoint(read)


def _why_not_steady(executions: int, undecided: Repetition | None, runs: int | None) -> str:
    if runs == 1:
        return "one run has no steady state; log several runs of the model with equal inputs"
    if undecided:
        return (
            f"{undecided.length} executions in a row repeat {undecided.runs} times: these are "
            "equal runs of the model, or equal layers; say how many times the model ran (--runs N)"
        )
    return (
        f"the log has no steady state: the {executions} executions hold no equal runs that "
        "memdesc can be sure of; log several runs of the model with equal inputs, and say how "
        "many there are (--runs N)"
    )


def _by_kind(times: Mapping[VerbosePrimitive, Times]) -> tuple[KindTime, ...]:
    groups: defaultdict[str, list[tuple[int, float, int]]] = defaultdict(list)
    for primitive, spent in times.items():
        slow = spent.executions * primitive.is_reference
        groups[primitive.kind].append((spent.executions, spent.cost, slow))
    kinds = [KindTime(kind, *map(sum, zip(*spent, strict=True))) for kind, spent in groups.items()]
    return tuple(sorted(kinds, key=lambda kind: -kind.milliseconds))


def _layer_times(
    layers: Sequence[Layer], executions: Sequence[VerboseEntry], names: Sequence[str]
) -> tuple[LayerTime, ...]:
    spent: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for entry, name in zip(executions, names, strict=True):
        spent[name, id(entry.primitive)].append(entry.milliseconds)
    costs: defaultdict[str, float] = defaultdict(float)
    for (name, _), milliseconds in spent.items():
        costs[name] += times_of(milliseconds).cost
    layer_times = [LayerTime(layer, costs[layer.name] / layer.runs) for layer in layers]
    return tuple(
        sorted(layer_times, key=lambda x: -max(x.milliseconds, x.layer.milliseconds or 0.0))
    )
