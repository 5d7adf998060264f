"""What commands share: their form, and facts as lines."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

from memdesc import DataType, MemdescError
from memdesc.tuples import NamedTuple
from reorder.disk import as_path, write_file
from reorder.system import count_cores

if TYPE_CHECKING:
    from memdesc.picture import Picture

Facts = dict[str, Any]
Options: TypeAlias = Namespace
"""The arguments of a command, by the names in `commands.txt`."""
Columns: TypeAlias = "Mapping[str, str | Callable[[Facts], str]]"
"""A table: what stands above each column, and a format or a function that makes a cell of a row."""

# More threads are not faster on any machine, and take longer to start.
_THREADS = 256


# Facts as lines.


class Coloured(str):
    """A line of a picture with the colours of a terminal, which are not escaped."""

    __slots__ = ()


def one_line(text: str) -> str:
    """Escape what ends a line or controls a terminal, which names of and in files may contain."""
    if text.isprintable() or isinstance(text, Coloured):
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


class Said(NamedTuple):
    """A fact whose line differs from its JSON; without a text it has no line."""

    fact: Any
    text: Any = None


class Line(NamedTuple):
    """What is said in a line and not in JSON."""

    text: Any


def json_of(fact: Any) -> Any:
    """Return facts as JSON values, which lack nan and inf: these become strings."""
    if isinstance(fact, Said):
        return json_of(fact.fact)
    if isinstance(fact, dict):
        return {key: json_of(value) for key, value in fact.items() if not isinstance(value, Line)}
    if isinstance(fact, list):
        return [*map(json_of, fact)]
    return str(fact) if isinstance(fact, float) and not isfinite(fact) else fact


def lines(facts: Facts) -> list[str]:
    """Return a line for each fact, and one for each item of a list."""
    shown = {
        key: value.text if isinstance(value, Said | Line) else value
        for key, value in facts.items()
        if not isinstance(value, Said) or value.text is not None
    }
    width = max(map(len, shown)) + 2
    laid_out = []
    for key, value in shown.items():
        texts = [_text(row) for row in (value if isinstance(value, list) else [value])] or ["none"]
        heads = [key.replace("_", " "), *[""] * (len(texts) - 1)]
        laid_out += [f"{head:{width}}{text}" for head, text in zip(heads, texts, strict=True)]
    return laid_out


def _text(value: Any) -> str:
    if isinstance(value, Said):
        return str(value.text)
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {item}" for key, item in value.items())
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return rows of cells as lines with aligned columns; those in `right` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:>{width}}" if k in right else f"{cell:{width}}"
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def tabulate(columns: Columns, rows: Sequence[Facts], left: Collection[str]) -> list[str]:
    """Return a table of facts without empty columns; those in `left` are left-aligned."""
    cells = {
        head: [cell.format_map(row) if isinstance(cell, str) else cell(row) for row in rows]
        for head, cell in columns.items()
    }
    kept = [head for head in columns if any(cells[head])] or [*columns]
    right = [k for k, head in enumerate(kept) if head not in left]
    return table([kept, *zip(*(cells[head] for head in kept), strict=True)], right)


def save(picture: Picture, path: str) -> None:
    """Write a picture to a file, completely or not at all."""
    target = as_path(path)
    data = picture.encoded(target.suffix)
    write_file(target, lambda file: file.write(data))


def drawn(picture: Picture) -> list[str]:
    """Return the lines of a picture: in a terminal, coloured if allowed."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    if not is_terminal or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return picture.text.splitlines()
    return [Coloured(line) for line in picture.coloured.splitlines()]


class Command(NamedTuple):
    """A command of `memdesc`, whose arguments are in `commands.txt`.

    `answer` returns facts and the exit code; facts are printed as JSON, or as lines by `lay_out`.
    `words` fill the texts of arguments, and `settings` has what argparse is told of some flags.
    """

    answer: Callable[[Options], tuple[Facts, int]]
    lay_out: Callable[[Facts], list[str]] = lines
    words: Mapping[str, str] = {}
    settings: Mapping[str, Mapping[str, Any]] = {}


def facts_of(value: object, *names: str) -> Facts:
    """Return attributes of a value; types become strings."""
    facts = {name: getattr(value, name) for name in names}
    return {name: str(fact) if isinstance(fact, DataType) else fact for name, fact in facts.items()}


def is_wanted(name: str, wanted: str) -> bool:
    """Whether a name has a part, or matches a pattern such as ``*.weight``, ignoring case."""
    name, wanted = name.lower(), wanted.lower()
    return fnmatchcase(name, wanted) if any(mark in wanted for mark in "*?[") else wanted in name


def threads_of(given: int | None) -> int:
    """Return the number of threads to run: by default all that the process may use."""
    if given is None:
        return count_cores()
    if given < 1:
        raise MemdescError(f"--threads {given} must be 1 or more")
    return min(given, _THREADS)
