"""Parse the command line, run one command, print what it says."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, NoReturn

import memdesc
from memdesc import MemdescError
from reorder.cli import bench, check, decode, diff, doctor, explain, match, pack, reorder, show

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_COMMANDS = (
    show.COMMAND,
    match.COMMAND,
    diff.COMMAND,
    explain.COMMAND,
    reorder.COMMAND,
    decode.COMMAND,
    pack.COMMAND,
    check.COMMAND,
    bench.COMMAND,
    doctor.COMMAND,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code: 0, 1 (a check failed) or 2 (bad input)."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        options = _parser().parse_args(given)
        facts, code = options.answer(options)
    except (MemdescError, MemoryError) as error:
        text = str(error) or "out of memory"
        sys.stderr.write(
            (json.dumps({"error": text}) if "--json" in given else f"memdesc: {text}") + "\n"
        )
        return 2
    try:
        sys.stdout.write(
            (json.dumps(facts) if options.json else "\n".join(options.lay_out(facts))) + "\n"
        )
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader closed the pipe; the interpreter must not flush into it again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(code)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are MemdescErrors."""

    def error(self, message: str) -> NoReturn:
        msg = f"{message}; see {self.prog} --help"
        raise MemdescError(msg)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="memdesc", description="How tensors lie in memory, and how to move them.")
    parser.add_argument("--version", action="version", version=f"memdesc {memdesc.__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    for command in _COMMANDS:
        subparser = commands.add_parser(
            command.name,
            help=command.summary,
            description=command.summary,
            epilog=f"example: memdesc {command.example}",
        )
        subparser.add_argument("--json", action="store_true", help="print one JSON object")
        command.add_arguments(subparser)
        subparser.set_defaults(answer=command.answer, lay_out=command.lay_out)
    return parser
