"""The command line: parse it as `commands.txt` says, run one command, print its answer."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import threading
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from errno import EBADF
from importlib import import_module
from keyword import iskeyword
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, TextIO

import memdesc
from memdesc import MemdescError
from memdesc.errors import short_repr
from memdesc.names.similar import did_you_mean, similar_words
from reorder.cli.command import Command, json_of, one_line
from reorder.disk import reason_of

# indented lines continue those above
_TEXT = re.sub(r"\n +", " ", Path(__file__).with_name("commands.txt").read_text(encoding="utf-8"))
_HEAD, *_PARTS = _TEXT.strip().split("\n\n# ")
# what arguments of several commands mean: what stands for the value, and the text
_SHARED = {
    (words := spec.split())[0]: (words[-1], text.strip())
    for spec, _, text in (line.partition("  ") for line in _HEAD.split("\n\n")[1].splitlines())
}
# by group and name: the summary of a command, an example, and its arguments
_GROUPED = {
    group: {name: rest for name, *rest in map(str.splitlines, texts)}
    for group, *texts in (part.split("\n\n## ") for part in _PARTS)
}
GROUPS = MappingProxyType({group: tuple(rows) for group, rows in _GROUPED.items()})
"""The commands in the order of the help; each is a module of its name."""
_ROWS = {name: row for rows in _GROUPED.values() for name, row in rows.items()}
NAMES = tuple(_ROWS)
_ALL = f"; the commands are {', '.join(NAMES)}"
_DESCRIPTION = "How tensors lie in memory, and how to move them."
_EPILOG = "memdesc COMMAND --help says what a command takes."
# How many characters of the start and of the end of an error are kept: the reason is often last.
_MAX_PART = 2000
# a shell adds this to the number of the signal that ended a command
_BY_SIGNAL = 128
# counts are below this
_MOST = 10**18
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_SIZE = re.compile(r"([0-9]{1,12}) ?([KMGT]?)i?B?", re.ASCII | re.IGNORECASE)
# how an argument is written: its flags, or none; what stands for its value; how often it is given,
# whether it must be; its default
_SPEC = re.compile(r"^(\[?)(?:--[a-z-]+ ?)*([A-Z,]*)\]?( \.\.\.)?(!?)(=?)(.*)$")
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
    argv = sys.argv[1:] if arguments is None else arguments
    try:
        with _ended_by_signals():
            return _run(argv)
    except KeyboardInterrupt as error:
        (number,) = error.args if isinstance(error, _EndedError) else (signal.SIGINT,)
        text = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
        _complain("; ".join((text, *getattr(error, "__notes__", ()))), argv)
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


def _run(argv: Sequence[str]) -> int:
    try:
        if not argv:
            _all_commands().print_help()
            return 0
        options = parse(argv)
        command: Command = options.command
        facts, code = command.answer(options)
        lines = [json.dumps(json_of(facts))] if options.json else command.lay_out(facts)
        text = "\n".join(map(one_line, lines))
    except (MemdescError, MemoryError) as error:
        _complain(str(error) or "out of memory", argv)
        return 2
    except OSError as error:  # such as names longer than the system allows
        about = "" if error.filename is None else f"{short_repr(error.filename)}: "
        _complain(f"{about}{reason_of(error)}", argv)
        return 2
    if why := _written(sys.stdout, text):
        _complain(f"the answer cannot be written: {why}", argv)
        return 2
    return int(code)


def _complain(text: str, argv: Sequence[str]) -> None:
    """Write one line about an error, if there is a stderr."""
    if len(text) > 2 * _MAX_PART:
        text = f"{text[:_MAX_PART]} ... {text[-_MAX_PART:]}"
    line = json.dumps({"error": text}) if "--json" in argv else f"memdesc: {one_line(text)}"
    _written(sys.stderr, line)


def _written(stream: TextIO | None, text: str) -> str:
    """Write a line; return why that fails. A reader that closed the pipe is not a failure.

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
        # the interpreter flushes the stream again when it ends; that goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return "" if isinstance(error, BrokenPipeError) else error.strerror or str(error)
    return ""


def _with_help(message: str, prog: str) -> str:
    """Return a message, perhaps a question, followed by where to read more."""
    return f"{message}{' See' if message.endswith('?') else '; see'} {prog} --help"


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are MemdescErrors; flags are not abbreviated."""

    def __init__(self, prog: str, description: str, epilog: str | None = None) -> None:
        super().__init__(prog, description=description, epilog=epilog, allow_abbrev=False)
        # strides such as -4x1@8 are not flags, and neither are negative numbers
        self._negative_number_matcher = re.compile("-[0-9]")

    def error(self, message: str) -> NoReturn:
        raise MemdescError(_with_help(message, self.prog))


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
        raise MemdescError(_with_help(f"no command {name!r}{near or _ALL}", "memdesc"))
    parser = command_parser(name)
    _check_flags(parser, words)
    if "--" in words:
        return parser.parse_args(words)
    return parser.parse_intermixed_args(words)  # flags may stand before an optional argument


def command_parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of one command; no other command is loaded."""
    summary, example, *_ = _ROWS[name]
    parser = _Parser(f"memdesc {name}", summary, f"example: {example}")
    _fill(parser, name)
    return parser


def shell_parser() -> argparse.ArgumentParser:
    """Return one parser for all commands, from which `shtab` makes completion scripts."""
    parser = _all_commands()
    commands = parser.add_subparsers()
    for name, (summary, *_) in _ROWS.items():
        command = commands.add_parser(name, description=summary, help=summary)
        _fill(command, name)
        for action in command._actions:  # noqa: SLF001 - argparse has no public list
            if action.choices is None and action.nargs != 0:
                action.complete = _FILES  # type: ignore[attr-defined] # shtab reads it
    return parser


def _fill(parser: argparse.ArgumentParser, name: str) -> None:
    command: Command = import_module(f"reorder.cli.{name}").COMMAND
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    known = {**{name: text for name, (_, text) in _SHARED.items()}, **command.words}
    for line in _ROWS[name][2:]:
        spec, _, text = line.partition("  ")
        for flag in re.findall("--[a-z-]+", spec) or [""]:
            argument, settings = _settings(spec, flag, text.strip(), known)
            parser.add_argument(argument, **{**settings, **command.settings.get(flag, {})})
    parser.set_defaults(command=command)


def _all_commands() -> argparse.ArgumentParser:
    """Return a parser that lists the commands in their groups."""
    width = max(map(len, NAMES)) + 2
    groups = [
        "\n".join([f"{group}:", *(f"  {name:{width}}{_ROWS[name][0]}" for name in names)])
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
            near = similar_words(flag[2:], [name[2:] for name in known])
            parser.error(f"no option {flag}{did_you_mean(tuple(f'--{name}' for name in near))}")
        if sign and value == "--":  # argparse turns it into an empty list
            parser.error(f"argument {flag}: expected a value, not --")


# Arguments.


def _numbers(text: str) -> tuple[int, ...]:
    numbers = re.split("[x,]", text)
    if not all(re.fullmatch("-?[0-9]{1,4000}", number) for number in numbers):
        raise ArgumentTypeError(
            f"{short_repr(text)} must be integers joined by x or commas, such as 2x17x5x4"
        )
    return tuple(map(int, numbers))


def _value(
    number_type: type[float], what: str, is_right: Callable[[float], bool] = lambda _: True
) -> Callable[[str], float]:
    """Return a function that reads a number; it says what the number must be."""

    def read(text: str) -> float:
        with suppress(ValueError):
            if is_right(value := number_type(text)):
                return value
        raise ArgumentTypeError(f"give {what}, not {short_repr(text)}")

    return read


def _size(text: str) -> int:
    """Return a size such as ``200MiB``, in bytes; units are powers of 1024."""
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) << _UNITS[match[2].upper()] if match else 0
    if not size:
        raise ArgumentTypeError(f"{text!r} is not a size above 0, such as 200MiB or 1073741824")
    return size


_count = _value(int, "how many, 0 or more", lambda count: 0 <= count < _MOST)
_whole = _value(int, "a whole number")
_number = _value(float, "a number")
# how values are read, by flags or by what stands for a value in the help; others are strings
_TYPES: Mapping[str, Any] = {
    "--seconds": _value(float, "a time above 0, such as 0.1", lambda seconds: 0 < seconds < inf),
    "--beta": _number,
    **dict.fromkeys(("DIMS", "INDEX", "X,Y"), _numbers),
    **dict.fromkeys(("N", "BYTES", "Z"), _whole),
    **dict.fromkeys(("S", "T", "R", "MB"), _number),
    "SIZE": _size,
}


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
        settings["type"] = _count if settings["type"] is _whole else settings["type"]
    if optional:
        settings["nargs"] = "?"
    if not flag:
        return dest, settings
    if several:
        settings |= {"action": "append", "default": []}
    return flag, settings | {"dest": dest} | ({"required": True} if required else {})
