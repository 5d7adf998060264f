"""Cases in the notation of oneDNN's benchdnn: options that hold until changed, then dims."""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise, product
from pathlib import Path

from memdesc import MemdescError
from memdesc.errors import about
from reorder.bench.cases import ATTRIBUTES, Case, Problem

_OPTIONS = ("stag", "dtag", "sdt", "ddt", "strides", *ATTRIBUTES)
_PROBLEM = re.compile(r"(?P<dims>[0-9]{1,19}(x[0-9]{1,19})*)(_?n\"(?P<name>[^\"]*)\")?")
# quoted names may hold blanks
_WORD = re.compile(r"""(?:[^\s"]|"[^"]*")+""")


def read_cases(path: str) -> Iterator[Case]:
    """Read a file of cases: lines of benchdnn, ``#`` for comments; options hold for later lines.

    Fails if a line is wrong; the message has its number.
    """
    state: dict[str, list[str]] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        with about(f"{path!r}, line {number}"):
            yield from _parse(_words(line), state)


def parse_cases(words: Iterable[str]) -> Iterator[Case]:
    """Read options and dims.

    Each tuple of dims makes a case for every combination of the lists in the options before it.
    Words are ``--stag=abcd,acdb``, ``--dtag=aBcd16b``, ``--sdt=f32``, ``--ddt=f32``,
    ``--strides=SRC:DST``, ``--reset``, ``--batch=FILE``, and dims such as ``8x256x56x56`` or
    ``8x3x224x224n"input"``. A layout is what `memdesc.parse_layout` reads; a type is by default the
    one in the layout, or f32.

    Fails if an option is unknown or has no value, or a layout does not fit.
    """
    return _parse(words, {})


def _parse(words: Iterable[str], state: dict[str, list[str]]) -> Iterator[Case]:
    """Read cases; `state` has the options in force, and is changed."""
    todo = iter(words)
    for word in todo:
        if word.startswith("--"):
            name, sign, value = word[2:].partition("=")
            if name == "reset":
                state.clear()
                continue
            value = value if sign else next(todo, "")
            if not value:
                msg = f"--{name} has no value"
                raise MemdescError(msg)
            if name == "batch":
                yield from read_cases(value)
            elif name in _OPTIONS:
                state[name] = [value] if name in ATTRIBUTES else _items(value)
            else:
                known = ", ".join(f"--{option}" for option in _OPTIONS)
                msg = f"no option --{name}; there are {known}, --batch and --reset"
                raise MemdescError(msg)
        else:
            yield from map(Problem.case, _problems(word, state))


def _items(text: str) -> list[str]:
    """Split a list at its commas; those in brackets belong to a layout, such as (8,4):(4,1)."""
    items, depth = [""], 0
    for previous, char in pairwise(f" {text}"):
        depth += (char in "([{<") - (char in ")]}>" and previous != "-")  # -> is an arrow
        if char == "," and not depth:
            items.append("")
        else:
            items[-1] += char
    return items


def _words(line: str) -> list[str]:
    """Split a line at blanks outside of quotes, up to a comment."""
    words = _WORD.findall(line)
    return words[: next((k for k, word in enumerate(words) if word.startswith("#")), None)]


def _problems(word: str, state: dict[str, list[str]]) -> Iterator[Problem]:
    match = _PROBLEM.fullmatch(word)
    if match is None:
        msg = f"{word!r} is neither an option nor dims such as 8x256x56x56"
        raise MemdescError(msg)
    dims = tuple(map(int, match["dims"].split("x")))
    options = {option: state[option][0] for option in ATTRIBUTES if option in state}
    plain: list[str | None] = [None]
    for stag, dtag, strides, sdt, ddt in product(
        state.get("stag", ["abx"]),
        state.get("dtag", ["abx"]),
        state.get("strides", [""]),
        state.get("sdt", plain),
        state.get("ddt", plain),
    ):
        yield Problem(dims, stag, dtag, sdt, ddt, strides, options, match["name"] or "")
