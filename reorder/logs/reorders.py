"""The reorders of a log: their cost, and which primitives made and used their tensors."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from math import prod
from operator import add
from statistics import median

from memdesc import MemoryDesc
from memdesc.immutable import immutable
from memdesc.tuples import NamedTuple
from reorder.logs.log import VerboseEntry
from reorder.logs.primitive import VerbosePrimitive, VerboseTensor
from reorder.plan.compare import compare_layouts

UNKNOWN = "unknown"
# How many executions before and after a reorder are searched for the primitives that made and used
# its tensors, and for the reorder back.
_NEAR = 8
# if the mean is above this many medians, a few executions distort it
_SKEWED = 3
_OUTPUTS = ("dst", "diff_src", "diff_wei", "diff_bia", "diff")


class Times(NamedTuple):
    """How long equal executions took: the median, least and most of one, and the sum, in ms."""

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


class Neighbour(NamedTuple):
    """A tensor of another primitive, and its name there, such as ``wei``."""

    primitive: VerbosePrimitive
    tensor: str

    def __str__(self) -> str:
        """Return the tensor, and the primitive with its sizes and implementation."""
        tensors = self.primitive.tensors
        shapes = [
            "x".join(map(str, tensor.dims))
            for name in ("src", "data", "wei")
            if (tensor := tensors.get(name)) and tensor.dims
        ]
        sizes = " by ".join(shapes) or self.primitive.problem
        return f"{self.tensor} of {self.primitive.kind} {sizes} ({self.primitive.implementation})"


@immutable
class LoggedReorder(NamedTuple):
    """Equal reorders of a log.

    Parameters
    ----------
    primitive : VerbosePrimitive
        What their lines share.
    times : Times
        How often it was executed, in milliseconds the `median`, `least` and `most` of one and the
        `total`; and their `cost`, the median times the executions.
    relation : str
        ``no-op``, ``view`` or ``copy``, as `reorder.compare_layouts` says; ``unknown`` if
        the line does not describe them, or has attributes that are not understood.
    why : str
        The reason.
    nbytes : int or None
        Bytes that one execution reads and writes, padding included.
    made_by, used_as : tuple of Neighbour
        Which `tensor` of another `primitive` src was, or dst became: that of the nearest execution
        with a tensor of this layout and these dims. For weights that are reordered long before they
        are used, any execution.
    in_each_run : int
        How often it is executed in each run if the log repeats itself; otherwise 0.
    layers : tuple of str
        The layers that it belongs to, if a program named them.

    Examples
    --------
    >>> line = "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,"
    >>> line += "src:f32::blocked:ab::f0 dst:f32::blocked:ba::f0,,,2x3,0.25"
    >>> logged = reorder.logs.report(reorder.logs.read_verbose([line])).reorders[0]
    >>> logged.times.executions, logged.relation, logged.nbytes
    (1, 'copy', 48)
    """

    primitive: VerbosePrimitive
    times: Times
    relation: str
    why: str
    nbytes: int | None
    made_by: tuple[Neighbour, ...]
    used_as: tuple[Neighbour, ...]
    in_each_run: int
    layers: tuple[str, ...]

    @property
    def is_generated(self) -> bool:
        """Whether oneDNN generated code for it."""
        return is_generated(self.primitive.implementation)

    @property
    def is_of_weights(self) -> bool:
        """Whether its result is mostly used as weights."""
        return bool(self.used_as) and self.used_as[0].tensor.startswith("wei")


def is_generated(implementation: str) -> bool:
    """Whether oneDNN's name for an implementation means generated code, not the reference."""
    return "jit" in implementation or implementation.startswith("brgemm")


@immutable
class RoundTrip(NamedTuple):
    """Reorders into a layout and soon back.

    Parameters
    ----------
    there, back : VerbosePrimitive
        The two reorders.
    times : Times
        Of both together.
    between : tuple of str
        The kinds of the primitives that were executed in between.
    made_by, used_as : tuple of Neighbour
        The tensors before and after, as of a `LoggedReorder`.
    layers : tuple of str
        The layers that they belong to, if a program named them.

    Examples
    --------
    >>> line = "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,"
    >>> there = line + "src:f32::blocked:ab::f0 dst:f32::blocked:ba::f0,,,2x3,0.5"
    >>> back = line + "src:f32::blocked:ba::f0 dst:f32::blocked:ab::f0,,,2x3,0.5"
    >>> reorder.logs.report(reorder.logs.read_verbose([there, back])).round_trips[0].times.cost
    1.0
    """

    there: VerbosePrimitive
    back: VerbosePrimitive
    times: Times
    between: tuple[str, ...]
    made_by: tuple[Neighbour, ...]
    used_as: tuple[Neighbour, ...]
    layers: tuple[str, ...]


_Ends = tuple[tuple[Neighbour, ...], tuple[Neighbour, ...]]


class Executions:
    """The executions of a log, or of its equal runs, and what is found out about its reorders.

    Each has a layer in `names`, which may be empty, and the number of its run in `run_of`.
    """

    def __init__(
        self, entries: Sequence[VerboseEntry], names: Sequence[str], run_of: Sequence[int]
    ) -> None:
        self._entries, self._names, self._run_of = entries, names, run_of
        self._known: dict[tuple[int, int, str], str] = {}
        primitives = {id(entry.primitive): entry.primitive for entry in entries}
        self._weights: defaultdict[tuple[object, ...], list[Neighbour]] = defaultdict(list)
        for primitive in primitives.values():
            for name, tensor in primitive.tensors.items():
                if primitive.kind != "reorder" and name.startswith("wei") and tensor.dims:
                    self._weights[_layout(tensor), tensor.dims].append(Neighbour(primitive, name))

    def reorders(self, run: Sequence[VerboseEntry]) -> list[LoggedReorder]:
        """Group equal reorders, the most expensive first.

        `run` has the executions of one run, and is empty if the log does not repeat itself.
        """
        in_run = Counter(id(entry.primitive) for entry in run)
        groups: defaultdict[int, list[int]] = defaultdict(list)
        for at, entry in enumerate(self._entries):
            if is_reorder(entry.primitive):
                groups[id(entry.primitive)].append(at)
        reorders = []
        for key, places in groups.items():
            primitive = self._entries[places[0]].primitive
            times, ends = self._times(places), self._ends(places, places)
            relation, layers = _relation(primitive), self._layers(places)
            reorders.append(LoggedReorder(primitive, times, *relation, *ends, in_run[key], layers))
        return sorted(reorders, key=lambda reorder: -reorder.times.cost)

    def round_trips(self) -> list[RoundTrip]:
        """Return pairs of reorders of a run whose second undoes the first, like `reorders`."""
        gone: dict[tuple[object, ...], int] = {}
        pairs: defaultdict[tuple[int, int, tuple[str, ...]], list[tuple[int, int]]]
        pairs = defaultdict(list)
        for at, entry in enumerate(self._entries):
            if at and self._run_of[at] != self._run_of[at - 1]:
                gone.clear()
            primitive = entry.primitive
            attributes = primitive.attributes
            if not is_reorder(primitive) or attributes.not_understood or _computes(primitive):
                continue
            src, dst = (_layout(primitive.tensors[name]) for name in ("src", "dst"))
            before = gone.pop((primitive.problem, dst, src), -2 * _NEAR)
            between = self._entries[before + 1 : at] if at - before <= _NEAR else None
            # oneDNN chooses the layouts of primitives with weights
            if between is not None and not any(
                name.startswith("wei") for entry in between for name in entry.primitive.tensors
            ):
                kinds = tuple(entry.primitive.kind for entry in between)
                pairs[id(self._entries[before].primitive), id(primitive), kinds].append(
                    (before, at)
                )
            elif src != dst:
                # after a convolution, a tensor of these dims is another one
                gone[primitive.problem, src, dst] = at
        trips = []
        for (_, _, kinds), places in pairs.items():
            first, last = ([place[side] for place in places] for side in (0, 1))
            # the sums of the medians of both, and so on, as in the total of all reorders
            both = map(add, self._times(first)[1:], self._times(last)[1:])
            there, back = (self._entries[at].primitive for at in places[0])
            layers = self._layers([at for place in places for at in place])
            times, ends = Times(len(places), *both), self._ends(first, last)
            trips.append(RoundTrip(there, back, times, kinds, *ends, layers))
        return sorted(trips, key=lambda trip: -trip.times.cost)

    def _times(self, places: Sequence[int]) -> Times:
        return times_of([self._entries[at].milliseconds for at in places])

    def _layers(self, places: Sequence[int]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._names[at] for at in places if self._names[at]))

    def _ends(self, first: Sequence[int], last: Sequence[int]) -> _Ends:
        """Return what made the src of some reorders and used the dst of others, most common first.

        For weights that are reordered long before they are used, any primitive with such weights.
        """
        # a primitive compares by its texts: equal ones are one object
        made_by, used_as = (
            tuple(neighbour for neighbour, _ in Counter(filter(None, near)).most_common())
            for near in (
                (self._near(at, "src") for at in first),
                (self._near(at, "dst") for at in last),
            )
        )
        tensor = self._entries[last[0]].primitive.tensors["dst"]
        return made_by, used_as or tuple(self._weights[_layout(tensor), tensor.dims])

    def _near(self, at: int, side: str) -> Neighbour | None:
        primitive, step = self._entries[at].primitive, -1 if side == "src" else 1
        for place in range(at + step, at + step * (_NEAR + 1), step):
            if not 0 <= place < len(self._entries) or self._run_of[place] != self._run_of[at]:
                return None
            near = self._entries[place].primitive
            if near.kind == "reorder":
                continue
            key = id(primitive), id(near), side
            if key not in self._known:
                self._known[key] = _match(primitive.tensors[side], near, is_output=side == "src")
            if self._known[key]:
                return Neighbour(near, self._known[key])
        return None


def is_reorder(primitive: VerbosePrimitive) -> bool:
    """Whether a primitive is a reorder whose tensors are known."""
    return primitive.kind == "reorder" and {"src", "dst"} <= primitive.tensors.keys()


def _layout(tensor: VerboseTensor) -> str:
    """Return the text of a descriptor without flag a, which only records the user's request."""
    return re.sub(r"^(\w+):a", r"\1:", tensor.text)


def _computes(primitive: VerbosePrimitive) -> bool:
    """Whether the attributes of a reorder that are understood change values."""
    attributes = primitive.attributes
    return bool(attributes.scales or attributes.zero_points or attributes.post_ops)


def why_not_understood(primitive: VerbosePrimitive) -> str:
    """Say which attributes of a primitive are not understood."""
    return f"attributes that are not understood: {' '.join(primitive.attributes.not_understood)}"


def _relation(primitive: VerbosePrimitive) -> tuple[str, str, int | None]:
    """Return how the layouts of a reorder are related, why, and how many bytes it moves."""
    src, dst = (primitive.tensors[side] for side in ("src", "dst"))
    src_desc, dst_desc = src.desc, dst.desc
    if not isinstance(src_desc, MemoryDesc) or not isinstance(dst_desc, MemoryDesc):
        return UNKNOWN, src.why or dst.why or "some sizes are known only at execution", None
    nbytes = src_desc.dtype.nbytes(src_desc.nelems) + dst_desc.dtype.nbytes(dst_desc.padded_nelems)
    relation = compare_layouts(src_desc, dst_desc)
    if relation.kind != "copy" and primitive.attributes.not_understood:
        return UNKNOWN, why_not_understood(primitive), nbytes
    if relation.kind == "copy" or not _computes(primitive):
        return relation.kind, relation.why, nbytes
    return "copy", "the attributes change the values", nbytes


def data_sizes(primitive: VerbosePrimitive, *, is_output: bool) -> set[int]:
    """Return how many elements the tensors have that a primitive writes, or reads as data."""
    names = (*_OUTPUTS, "data") if is_output else ("src", "data", "diff_dst")
    return {
        prod(tensor.dims)
        for name, tensor in primitive.tensors.items()
        if name.startswith(names) and tensor.dims
    }


def _match(tensor: VerboseTensor, primitive: VerbosePrimitive, *, is_output: bool) -> str:
    """Return a primitive's name for this tensor; empty if it has none."""
    for name, candidate in primitive.tensors.items():
        if (
            name.startswith(_OUTPUTS) == is_output
            and candidate.dims == tensor.dims
            and _layout(candidate) == _layout(tensor)
        ):
            return name
    return ""
