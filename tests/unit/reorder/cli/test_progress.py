"""The bar of long work, and the line that announces compilation."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from reorder.cli import progress
from reorder.cli.progress import NOTICE, CompileNotice
from tests.programs import run_python

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell

_LONG_WORK = """
import time
from reorder.cli.progress import Progress
with Progress(4) as progress:
    progress.step("start", 1)
    time.sleep(0.6)
    progress.step("half", 1)
"""


_LONGER_WORK = """
import time
from reorder.cli import progress as module
module.LINE_SECONDS = 0.2
with module.Progress(8) as progress:
    for step in range(1, 8):
        time.sleep(0.15)
        progress.step(f"step {step}", 1)
"""


def test_long_work_shows_lines_where_there_is_no_terminal() -> None:
    assert run_python("-c", _LONG_WORK).stderr == ""
    ran = run_python("-c", _LONGER_WORK)
    lines = ran.stderr.splitlines()
    assert 2 <= len(lines) <= 5  # a busy machine sleeps longer
    assert re.fullmatch(r"memdesc: (25|38|50|62)% step [2-5]", lines[0])
    assert not re.search(r"[\r\033]", ran.stderr)


def test_helpers_of_tests_leave_out_what_only_busy_machines_say(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    np.save("x.npy", np.ones((2, 3), np.float32))
    shell.facts("reorder x.npy o.npy --to ba")
    assert "has no place for" in shell.refusal("reorder x.npy o.npy --to plain --to-dtype bf16")


def test_a_bar_is_shown_on_terminals_and_wiped() -> None:
    terminal, other_end = pty.openpty()
    try:
        subprocess.run([sys.executable, "-c", _LONG_WORK], stderr=other_end, check=True)
        shown = os.read(terminal, 4096).decode()
    finally:
        os.close(terminal)
        os.close(other_end)
    assert "start" not in shown  # work that is not long shows none
    assert "[############............]  50% half" in shown
    assert shown.endswith("\r\033[K")


_COMPILING = """
import sys, time
from reorder.cli.progress import CompileNotice
with CompileNotice(lambda: float(sys.argv[1])):
    time.sleep(0.3)
"""


@pytest.mark.parametrize(("seconds", "is_told"), [("1.1", True), ("0.9", False)])
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
