"""What a command is: its words, its arguments, and a function of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["Command", "Facts", "dims_of"]

Facts = dict[str, Any]


class Command(NamedTuple):
    """One word behind `memdesc`.

    `run` returns facts, printed as lines or as JSON, and the exit code.
    """

    name: str
    text: str
    example: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], tuple[Facts, int]]


def dims_of(text: str) -> tuple[int, ...]:
    """Return dims from text such as ``2x17x5x4``."""
    try:
        return tuple(int(size) for size in text.split("x"))
    except ValueError:
        msg = f"dims {text!r} are not sizes joined by x, such as 2x17x5x4"
        raise MemdescError(msg) from None
