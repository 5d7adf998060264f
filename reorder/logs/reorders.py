"""The reorders of a log: their cost, and which primitives made and used their tensors."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemoryDesc
from reorder.plan.compare import compare

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memdesc.verbose import VerboseEntry, VerbosePrimitive, VerboseTensor

__all__ = [
    "UNKNOWN",
    "LoggedReorder",
    "RoundTrip",
    "group_reorders",
    "is_generated",
    "round_trips",
]

UNKNOWN = "unknown"
# How many executions before and after a reorder are searched for the primitives that made and used
# its tensors, and for the reorder back.
_NEAR = 8
_OUTPUTS = ("dst", "diff_src", "diff_wei", "diff_bia", "diff")


class LoggedReorder(NamedTuple):
    """Equal reorders of a log.

    Parameters
    ----------
    primitive : VerbosePrimitive
        What their lines share.
    executions : int
        How often it was executed.
    milliseconds : float
        Total time of these executions.
    relation : str
        ``no-op``, ``view`` or ``copy``, as `reorder.compare` says of the layouts; ``unknown`` if
        the line does not describe them.
    why : str
        The reason.
    nbytes : int or None
        Bytes that one execution reads and writes, padding included.
    made_by, used_as : str
        Which tensor of another primitive src was, or dst became, such as ``convolution wei``: that
        of the nearest execution with a tensor of this layout and these dims; empty if none is near.
    in_each_run : int
        How often it is executed in each run if the log repeats itself; otherwise 0.

    Examples
    --------
    >>> import memdesc, reorder.logs
    >>> line = "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,"
    >>> line += "src:f32::blocked:ab::f0 dst:f32::blocked:ba::f0,,,2x3,0.25"
    >>> logged = reorder.logs.report(memdesc.read_verbose([line])).reorders[0]
    >>> logged.executions, logged.relation, logged.nbytes
    (1, 'copy', 48)
    """

    primitive: VerbosePrimitive
    executions: int
    milliseconds: float
    relation: str
    why: str
    nbytes: int | None
    made_by: str
    used_as: str
    in_each_run: int

    @property
    def src(self) -> VerboseTensor:
        """The source."""
        return self.primitive.tensors["src"]

    @property
    def dst(self) -> VerboseTensor:
        """The destination."""
        return self.primitive.tensors["dst"]

    @property
    def is_generated(self) -> bool:
        """Whether oneDNN generated code for it."""
        return is_generated(self.primitive.implementation)

    @property
    def is_of_weights(self) -> bool:
        """Whether its result is used as weights."""
        return self.used_as.rpartition(" ")[2].startswith("wei")


def is_generated(implementation: str) -> bool:
    """Whether oneDNN's name for an implementation means generated code, not the reference."""
    return "jit" in implementation or implementation.startswith("brgemm")


class RoundTrip(NamedTuple):
    """Reorders into a layout and soon back.

    Parameters
    ----------
    there, back : VerbosePrimitive
        The two reorders.
    executions : int
        How often the pair was executed.
    milliseconds : float
        Total time of both.
    between : tuple of str
        The kinds of the primitives that were executed in between.

    Examples
    --------
    >>> import memdesc, reorder.logs
    >>> line = "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,"
    >>> there = line + "src:f32::blocked:ab::f0 dst:f32::blocked:ba::f0,,,2x3,0.5"
    >>> back = line + "src:f32::blocked:ba::f0 dst:f32::blocked:ab::f0,,,2x3,0.5"
    >>> found = reorder.logs.report(memdesc.read_verbose([there, back])).round_trips[0]
    >>> found.executions, found.milliseconds, found.between
    (1, 1.0, ())
    """

    there: VerbosePrimitive
    back: VerbosePrimitive
    executions: int
    milliseconds: float
    between: tuple[str, ...]


def group_reorders(
    executions: Sequence[VerboseEntry], run: Sequence[VerboseEntry]
) -> list[LoggedReorder]:
    """Group equal reorders of a log, the most expensive first.

    Parameters
    ----------
    executions : sequence of VerboseEntry
        All executions.
    run : sequence of VerboseEntry
        The executions of one run; empty if the log does not repeat itself.
    """
    in_run = Counter(id(entry.primitive) for entry in run)
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for at, entry in enumerate(executions):
        if is_reorder(entry.primitive):
            groups[id(entry.primitive)].append(at)
    neighbours = _Neighbours(executions)
    found = []
    for key, places in groups.items():
        primitive = executions[places[0]].primitive
        relation, why = _relation(primitive)
        found.append(
            LoggedReorder(
                primitive,
                len(places),
                sum(executions[at].milliseconds for at in places),
                relation,
                why,
                _nbytes(primitive),
                neighbours.common(places, "src"),
                neighbours.common(places, "dst"),
                in_run[key],
            )
        )
    return sorted(found, key=lambda each: -each.milliseconds)


def round_trips(executions: Sequence[VerboseEntry]) -> list[RoundTrip]:
    """Return pairs of reorders whose second undoes the first, the most expensive first."""
    gone: dict[tuple[object, ...], int] = {}
    pairs: defaultdict[tuple[int, int, tuple[str, ...]], list[tuple[int, int]]] = defaultdict(list)
    for at, entry in enumerate(executions):
        primitive = entry.primitive
        if not is_reorder(primitive) or primitive.attributes.scales or _adds(primitive):
            continue
        src, dst = (_layout(primitive.tensors[name]) for name in ("src", "dst"))
        before = gone.pop((primitive.problem, dst, src), None)
        if before is not None and at - before <= _NEAR:
            kinds = tuple(each.primitive.kind for each in executions[before + 1 : at])
            pairs[id(executions[before].primitive), id(primitive), kinds].append((before, at))
        elif src != dst:
            gone[primitive.problem, src, dst] = at
    trips = [
        RoundTrip(
            executions[places[0][0]].primitive,
            executions[places[0][1]].primitive,
            len(places),
            sum(executions[at].milliseconds for place in places for at in place),
            kinds,
        )
        for (_, _, kinds), places in pairs.items()
    ]
    return sorted(trips, key=lambda each: -each.milliseconds)


def is_reorder(primitive: VerbosePrimitive) -> bool:
    """Whether a primitive is a reorder whose tensors are known."""
    return primitive.kind == "reorder" and {"src", "dst"} <= primitive.tensors.keys()


def _layout(tensor: VerboseTensor) -> str:
    """Return the text of a descriptor without flag a, which only records the user's request."""
    return re.sub(r"^(\w+):a", r"\1:", tensor.text)


def _adds(primitive: VerbosePrimitive) -> bool:
    attributes = primitive.attributes
    return bool(attributes.zero_points or attributes.post_ops)


def _relation(primitive: VerbosePrimitive) -> tuple[str, str]:
    src, dst = primitive.tensors["src"], primitive.tensors["dst"]
    if not isinstance(src.desc, MemoryDesc) or not isinstance(dst.desc, MemoryDesc):
        return UNKNOWN, src.why or dst.why or "some sizes are known only at execution"
    found = compare(src.desc, dst.desc)
    if found.kind == "copy" or not (primitive.attributes.scales or _adds(primitive)):
        return found.kind, found.why
    return "copy", "the attributes change the values"


def _nbytes(primitive: VerbosePrimitive) -> int | None:
    src, dst = primitive.tensors["src"].desc, primitive.tensors["dst"].desc
    if not isinstance(src, MemoryDesc) or not isinstance(dst, MemoryDesc):
        return None
    return src.dtype.nbytes(src.nelems) + dst.dtype.nbytes(dst.padded_nelems)


class _Neighbours:
    """Which primitives made the src of a reorder and used its dst."""

    def __init__(self, executions: Sequence[VerboseEntry]) -> None:
        self._executions = executions
        self._known: dict[tuple[int, int, str], str] = {}

    def common(self, places: Sequence[int], side: str) -> str:
        """Return the most common neighbour of the reorders at these places; empty if none."""
        found = Counter(filter(None, (self._near(at, side) for at in places)))
        return found.most_common(1)[0][0] if found else ""

    def _near(self, at: int, side: str) -> str:
        primitive = self._executions[at].primitive
        for other in self._around(at, side):
            key = id(primitive), id(other), side
            if key not in self._known:
                self._known[key] = _match(primitive.tensors[side], other, is_output=side == "src")
            if self._known[key]:
                return self._known[key]
        return ""

    def _around(self, at: int, side: str) -> Iterator[VerbosePrimitive]:
        places = (
            range(at - 1, max(at - 1 - _NEAR, -1), -1)
            if side == "src"
            else range(at + 1, min(at + 1 + _NEAR, len(self._executions)))
        )
        for place in places:
            if (other := self._executions[place].primitive).kind != "reorder":
                yield other


def _match(tensor: VerboseTensor, other: VerbosePrimitive, *, is_output: bool) -> str:
    """Return the kind of a primitive and its name for this tensor; empty if it has none."""
    for name, candidate in other.tensors.items():
        if (
            name.startswith(_OUTPUTS) == is_output
            and candidate.dims == tensor.dims
            and _layout(candidate) == _layout(tensor)
        ):
            return f"{other.kind} {name}"
    return ""
