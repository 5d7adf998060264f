"""Command lines: help and flags; what is printed, and what is shown while work is long."""

import itertools
import os
import pty
import re
import select
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import reorder
from reorder.cli import doctor, progress
from reorder.cli.doctor import COMMAND
from reorder.cli.main import GROUPS, NAMES, command_parser, flags_of, main, shell_parser
from tests.unit.reorder.cli.shell import Shell

_DOCS = Path(reorder.__file__).parents[1] / "docs"


def test_the_command_alone_prints_its_help_in_groups(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = shell.lines([])
    assert [line[:-1] for line in shown if line[:-1] in GROUPS] == [*GROUPS]
    assert [line.split()[0] for line in shown if line.strip().startswith(NAMES)] == [*NAMES]
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert (ended.value.code, capsys.readouterr().out.splitlines()) == (0, shown)


def test_every_help_shows_an_example_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    for command in NAMES:
        with pytest.raises(SystemExit, match="0"):
            main([command, "--help"])
        said = capsys.readouterr().out
        assert said.count(f"example: memdesc {command}") == ("--json" in said) == 1


def test_every_command_is_on_the_pages() -> None:
    overview = (_DOCS / "commands.md").read_text(encoding="utf-8")
    assert {*re.findall(r"^\| `memdesc ([a-z]+)", overview, re.MULTILINE)} == {*NAMES}
    assert {page.stem for page in (_DOCS / "commands").glob("*.md")} == {*NAMES}


def test_an_option_means_the_same_in_every_command() -> None:
    known: dict[str, tuple[object, ...]] = {}
    for command in NAMES:
        for action in command_parser(command)._actions:  # noqa: SLF001 - argparse has no public list
            # what follows the meaning is said of this command alone
            meaning = re.split("[,;:(]| with | in ", str(action.help))[0].strip()
            # choices are listed, and may be checked by a function of the command
            of_one = (action.metavar, None if action.choices else action.type, meaning)
            for flag in action.option_strings:
                # a layout with its types and its scales is another thing
                if (command, flag) != ("convert", "--to"):
                    assert known.setdefault(flag, of_one) == of_one, (command, flag)


def test_the_parser_for_completion_has_every_command_with_its_flags() -> None:
    (commands,) = (each for each in shell_parser()._actions if each.nargs == "A...")  # noqa: SLF001 - likewise
    assert isinstance(commands.choices, dict)
    assert [*commands.choices] == [*NAMES]
    for name, parser in commands.choices.items():
        assert [*flags_of(parser)] == [*flags_of(command_parser(name))]


# What is printed.


def test_what_is_missing_is_reported() -> None:
    device: dict[str, Any] = {"name": "n", "platform": "p", "version": "v", "problem": ""}
    device |= {"is_processor": False, "works": True, "remedy": "", "has_images": False}
    device |= {"max_width": 16, "max_height": 8}
    broken = {**device, "problem": "no compiler", "remedy": "install one"}
    processor = {**device, "is_processor": True, "has_images": True}
    for devices, ends in (
        (
            [device, broken, processor],
            [
                "none found",
                "n (p, v): works, no images, buffers only",
                "n (p, v): fails: no compiler; install one",
                "up to 16 x 8; this is the CPU, where plain reorders are faster",
            ],
        ),
        ([], ["none found", "pip install x installs a runtime for the CPU"]),
    ):
        made: list[Any] = [SimpleNamespace(**each) for each in devices]
        lines = COMMAND.lay_out(doctor.opencl_facts([], made, "pip install x"))
        assert all(line.endswith(end) for line, end in zip(lines, ends, strict=True)), lines


# The bar of long work.


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
