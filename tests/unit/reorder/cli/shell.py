"""Commands as a user types them, run in this process in an empty folder."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

import pytest

from reorder.cli import main
from tests.notice import without_notice


class Shell:
    """Runs commands; a command is a line, or its words where a shell would have to quote them.

    `warnings` are those of the last one, and `refusals` what all that failed said.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.warnings: list[str] = []
        self.refusals: list[str] = []

    def facts(self, command: str | Sequence[str], code: int = 0) -> dict[str, Any]:
        """Return what a command prints as JSON; it writes only warnings on stderr."""
        found: dict[str, Any] = json.loads(
            "\n".join(self.lines([*_words(command), "--json"], code))
        )
        return found

    def lines(self, command: str | Sequence[str], code: int = 0) -> list[str]:
        """Return the lines that a command prints; it writes only warnings on stderr."""
        out, error = self.run(_words(command), code)
        self.warnings = error.splitlines()
        assert all(line.startswith("memdesc: warning: ") for line in self.warnings)
        return out.splitlines()

    def refusal(self, command: str | Sequence[str]) -> str:
        """Return what a command says that must fail; it says the same as text and as JSON."""
        words = _words(command)
        out, error = self.run(words, 2)
        assert (out, error.count("\n")) == ("", 1)
        out, as_json = self.run([*words, "--json"], 2)
        said: str = json.loads(as_json)["error"]
        assert (out, error) == ("", f"memdesc: {said}\n")
        self.refusals.append(said)
        return said

    def run(self, words: Sequence[str], code: int) -> tuple[str, str]:
        """Return what a command prints and what it says on stderr."""
        self._capsys.readouterr()
        assert main(words) == code, words
        shown = self._capsys.readouterr()
        return shown.out, without_notice(shown.err)


def _words(command: str | Sequence[str]) -> list[str]:
    return shlex.split(command) if isinstance(command, str) else [*command]
