"""Commands run in this process: the facts they print as JSON, and the line that refuses one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from reorder.cli import main
from tests.notice import without_notice

if TYPE_CHECKING:
    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


def facts(capsys: CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == code
    shown = capsys.readouterr()
    assert without_notice(shown.err) == ""
    found: dict[str, Any] = json.loads(shown.out)
    return found


def refusal(capsys: CaptureFixture[str], *arguments: str) -> str:
    """Run a command that must fail, as text and as JSON; returns what it says."""
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    error = without_notice(shown.err)
    assert error.count("\n") == 1
    assert main([*arguments, "--json"]) == 2
    as_json = capsys.readouterr()
    assert as_json.out == ""
    said: str = json.loads(without_notice(as_json.err))["error"]
    assert error == f"memdesc: {said}\n"
    return said
