"""A command: its name and help, its arguments, and the function that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError
from reorder.cli.facts import Facts, lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["Command", "Facts", "dims_of"]


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


def dims_of(text: str) -> tuple[int, ...]:
    """Return dims from a string such as ``2x17x5x4``."""
    try:
        return tuple(int(size) for size in text.split("x"))
    except ValueError:
        msg = f"dims {text!r} are not sizes joined by x, such as 2x17x5x4"
        raise MemdescError(msg) from None
