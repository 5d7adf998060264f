"""Parse the command line, run one command, print what it says."""

from __future__ import annotations

import json
import os
import sys
from errno import EBADF
from typing import TYPE_CHECKING

from memdesc import MemdescError
from memdesc.disk import reason_of
from memdesc.errors import short_repr
from reorder.cli.compile_notice import CompileNotice
from reorder.cli.facts import one_line
from reorder.cli.parser import parse

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

__all__ = ["main"]

# what a shell returns for a command that SIGINT ended
_INTERRUPTED = 130
# characters of the start and of the end of an error; the reason often stands behind what was given
_MAX_PART = 2000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code: 0, 1 (a check failed), 2 (bad input), 130 (Ctrl-C)."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        return _run(given)
    except KeyboardInterrupt:
        _complain("interrupted", given)
        return _INTERRUPTED


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
