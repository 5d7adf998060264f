"""Parse the command line, run one command, print what it says."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from errno import EBADF
from typing import TYPE_CHECKING, NoReturn

from memdesc import MemdescError
from memdesc.disk import reason_of
from memdesc.errors import short_repr
from reorder.cli.compile_notice import CompileNotice
from reorder.cli.facts import one_line
from reorder.cli.parser import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

__all__ = ["main"]

# characters of the start and of the end of an error; the reason often stands behind what was given
_MAX_PART = 2000
# what a shell returns for a command that a signal ended is this and the signal's number
_BY_SIGNAL = 128
# A request to end, and a terminal that is closed: a command ends as by Ctrl-C.
_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class _EndedError(KeyboardInterrupt):
    """The command is to end because of another signal than SIGINT."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = signal.Signals(number)


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
        text, number = "interrupted", signal.SIGINT
        if isinstance(error, _EndedError):
            text, number = f"ended by {error.signal.name}", error.signal
        _complain("; ".join((text, *getattr(error, "__notes__", ()))), given)
        return _BY_SIGNAL + number


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Raise in the main thread where a signal would end the process without cleaning up."""
    replaced = []
    if threading.current_thread() is threading.main_thread():
        # an embedding program may run Python's main thread on another one: no handler is set there
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
    raise _EndedError(number)


def _run(given: Sequence[str]) -> int:
    try:
        options = parse(given)
        with CompileNotice():
            facts, code = options.answer(options)
        text = json.dumps(facts) if options.json else "\n".join(options.lay_out(facts))
    except (MemdescError, MemoryError) as error:
        _complain(str(error) or "out of memory", given)
        return 2
    except OSError as error:  # such as names longer than the system has
        _complain(f"{short_repr(error.filename)}: {reason_of(error)}", given)
        return 2
    if sys.stdout is None:
        _complain(f"the answer cannot be written: {os.strerror(EBADF)}", given)
        return 2
    try:
        _write(sys.stdout, text)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)  # the reader closed the pipe
    except OSError as error:
        _discard(sys.stdout)
        _complain(f"the answer cannot be written: {error.strerror}", given)
        return 2
    return int(code)


def _complain(text: str, given: Sequence[str]) -> None:
    """Write one line about an error, if there is something to write to."""
    if len(text) > 2 * _MAX_PART:
        text = f"{text[:_MAX_PART]} ... {text[-_MAX_PART:]}"
    line = json.dumps({"error": text}) if "--json" in given else f"memdesc: {one_line(text)}"
    if sys.stderr is None:
        return
    try:
        _write(sys.stderr, line)
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def _write(stream: TextIO, text: str) -> None:
    """Write a line; characters that the encoding of a terminal does not have as their escapes."""
    try:
        stream.write(text + "\n")
    except UnicodeEncodeError:
        encoding = stream.encoding
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def _discard(stream: TextIO) -> None:
    """Let a stream that fails lead nowhere: the interpreter flushes it again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
