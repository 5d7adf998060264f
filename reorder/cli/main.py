"""The command line: parse it, run one command, print its answer."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EBADF
from importlib import import_module
from typing import NoReturn, TextIO

import memdesc
from memdesc import MemdescError
from memdesc.errors import short_repr
from memdesc.names import did_you_mean
from memdesc.names.similar import similar_words, transposed
from reorder.cli.arguments import GROUPS, ROWS, add_arguments
from reorder.cli.command import Command, one_line
from reorder.cli.progress import CompileNotice, warn
from reorder.disk import reason_of

NAMES = tuple(ROWS)
_ALL = f"; the commands are {', '.join(NAMES)}"
_DESCRIPTION = "How tensors lie in memory, and how to move them."
_EPILOG = "memdesc COMMAND --help says what a command takes."
# a word that may be the name of a layout, with a number of two digits or more
_NUMBERED = re.compile(r"[A-Za-z]\w*[0-9]{2}\w*", re.ASCII)
_DIGITS = re.compile("[0-9]")
# How many characters of the start and of the end of an error are kept: the reason is often last.
_MAX_PART = 2000
# a shell adds this to the number of the signal that ended a command
_BY_SIGNAL = 128
# what shtab's scripts call to complete names of files, in each shell
_FILES = {
    "bash": "_shtab_compgen_files",
    "zsh": "_files",
    "fish": "(__fish_complete_path (commandline -ct))",
}
# Requests to end and closed terminals end a command like Ctrl-C.
_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class _EndedError(KeyboardInterrupt):
    """A signal other than SIGINT asks the command to end."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code.

    It is 0, 1 (a check failed), 2 (bad input), or 128 and the number of the signal that ended it:
    130 for Ctrl-C, 143 for SIGTERM.
    """
    given = sys.argv[1:] if arguments is None else arguments
    try:
        with _ended_by_signals():
            return _run(given)
    except KeyboardInterrupt as error:
        (number,) = error.args if isinstance(error, _EndedError) else (signal.SIGINT,)
        text = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
        _complain("; ".join((text, *getattr(error, "__notes__", ()))), given)
        return _BY_SIGNAL + int(number)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Raise in the main thread where a signal would end the process without cleaning up."""
    replaced = []
    if threading.current_thread() is threading.main_thread():
        # where an embedding program runs Python's main thread on another one, no handler can be set
        with suppress(ValueError):
            for number in _ENDING:
                if signal.getsignal(number) == signal.SIG_DFL:
                    signal.signal(number, _end)
                    replaced.append(number)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, _: object) -> NoReturn:
    raise _EndedError(signal.Signals(number))


def _run(given: Sequence[str]) -> int:
    try:
        if not given:
            _all_commands().print_help()
            return 0
        options = parse(given)
        command: Command = options.command
        with CompileNotice():
            facts, code = command.answer(options)
        for word in given:
            _warn_of_swapped_digits(word)
        text = (
            json.dumps(facts) if options.json else "\n".join(map(one_line, command.lay_out(facts)))
        )
    except (MemdescError, MemoryError) as error:
        _complain(str(error) or "out of memory", given)
        return 2
    except OSError as error:  # such as names longer than the system has
        about = "" if error.filename is None else f"{short_repr(error.filename)}: "
        _complain(f"{about}{reason_of(error)}", given)
        return 2
    if why := _written(sys.stdout, text):
        _complain(f"the answer cannot be written: {why}", given)
        return 2
    return int(code)


def _warn_of_swapped_digits(word: str) -> None:
    """Warn of a block size such as 61, which no system has, where 16 makes a known name."""
    name = word.partition("=")[2] if word.startswith("--") else word
    if not _NUMBERED.fullmatch(name):
        return
    near = tuple(
        each for each in transposed(name) if _DIGITS.sub("", each) == _DIGITS.sub("", name)
    )
    if near:
        warn(f"no system has the name {name!r}; it was read by its letters{did_you_mean(near)}")


def _complain(text: str, given: Sequence[str]) -> None:
    """Write one line about an error, if there is a stderr."""
    if len(text) > 2 * _MAX_PART:
        text = f"{text[:_MAX_PART]} ... {text[-_MAX_PART:]}"
    line = json.dumps({"error": text}) if "--json" in given else f"memdesc: {one_line(text)}"
    _written(sys.stderr, line)


def _written(stream: TextIO | None, text: str) -> str:
    """Write a line; return why that fails. A reader that closed the pipe is no failure.

    Characters that the terminal's encoding does not have are escaped.
    """
    if stream is None:
        return os.strerror(EBADF)
    try:
        try:
            stream.write(text + "\n")
        except UnicodeEncodeError:
            encoding = stream.encoding
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        stream.flush()
    except OSError as error:
        # the interpreter flushes the stream again at its end: that goes to nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return "" if isinstance(error, BrokenPipeError) else error.strerror or str(error)
    return ""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are MemdescErrors; flags are not abbreviated."""

    def __init__(self, prog: str, description: str, epilog: str | None = None) -> None:
        super().__init__(prog, description=description, epilog=epilog, allow_abbrev=False)
        # strides such as -4x1@8 are not flags, and neither are negative numbers
        self._negative_number_matcher = re.compile("-[0-9]")

    def error(self, message: str) -> NoReturn:
        if re.fullmatch("unrecognized arguments:( [0-9]+)+", message):
            message += "; sizes are one argument, joined by x, such as 2x17x5x4"
        raise MemdescError(f"{message}; see {self.prog} --help")


def parse(given: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line.

    Fails if a command or flag is unknown (the message suggests similar ones), or an argument is
    missing or wrong.
    """
    if given[0].startswith("-"):
        return _all_commands().parse_args(given)
    name, *words = given
    if name not in NAMES:
        near = did_you_mean(similar_words(name, NAMES))
        raise MemdescError(f"no command {name!r}{near or _ALL}; see memdesc --help")
    parser = command_parser(name)
    _check_flags(parser, words)
    if "--" in words:
        return parser.parse_args(words)
    return parser.parse_intermixed_args(words)  # flags may stand before an optional argument


def command_parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of one command; no other command is loaded."""
    row = ROWS[name]
    parser = _Parser(f"memdesc {name}", row.summary, f"example: {row.example}")
    _fill(parser, name)
    return parser


def shell_parser() -> argparse.ArgumentParser:
    """Return one parser for all commands, from which `shtab` makes completion scripts."""
    parser = _all_commands()
    commands = parser.add_subparsers()
    for name, row in ROWS.items():
        one = commands.add_parser(name, description=row.summary, help=row.summary)
        _fill(one, name)
        for action in one._actions:  # noqa: SLF001 - argparse has no public list
            if action.choices is None and action.nargs != 0:
                action.complete = _FILES  # type: ignore[attr-defined] # shtab reads it
    return parser


def _fill(parser: argparse.ArgumentParser, name: str) -> None:
    command: Command = import_module(f"reorder.cli.{name}").COMMAND
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_arguments(parser, ROWS[name], command.words, command.settings)
    parser.set_defaults(command=command)


def _all_commands() -> argparse.ArgumentParser:
    """Return a parser that lists the commands in their groups."""
    width = max(map(len, NAMES)) + 2
    groups = [
        "\n".join([f"{group}:", *(f"  {name:{width}}{ROWS[name].summary}" for name in names)])
        for group, names in GROUPS.items()
    ]
    parser = _Parser("memdesc", "\n\n".join([_DESCRIPTION, *groups]), _EPILOG)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "memdesc COMMAND ... [--json]"
    parser.add_argument("--version", action="version", version=f"memdesc {memdesc.__version__}")
    return parser


def flags_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Return the flags of a parser, such as ``--json``, each with its action."""
    return {flag: action for action in parser._actions for flag in action.option_strings}  # noqa: SLF001 - argparse has no public list


def _check_flags(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Refuse unknown flags before argparse complains that required ones are missing."""
    known = flags_of(parser)
    end = words.index("--") if "--" in words else len(words)
    for word in words[:end]:
        flag, sign, value = word.partition("=")
        if flag.startswith("--") and flag not in known:
            near = similar_words(flag[2:], [one[2:] for one in known])
            parser.error(f"no option {flag}{did_you_mean(tuple(f'--{one}' for one in near))}")
        if sign and value == "--":  # argparse turns it into an empty list
            parser.error(f"argument {flag}: expected a value, not --")
