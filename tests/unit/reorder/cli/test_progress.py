"""The bar of long work, and the line that announces compilation."""

from __future__ import annotations

import itertools
import os
import pty
import select
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from reorder.cli import progress
from reorder.cli.progress import NOTICE, CompileNotice
from tests.programs import run_python

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.unit.reorder.cli.shell import Shell


def _set_clock(monkeypatch: pytest.MonkeyPatch, times: Iterable[float]) -> None:
    """Let the bar read these times, one after another."""
    now = iter(times)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(now)))


def test_work_without_a_terminal_shows_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _set_clock(monkeypatch, itertools.count(0, progress.LINE_SECONDS / 2))
    with progress.Progress(8) as work:
        for step in range(1, 6):
            work.step(f"step {step}", 1)
    assert capsys.readouterr().err == "memdesc: 25% step 2\nmemdesc: 50% step 4\n"


def test_helpers_of_tests_leave_out_what_only_busy_machines_say(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    np.save("x.npy", np.ones((2, 3), np.float32))
    shell.facts("reorder x.npy o.npy --to ba")
    assert "has no place for" in shell.refusal("reorder x.npy o.npy --to plain --to-dtype bf16")


_WIPED = "half\r\033[K"


def test_a_bar_is_shown_on_terminals_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, other_end = pty.openpty()
    _set_clock(monkeypatch, (0, 0, 60))
    try:
        with os.fdopen(other_end, "w") as stderr:
            monkeypatch.setattr(sys, "stderr", stderr)
            with progress.Progress(4) as work:
                work.step("start", 1)
                work.step("half", 1)
            shown = ""
            # a terminal passes on each write in its own time
            while not shown.endswith(_WIPED) and select.select([terminal], [], [], 10)[0]:
                shown += os.read(terminal, 4096).decode()
    finally:
        os.close(terminal)
    assert "start" not in shown  # work that is not long shows none
    assert "[############............]  50% half" in shown
    assert shown.endswith(_WIPED)


_COMPILING = """
import sys, time
from reorder.cli.progress import CompileNotice
with CompileNotice(lambda: float(sys.argv[1])):
    time.sleep(0.3)
"""


@pytest.mark.parametrize(("seconds", "is_told"), [("60", True), ("0", False)])
def test_long_compilation_is_announced_once_in_a_line_on_stderr(
    seconds: str, is_told: bool
) -> None:
    ran = run_python("-c", _COMPILING, seconds)
    assert ran.stdout == ""
    assert ran.stderr.splitlines() == [NOTICE.rstrip()] * is_told


def test_compilation_without_stderr_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with CompileNotice(lambda: 1.1):
        time.sleep(0.2)
