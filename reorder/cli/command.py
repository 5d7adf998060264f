"""A command: its name and help, its arguments, and the function that answers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError
from memdesc.errors import short_repr
from reorder.cli.facts import Facts, lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["Command", "Facts", "dims_of", "flags_of", "numbers_of"]


class Command(NamedTuple):
    """A command of `memdesc`.

    `answer` returns facts and the exit code; facts are printed as JSON, or as lines by `lay_out`.
    """

    name: str
    summary: str
    example: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    answer: Callable[[argparse.Namespace], tuple[Facts, int]]
    lay_out: Callable[[Facts], list[str]] = lines


def flags_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Return the flags of a parser, such as ``--json``, each with what it does."""
    return {flag: action for action in parser._actions for flag in action.option_strings}  # noqa: SLF001 - argparse has no public list


def numbers_of(text: str, what: str) -> tuple[int, ...]:
    """Return integers joined by x or by commas."""
    numbers = [number.strip() for number in re.split("[x,]", text)]
    if not all(re.fullmatch("-?[0-9]{1,4000}", number) for number in numbers):
        msg = (
            f"{what} {short_repr(text)} are not integers joined by x or commas, such as 340x20x4x1"
        )
        raise MemdescError(msg)
    return tuple(map(int, numbers))


def dims_of(text: str) -> tuple[int, ...]:
    """Return dims from a string such as ``2x17x5x4`` or ``2,17,5,4``."""
    return numbers_of(text, "dims")
