"""Read logs of oneDNN's verbose mode line by line.

A line has ``onednn_verbose`` (``dnnl_verbose`` up to 2.4), the version of the format (since 3.4), a
timestamp if requested, the component (since 3.4), the event, and nine fields. Sources:
oneDNN 2.3 to 3.13, `verbose.cpp`, and lines of these versions, of PyTorch and of OpenVINO.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper

from memdesc.errors import MemdescError, counted, short_repr
from memdesc.immutable import immutable
from memdesc.tuples import NamedTuple
from reorder.disk import as_path, open_file
from reorder.logs.primitive import VerbosePrimitive

# the marker may follow output of another program on the same line
_LINE = re.compile(
    r"(?:onednn|dnnl)_verbose,(?:v[0-9]+,)?(?:(?P<stamp>[0-9]+(?:\.[0-9]+)?),)?"
    r"(?:(?P<component>primitive|graph|ukernel|common),)?(?P<rest>.*)"
)
_VERSION = re.compile(r"oneDNN v([0-9.]+)")
# events with a duration; create:check, exec:check and others have none
_PROFILED = re.compile("exec|create(_nested)?(:cache_(hit|miss))?")
# milliseconds as printf's %g writes them
_DURATION = re.compile(r"[0-9]{1,19}(?:\.[0-9]{1,19})?(?:e[+-][0-9]{2})?", re.ASCII)
# a number with a decimal comma, in an attribute or at the end of a line
_COMMA = re.compile(r":-?[0-9]+,[0-9]+(?=[,:+ ])|,[0-9]+,[0-9]+(?:e[+-][0-9]{2})?$")
_BY_LOCALE = (
    "its numbers have a decimal comma, because of the program's locale; run it with LC_ALL=C"
)
# engine, primitive, implementation, prop_kind, descriptors, attributes, auxiliary, problem
_FIELDS = 8
# the most lines that could not be read and are kept with their text
_KEPT = 20


@immutable
class VerboseEntry(NamedTuple):
    """A primitive that was created or executed.

    Parameters
    ----------
    line : int
        Its line in the log, counted from 1.
    event : str
        ``exec``, ``create:cache_miss``, ``create:cache_hit``, ...
    primitive : VerbosePrimitive
        The primitive; entries of the same primitive share one object.
    milliseconds : float
        How long it took.
    timestamp : float or None
        When it started, in milliseconds, if the log has timestamps.

    Examples
    --------
    >>> line = "onednn_verbose,exec,cpu,eltwise,jit,undef,data:f32::blocked:ab::f0,,,2x3,0.25"
    >>> entry = reorder.logs.read_verbose([line]).entries[0]
    >>> entry.line, entry.event, entry.milliseconds
    (1, 'exec', 0.25)
    """

    line: int
    event: str
    primitive: VerbosePrimitive
    milliseconds: float
    timestamp: float | None = None

    @property
    def is_execution(self) -> bool:
        """Whether the primitive was executed, not created."""
        return self.event == "exec"


class UnreadLine(NamedTuple):
    """A line of oneDNN in an unknown form: its number, from 1, and what is wrong with it."""

    line: int
    text: str
    why: str


@immutable
class VerboseLog(NamedTuple):
    """What a log contains.

    Parameters
    ----------
    entries : tuple of VerboseEntry
        Primitives that were created or executed, in the order of the log.
    versions : tuple of str
        The versions of oneDNN that wrote into the log, such as ``3.13.2``.
    info : tuple of str
        What oneDNN printed about itself and the machine, one string per line.
    skipped : dict
        How many lines of oneDNN were not read, by type: ``graph``, ``exec:check``, ``error``, ...;
        ``unread`` counts lines of an unknown form.
    unread : tuple of UnreadLine
        The first of these: `line` (from 1), `text`, and `why` it was not read.
    other_lines : int
        Lines that are not oneDNN's.

    Examples
    --------
    >>> reorder.logs.read_verbose(["onednn_verbose,v1,info,oneDNN v3.13.2"]).versions
    ('3.13.2',)
    """

    entries: tuple[VerboseEntry, ...]
    versions: tuple[str, ...]
    info: tuple[str, ...]
    skipped: dict[str, int]
    unread: tuple[UnreadLine, ...]
    other_lines: int

    @property
    def executions(self) -> tuple[VerboseEntry, ...]:
        """The entries of executions."""
        return tuple(entry for entry in self.entries if entry.is_execution)


def read_verbose(source: str | os.PathLike[str] | Iterable[str]) -> VerboseLog:
    """Read a log that a program wrote with ``ONEDNN_VERBOSE`` or ``DNNL_VERBOSE`` set.

    Lines of oneDNN 2.3 and later about any primitive are read; other lines are counted. No line
    makes reading fail.

    Parameters
    ----------
    source : path, or iterable of str
        A file, or lines such as an open file gives.

    Raises
    ------
    MemdescError
        If the file cannot be read, or `source` is neither.

    Examples
    --------
    >>> log = reorder.logs.read_verbose([
    ...     "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,"
    ...     "src:f32::blocked:abcd::f0 dst:f32:p:blocked:aBcd16b::f0,,,2x17x8x8,0.25",
    ...     "something else"])
    >>> entry = log.entries[0]
    >>> entry.primitive.kind, entry.milliseconds, log.other_lines
    ('reorder', 0.25, 1)
    >>> entry.primitive.tensors["dst"].desc
    memory_desc((2, 17, 8, 8), 'f32', 'aBcd16b')
    """
    entries: list[VerboseEntry] = []
    info: list[str] = []
    unread: list[UnreadLine] = []
    skipped: Counter[str] = Counter()
    # equal primitives become one object
    primitives: dict[str, VerbosePrimitive] = {}
    other_lines = 0
    with _lines(source) as lines:
        for number, line in enumerate(lines, 1):
            match = _LINE.search(line) if isinstance(line, str) else None
            if match is None:
                other_lines += 1
                continue
            event, _, rest = match["rest"].strip().partition(",")
            is_half = event.isdecimal()  # the second half of a timestamp
            if event == "info":
                info.append(rest)
            elif match["component"] not in {None, "primitive"}:
                skipped[match["component"]] += 1
            elif event and not is_half and not _PROFILED.fullmatch(event):
                skipped[event] += 1
            elif not is_half and (executed := _executed(rest, primitives)):
                stamp = float(match["stamp"]) if match["stamp"] else None
                entries.append(VerboseEntry(number, event, *executed, stamp))
            else:
                skipped["unread"] += 1
                if len(unread) < _KEPT:
                    why = _BY_LOCALE if is_half else _why_unread(rest)
                    unread.append(UnreadLine(number, line.strip(), why))
    versions = dict.fromkeys(version for line in info for version in _VERSION.findall(line))
    return VerboseLog(
        tuple(entries),
        tuple(versions),
        tuple(info),
        dict(skipped),
        tuple(unread),
        other_lines,
    )


def _executed(
    rest: str, primitives: dict[str, VerbosePrimitive]
) -> tuple[VerbosePrimitive, float] | None:
    """Return the primitive of a line, and its time; None if the line has another form."""
    described, _, duration = rest.rpartition(",")
    primitive = primitives.get(described)
    if primitive is None:
        fields = described.split(",")
        if len(fields) != _FIELDS:
            return None
        primitive = primitives[described] = VerbosePrimitive(*fields)
    return (primitive, float(duration)) if _DURATION.fullmatch(duration) else None


def _why_unread(rest: str) -> str:
    *fields, duration = rest.split(",")
    if len(fields) > _FIELDS and _COMMA.search(rest):
        return _BY_LOCALE
    if len(fields) != _FIELDS:
        count = counted(len(fields) + 1, "field")
        return f"it has {count} after the event instead of {_FIELDS + 1}"
    return f"its time {short_repr(duration)} is not a number"


@contextmanager
def _lines(source: object) -> Iterator[Iterable[str]]:
    if isinstance(source, str | os.PathLike):
        path = as_path(source)
        try:
            with open_file(path) as file:
                yield TextIOWrapper(file, encoding="utf-8", errors="replace")
        except MemdescError as error:
            if isinstance(source, str) and "\n" in source:
                raise MemdescError(
                    f"a log is a path or an iterable of lines, not {short_repr(source)}; pass "
                    "text.splitlines()"
                ) from None
            raise MemdescError(f"the log {error}") from None
    elif isinstance(source, Iterable) and not isinstance(source, bytes | bytearray | memoryview):
        yield source
    else:
        raise MemdescError(f"a log is a path or an iterable of lines, not {short_repr(source)}")
