from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from typing import TYPE_CHECKING

import pytest

from memdesc import DATA_TYPES
from memdesc.names import images
from reorder.cli.main import NAMES, main

if TYPE_CHECKING:
    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


def words(capsys: CaptureFixture[str], *typed: str) -> list[str]:
    assert main(["completion", "bash", "--words", *typed]) == 0
    return capsys.readouterr().out.split()


def test_commands_flags_types_and_layouts_are_completed(capsys: CaptureFixture[str]) -> None:
    assert set(words(capsys, "")) == {*NAMES, "--help", "--version"}
    assert words(capsys) == words(capsys, "")
    assert words(capsys, "sho") == ["show"]
    assert words(capsys, "show", "nChw") == ["nChw16c", "nChw32c", "nChw4c", "nChw8c"]
    assert words(capsys, "explain", "nchw", "nChw1") == ["nChw16c"]
    assert words(capsys, "reorder", "--to-d") == ["--to-dtype"]
    assert "--json" in words(capsys, "show", "nchw", "--")
    assert words(capsys, "show", "--dtype", "") == sorted(DATA_TYPES)
    assert words(capsys, "show", "--dtype=bf") == ["--dtype=bf16"]
    assert words(capsys, "show", "--dtype", "=", "bf") == ["bf16"]
    assert words(capsys, "show", "--dtype", "=") == sorted(DATA_TYPES)
    assert {*images.IMAGES, "nchw"} <= {*words(capsys, "reorder", "in.npy", "out.npy", "--to", "")}
    # a flag and its value are not arguments
    assert words(capsys, "explain", "--dtype", "f16", "nchw", "nChw1") == ["nChw16c"]
    assert words(capsys, "completion", "") == ["bash", "fish", "zsh"]
    assert words(capsys, "bench", "--from", "nChw1") == ["nChw16c"]
    assert words(capsys, "convert", "--to", "gp") == ["gptq"]


def test_names_of_files_are_left_to_the_shell(capsys: CaptureFixture[str]) -> None:
    for typed in (
        ("reorder", "in"),
        ("compare", "n"),
        ("show", "nchw", "2x"),
        ("show", "nchw", "2x3", "more"),
        ("reorder", "--offset", ""),
        ("unknown", ""),
    ):
        assert words(capsys, *typed) == []


def test_bash_completes_with_the_script() -> None:
    program = """
eval "$(memdesc completion bash)"
COMP_WORDS=(memdesc show nChw16) COMP_CWORD=2
_memdesc
echo "${COMPREPLY[@]}"
complete -p memdesc
"""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    ran = subprocess.run(
        ["bash", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": path},
    )
    assert ran.stdout == "nChw16c\ncomplete -o default -F _memdesc memdesc\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_is_one_of_its_shell(shell: str, capsys: CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"memdesc completion {shell} --words" in script
    if shutil.which(shell):
        ran = subprocess.run(
            [shell, "-n"], input=script, capture_output=True, text=True, check=True
        )
        assert ran.stderr == ""


def test_another_shell_is_refused(capsys: CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "invalid choice: 'tcsh' (choose from" in capsys.readouterr().err
