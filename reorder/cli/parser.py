"""Parsers of the command line, made from the commands; misspelt words get suggestions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NoReturn

import memdesc
from memdesc import MemdescError
from memdesc.names import did_you_mean
from reorder.cli.command import flags_of
from reorder.cli.commands import NAMES, find

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["command_parser", "parse"]

_DESCRIPTION = "How tensors lie in memory, and how to move them."
# a word resembles another from this ratio of difflib on
_RESEMBLES = 0.5
# suggestions in one message
_COUNT = 3


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are MemdescErrors; flags are not abbreviated."""

    def __init__(self, prog: str, description: str, epilog: str | None = None) -> None:
        super().__init__(prog, description=description, epilog=epilog, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        msg = f"{message}; see {self.prog} --help"
        raise MemdescError(msg)


def parse(given: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line.

    Raises
    ------
    MemdescError
        If there is no such command or flag, with those that resemble it; if an argument is
        missing or wrong.
    """
    if not given or given[0].startswith("-"):
        return _all_commands().parse_args(given)
    name, *words = given
    if name not in NAMES:
        near = did_you_mean(_near(name, NAMES)) or f"; the commands are {', '.join(NAMES)}"
        msg = f"no command {name!r}{near}; see memdesc --help"
        raise MemdescError(msg)
    parser = command_parser(name)
    # argparse would read -- among the words behind such a flag
    takes_rest = [f for f, action in flags_of(parser).items() if action.nargs == argparse.REMAINDER]
    end = next((k for k, word in enumerate(words) if word in takes_rest), None)
    if end is not None:
        options = parser.parse_args(words[: end + 1])
        setattr(options, flags_of(parser)[words[end]].dest, words[end + 1 :])
        return options
    _check_flags(parser, words)
    return parser.parse_args(words)


def command_parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of one command; no other command is loaded."""
    command = find(name)
    parser = _Parser(f"memdesc {name}", command.summary, f"example: memdesc {command.example}")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    command.add_arguments(parser)
    parser.set_defaults(answer=command.answer, lay_out=command.lay_out)
    # of `completion`, which is about all commands
    parser.set_defaults(names=NAMES, parser_of=command_parser)
    return parser


def _all_commands() -> argparse.ArgumentParser:
    """Return a parser that lists the commands."""
    parser = _Parser("memdesc", _DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"memdesc {memdesc.__version__}")
    plain = argparse.ArgumentParser  # these never parse
    commands = parser.add_subparsers(required=True, metavar="command", parser_class=plain)
    for name in NAMES:
        summary = find(name).summary
        commands.add_parser(name, help=summary, description=summary)
    return parser


def _check_flags(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Refuse unknown flags, before argparse complains that the right ones are missing."""
    known = flags_of(parser)
    end = words.index("--") if "--" in words else len(words)
    for word in words[:end]:
        flag, sign, value = word.partition("=")
        if flag.startswith("--") and flag not in known:
            near = _near(flag[2:], [one[2:] for one in known])
            parser.error(f"no flag {flag}{did_you_mean(tuple(f'--{one}' for one in near))}")
        if sign and value == "--":  # argparse makes an empty list of it
            parser.error(f"argument {flag}: expected a value, not --")


def _near(word: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the known words that begin with a word, and those that resemble it; 3 at most."""
    import difflib  # only a wrong word needs it

    words = [*known]
    longer = [one for one in words if one.startswith(word)]
    near = difflib.get_close_matches(word, words, cutoff=_RESEMBLES)
    return tuple(dict.fromkeys([*longer, *near]))[:_COUNT]
