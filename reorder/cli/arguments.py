"""The table of commands, `commands.txt`: what each one does, and the arguments that it takes."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from keyword import iskeyword
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

from memdesc.errors import short_repr
from memdesc.tuples import NamedTuple

_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_SIZE = re.compile(r"([0-9]{1,12}) ?([KMGT]?)i?B?", re.ASCII | re.IGNORECASE)
# how an argument is written: its flags, or none; what stands for its value; how often it is given,
# whether it must be; its default
_SPEC = re.compile(r"^(\[?)(?:--[a-z-]+ ?)*([A-Z,]*)\]?( \.\.\.)?(!?)(=?)(.*)$")


def numbers(text: str) -> tuple[int, ...]:
    """Return integers joined by x or by commas."""
    # numpy and torch print (2, 17) and [2, 17]
    bare = re.sub(r"^\s*(?:torch\.Size)?[(\[]+|,?\s*[)\]]+\s*$", "", text)
    found = [number.strip() for number in re.split("[x,]", bare)]
    if not all(re.fullmatch("-?[0-9]{1,4000}", number) for number in found):
        msg = f"{short_repr(text)} must be integers joined by x or commas, such as 2x17x5x4"
        if re.fullmatch("([a-z]+[0-9]{1,19}_?){1,12}", text):  # as in oneDNN's logs
            msg += f"; for the numbers alone, write {'x'.join(re.findall('[0-9]+', text))}"
        raise ArgumentTypeError(msg)
    return tuple(map(int, found))


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", text):
        raise ArgumentTypeError(f"give how many, 0 or more, not {short_repr(text)}")
    return int(text)


def _size(text: str) -> int:
    """Return a size such as ``200MiB``, in bytes; units are powers of 1024."""
    found = _SIZE.fullmatch(text.strip())
    size = int(found[1]) << _UNITS[found[2].upper()] if found else 0
    if not size:
        raise ArgumentTypeError(f"{text!r} is not a size above 0, such as 200MiB or 1073741824")
    return size


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < inf:
        raise ArgumentTypeError(f"give a time above 0, such as 0.1, not {short_repr(text)}")
    return seconds


# how values are read, by flags or by what stands for a value in the help; others are strings
_TYPES: Mapping[str, Any] = {
    "--seconds": _seconds,
    "--beta": float,
    **dict.fromkeys(("DIMS", "INDEX", "X,Y"), numbers),
    **dict.fromkeys(("N", "BYTES"), int),
    **dict.fromkeys(("T", "R", "MB"), float),
    "SIZE": _size,
}


class Row(NamedTuple):
    """A command: its summary, an example, and its arguments as the table has them."""

    summary: str
    example: str
    arguments: tuple[str, ...]


def _row(text: str) -> tuple[str, Row]:
    name, summary, example, *arguments = text.splitlines()
    return name, Row(summary, example, tuple(arguments))


# indented lines continue those above
_TEXT = re.sub(r"\n +", " ", Path(__file__).with_name("commands.txt").read_text(encoding="utf-8"))
_HEAD, *_PARTS = _TEXT.strip().split("\n\n# ")
# what arguments of several commands mean: what stands for the value, and the text
_SHARED = {
    (words := spec.split())[0]: (words[-1], text.strip())
    for spec, _, text in (line.partition("  ") for line in _HEAD.split("\n\n")[1].splitlines())
}
_GROUPED = {part.partition("\n")[0]: part.split("\n\n## ")[1:] for part in _PARTS}
GROUPS = MappingProxyType(
    {group: tuple(text.partition("\n")[0] for text in texts) for group, texts in _GROUPED.items()}
)
"""The commands in the order of the help; each is a module of its name."""
ROWS = MappingProxyType(dict(_row(text) for texts in _GROUPED.values() for text in texts))
"""What the table says of each command."""


def add_arguments(
    parser: ArgumentParser, row: Row, words: Mapping[str, str], more: Mapping[str, Any]
) -> None:
    """Add the arguments of a command; `words` fill texts, `more` has settings of some flags."""
    known = {**{name: text for name, (_, text) in _SHARED.items()}, **words}
    for line in row.arguments:
        spec, _, text = line.partition("  ")
        for flag in re.findall("--[a-z-]+", spec) or [""]:
            name, settings = _settings(spec, flag, text.strip(), known)
            parser.add_argument(name, **{**settings, **more.get(flag, {})})


def _settings(
    spec: str, flag: str, text: str, known: Mapping[str, str]
) -> tuple[str, dict[str, Any]]:
    """Return the name of an argument, and what argparse is told about it."""
    ((optional, metavar, several, required, has_default, default),) = _SPEC.findall(spec)
    shared, meaning = _SHARED.get(flag or metavar, ("", ""))
    text = meaning + text.removeprefix("...") if text.startswith("...") or not text else text
    settings: dict[str, Any] = {"help": text.format_map(known)}
    metavar = metavar or shared
    if not metavar:
        return flag, settings | {"action": "store_true"}
    settings |= {"metavar": metavar, "type": _TYPES.get(flag, _TYPES.get(metavar))}
    dest = flag.removeprefix("--").replace("-", "_") or metavar.lower()
    dest += "_" * iskeyword(dest)
    if has_default:
        settings["default"] = default
        settings["type"] = _count if settings["type"] is int else settings["type"]
    if optional:
        settings["nargs"] = "?"
    if not flag:
        return dest, settings | ({"nargs": "+"} if several else {})
    if several:
        settings |= {"action": "append", "default": []}
    return flag, settings | {"dest": dest} | ({"required": True} if required else {})
