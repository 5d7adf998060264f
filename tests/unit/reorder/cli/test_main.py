"""Command lines: help, flags, mistakes in them, and answers that cannot be written."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import memdesc
from reorder.cli.command import SEVERAL, flags_of, fold
from reorder.cli.main import GROUPS, NAMES, command_parser, main, shell_parser

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell


_LOG = Path(__file__).parents[3] / "data" / "verbose" / "torch-2.13.log"


def test_the_command_alone_prints_its_help_in_groups(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = shell.lines([])
    assert [line[:-1] for line in shown if line[:-1] in GROUPS] == [*GROUPS]
    assert [line.split()[0] for line in shown if line.strip().startswith(NAMES)] == [*NAMES]
    assert len(NAMES) == 13
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert (ended.value.code, capsys.readouterr().out.splitlines()) == (0, shown)


@pytest.mark.parametrize("command", NAMES)
def test_every_help_shows_an_example_of_the_command(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert f"example: memdesc {command}" in said
    assert "--json" in said


def test_an_option_means_the_same_in_every_command() -> None:
    known: dict[str, tuple[str, object, str]] = {}
    for command in NAMES:
        for action in command_parser(command)._actions:  # noqa: SLF001 - argparse has no public list
            metavar = str(action.metavar)
            name = metavar.removesuffix(SEVERAL)
            # what follows the meaning is said of this command alone
            meaning = re.split("[,;:(]| with | in ", str(action.help))[0].strip()
            # choices are listed, and may be checked by a function of the command
            kind = None if action.choices else action.type
            of_one = (name, kind, meaning)
            if (command, *action.option_strings) == ("convert", "--to"):
                # a layout with its types and its scales
                assert of_one == ("FORMAT", None, "the format to write")
                continue
            for flag in action.option_strings:
                first = known.setdefault(flag, of_one)
                assert (name, meaning) == (first[0], first[2]), (command, flag)
                # several values are one string, which the command splits
                assert name != metavar or kind is first[1], (command, flag)
    assert {"--from", "--to", "--dims", "--dtype", "--to-dtype", "--offset"} <= known.keys()


def test_the_parser_for_completion_has_every_command_with_its_flags() -> None:
    (commands,) = (each for each in shell_parser()._actions if each.nargs == "A...")  # noqa: SLF001 - likewise
    assert isinstance(commands.choices, dict)
    assert [*commands.choices] == [*NAMES]
    for name, parser in commands.choices.items():
        assert [*flags_of(parser)] == [*flags_of(command_parser(name))]


def test_flags_stand_anywhere_and_a_layout_may_start_with_a_minus(shell: Shell) -> None:
    for words in (
        "nChw8c 2x17x5x4 --dtype f16",
        "nChw8c --dtype f16 2x17x5x4",
        "--dtype f16 nChw8c 2x17x5x4",
        "--dtype f16 -- nChw8c 2x17x5x4",
    ):
        assert "bytes             1920" in shell.lines(f"show {words}")
    for words in ("-- -4x1@8 3x4", "-4x1@8 3x4", "-4x1@8 --dtype s8 3x4"):
        assert "offset0           8" in shell.lines(f"show {words}")
    assert "strides=(-4, 1), offset0=8" in shell.facts("explain ab 3x4 --to -4x1@8")["dst"]
    assert shell.lines("source ab 3x4 --to -4x1@8") == shell.lines("source ab 3x4 --to=-4x1@8")


def test_dims_and_strides_are_joined_by_x_or_by_commas(shell: Shell) -> None:
    assert shell.facts("show ab 2,3") == shell.facts("show ab 2x3")
    assert shell.facts("show 4,1@2 2,3") == shell.facts("show 4x1@2 2x3")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("shw", "no command 'shw'; did you mean 'show'?"),
        ("xyzzy", "the commands are show, "),
        ("show ab 2x3 c", "unrecognized arguments: c; see memdesc show"),
        ("show ab 2x3 --xyz=1", "no option --xyz; see memdesc show"),
        (
            "reorder a b --fromat ab",
            "no option --fromat; did you mean '--from'?; see memdesc reorder",
        ),
        # no abbreviations: --to is another flag of another command
        ("explain ab 2x3 --to ba --to-dtyp s8", "did you mean '--to-dtype'"),
        ("show ab 3x5 --byte -- 5", "argument --byte: expected one argument; see memdesc show"),
    ],
)
def test_a_mistake_gets_a_suggestion(shell: Shell, command: str, said: str) -> None:
    assert said in shell.refusal(command)


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("show b_fs_yx_fsv61 1x17x5x4", "b_fs_yx_fsv16"),
        ("explain nchw 1x17x5x4 --to nChw61c", "nChw16c"),
        ("source ab --to=AB16b61a 8x32", "AB16b16a"),
    ],
)
def test_swapped_digits_in_a_name_are_pointed_out(shell: Shell, command: str, meant: str) -> None:
    shell.lines(command)
    (warning,) = shell.warnings
    assert warning.endswith(f"; did you mean {meant!r}?")


def test_names_that_a_system_has_and_other_words_are_not(shell: Shell) -> None:
    for command in ("show nChw16c 1x71x5x4", "show nhcw 12x21x5x4", "show aBcd24b 1x17x5x4"):
        shell.lines(command)
        assert shell.warnings == []


# What is printed.


@pytest.mark.parametrize(
    ("line", "folded"),
    [
        ("short", ["short"]),
        ("a sentence of seven words in all", ["a sentence of seven", "    words in all"]),
        ("0.5  2  from a here to b there", ["0.5  2  from a here", "        to b there"]),
        ("  in a list of several words", ["  in a list of", "  several words"]),
        ("x" * 30, ["x" * 30]),
        ("", [""]),
    ],
)
def test_long_lines_are_folded_where_the_last_cell_begins(line: str, folded: list[str]) -> None:
    assert fold(line, 20) == folded


def test_a_log_fits_into_a_terminal() -> None:
    lines = _in_a_terminal("log", str(_LOG))
    assert max(map(len, lines)) <= 80
    assert len(lines) > 20


def test_a_wide_picture_is_cut_at_the_width_of_a_terminal() -> None:
    wide = "show in_out_channel 1x64x8x8 --draw"
    lines = _in_a_terminal(*wide.split())
    rows = [line for line in lines if line.startswith("   y ")]
    assert len(rows) == 8
    assert all((len(row), row[-1]) == (80, "…") for row in rows)
    assert lines[-1] == "cut at the terminal's width; --svg FILE draws all of it"


def test_pictures_have_colours_in_a_terminal_unless_it_or_the_user_has_none() -> None:
    words = ["show", "ab", "2x3", "--draw"]
    picture = memdesc.memory_desc((2, 3), "f32", "ab").show()
    for environment, last in (
        ({"TERM": "xterm"}, picture.coloured),
        ({"TERM": "dumb"}, picture.text),
        ({"TERM": "xterm", "NO_COLOR": "1"}, picture.text),
    ):
        assert _in_a_terminal(*words, **environment)[-1] == last.splitlines()[-1]


def _in_a_terminal(*words: str, **environment: str) -> list[str]:
    """Return the lines that a command prints into a terminal of 80 columns."""
    terminal, other_end = pty.openpty()
    command = [sys.executable, "-m", "reorder", *words]
    env = os.environ | {"COLUMNS": "80", "NO_COLOR": ""} | environment
    with subprocess.Popen(command, stdout=other_end, env=env) as running:
        os.close(other_end)
        shown = b""
        with suppress(OSError):  # the other end is closed
            while part := os.read(terminal, 1 << 16):
                shown += part
    os.close(terminal)
    assert running.returncode == 0
    return shown.decode().splitlines()


def test_a_reader_that_closes_the_pipe_early_is_not_an_error() -> None:
    command = f"{sys.executable} -m reorder show nChw8c 2x17x5x4 | head -c 1"
    ran = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("show ab 2x3 >/dev/full", "the answer cannot be written: No space left on device"),
        ("show ab 2x3 >&-", "the answer cannot be written: Bad file descriptor"),
        ("show ab 2x3 --json >/dev/full", "the answer cannot be written: No space left"),
        ("show xx 2x3 2>/dev/full", ""),
        ("show xx 2x3 2>&-", ""),
    ],
)
def test_output_that_cannot_be_written_is_one_line(command: str, error: str) -> None:
    program = ["bash", "-c", f"{sys.executable} -m reorder {command}"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert error in done.stderr
    assert done.stderr.count("\n") == bool(error)


def test_a_command_that_is_interrupted_says_so_in_one_line() -> None:
    program = """
import signal, sys
from reorder.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(["log", "-"]))
"""
    command = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        process.stdin.write(b"epoch\n" * 100_000)  # more than a pipe holds: the command reads it
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert error == b"memdesc: interrupted\n"
