"""Parse the command line, run one command, print what it says."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

import memdesc
from memdesc import MemdescError
from reorder.cli import bench, check, doctor, pack, reorder, show

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_COMMANDS = (show.COMMAND, reorder.COMMAND, pack.COMMAND, check.COMMAND, bench.COMMAND, doctor.COMMAND)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0, 1 (a check failed) or 2 (bad input)."""
    options = _parser().parse_args(arguments)
    try:
        facts, code = options.run(options)
    except (MemdescError, MemoryError) as error:
        sys.stderr.write(f"memdesc: {error}\n")
        return 2
    try:
        sys.stdout.write((json.dumps(facts) if options.json else "\n".join(options.lay_out(facts))) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader has seen enough; keep the interpreter from flushing into it again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="memdesc", description="How tensors lie in memory, and how to move them.")
    parser.add_argument("--version", action="version", version=f"memdesc {memdesc.__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")
    for command in _COMMANDS:
        own = commands.add_parser(command.name, help=command.text, description=command.text, epilog=f"example: memdesc {command.example}")
        own.add_argument("--json", action="store_true", help="print one JSON object")
        command.add_arguments(own)
        own.set_defaults(run=command.run, lay_out=command.lay_out)
    return parser
