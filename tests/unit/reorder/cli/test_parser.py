"""Command lines: dims, flags, help, and mistakes in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from reorder.cli.command import SEVERAL
from reorder.cli.main import GROUPS, NAMES, command_parser, main
from tests.unit.reorder.cli.results import facts, refusal

if TYPE_CHECKING:
    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


@pytest.mark.parametrize("dims", ["1_0x3", "２x3", "+2x3", "2x", f"2x{'9' * 5000}"])  # noqa: RUF001 - a digit that is none of ASCII
def test_dims_are_decimal_digits_only(dims: str, capsys: CaptureFixture[str]) -> None:
    assert "are not integers joined by x or commas" in refusal(capsys, "show", "ab", dims)


def test_an_unknown_command_is_one_line_and_exit_code_2(capsys: CaptureFixture[str]) -> None:
    assert "no command 'shw'; did you mean 'show'?" in refusal(capsys, "shw")
    assert "the commands are show, " in refusal(capsys, "xyzzy")


def test_the_command_alone_prints_its_help_in_groups(capsys: CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert [line[:-1] for line in shown.splitlines() if line[:-1] in GROUPS] == [*GROUPS]
    for name in NAMES:
        assert f"\n  {name} " in shown
    assert len(NAMES) == 14
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert (ended.value.code, capsys.readouterr().out) == (0, shown)


def test_a_misspelt_flag_gets_suggestions(capsys: CaptureFixture[str]) -> None:
    assert (
        refusal(capsys, "reorder", "a", "b", "--fromat", "nchw")
        == "no flag --fromat; did you mean '--from'?; see memdesc reorder --help"
    )
    assert "no flag --xyz; see memdesc show" in refusal(capsys, "show", "ab", "2x3", "--xyz=1")
    # no abbreviations: --to is another flag of another command
    assert "did you mean '--to-dtype'" in refusal(
        capsys, "explain", "ab", "ba", "2x3", "--to", "s8"
    )
    assert "unrecognized arguments: c; see memdesc show" in refusal(
        capsys, "show", "ab", "2x3", "c"
    )


def test_dims_and_strides_are_joined_by_x_or_by_commas(capsys: CaptureFixture[str]) -> None:
    assert facts(capsys, "show", "ab", "2,3") == facts(capsys, "show", "ab", "2x3")
    assert facts(capsys, "show", "4,1@2", "2,3") == facts(capsys, "show", "4x1@2", "2x3")


@pytest.mark.parametrize("command", NAMES)
def test_every_help_shows_an_example_of_the_command(
    command: str, capsys: CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
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
            of_one = (name, action.type, meaning)
            for flag in action.option_strings:
                first = known.setdefault(flag, of_one)
                assert (name, meaning) == (first[0], first[2]), (command, flag)
                # several values are one string, which the command splits
                assert name != metavar or action.type is first[1], (command, flag)
    assert {"--from", "--to", "--dims", "--dtype", "--to-dtype", "--offset"} <= known.keys()


def test_flags_stand_anywhere_and_a_layout_may_start_with_a_minus(
    capsys: CaptureFixture[str],
) -> None:
    for words in (
        ("nChw8c", "2x17x5x4", "--dtype", "f16"),
        ("nChw8c", "--dtype", "f16", "2x17x5x4"),
        ("--dtype", "f16", "nChw8c", "2x17x5x4"),
        ("--dtype", "f16", "--", "nChw8c", "2x17x5x4"),
    ):
        assert main(["show", *words]) == 0
        assert "bytes             1920" in capsys.readouterr().out
    assert main(["show", "--", "-4x1@8", "3x4"]) == 0
    assert "offset0           8" in capsys.readouterr().out
