"""All commands; the help lists them in this order. A new command is a module, and its name here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reorder.cli.command import Command

__all__ = ["NAMES", "find"]

NAMES = (
    "show",
    "where",
    "names",
    "match",
    "translate",
    "diff",
    "explain",
    "reorder",
    "convert",
    "decode",
    "identify",
    "inspect",
    "pack",
    "unpack",
    "source",
    "check",
    "compare",
    "verbose",
    "bench",
    "compile",
    "doctor",
    "completion",
)


def find(name: str) -> Command:
    """Return a command; its module is loaded for it alone."""
    command: Command = import_module(f"reorder.cli.{name}").COMMAND
    return command
