from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from typing import TYPE_CHECKING

import pytest

from memdesc import DATA_TYPES
from memdesc.names import images
from reorder.cli.main import NAMES

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell


def _completed(shell: Shell, *typed: str) -> list[str]:
    return " ".join(shell.lines(["completion", "bash", "--words", *typed])).split()


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (["sho"], ["show"]),
        (["show", "nChw"], ["nChw16c", "nChw32c", "nChw4c", "nChw8c"]),
        (["explain", "nchw", "2x3x4x5", "--to", "nChw1"], ["nChw16c"]),
        (["reorder", "--to-d"], ["--to-dtype"]),
        (["show", "--dtype", ""], sorted(DATA_TYPES)),
        (["show", "--dtype=bf"], ["--dtype=bf16"]),
        (["show", "--dtype", "=", "bf"], ["bf16"]),
        (["show", "--dtype", "="], sorted(DATA_TYPES)),
        # a flag and its value are not arguments
        (["explain", "--dtype", "f16", "nChw1"], ["nChw16c"]),
        (["completion", ""], ["bash", "fish", "zsh"]),
        (["bench", "--from", "nChw1"], ["nChw16c"]),
        (["convert", "--to", "gp"], ["gptq"]),
        (["source", "nchw", "2x3x4x5", "--lang", "c"], ["c", "c++", "cuda"]),
        (["names", "nchw", "2x3x4x5", "--system", "t"], ["tensorrt", "tflite_gpu", "tvm"]),
        # names of files are left to the shell
        (["reorder", "in"], []),
        (["compare", "n"], []),
        (["show", "nchw", "2x"], []),
        (["show", "nchw", "2x3", "more"], []),
        (["reorder", "--offset", ""], []),
        (["unknown", ""], []),
    ],
)
def test_words_are_completed(shell: Shell, typed: list[str], completed: list[str]) -> None:
    assert _completed(shell, *typed) == completed


def test_commands_flags_and_layouts_are_completed(shell: Shell) -> None:
    assert {*_completed(shell, "")} == {*NAMES, "--help", "--version"}
    assert _completed(shell) == _completed(shell, "")
    assert "--json" in _completed(shell, "show", "nchw", "--")
    assert {*images.IMAGES, "nchw"} <= {*_completed(shell, "reorder", "in.npy", "o", "--to", "")}


def test_bash_completes_with_the_script() -> None:
    program = """
eval "$(memdesc completion bash)"
COMP_WORDS=(memdesc show nChw16) COMP_CWORD=2
_memdesc
echo "${COMPREPLY[@]}"
complete -p memdesc
"""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    env = {**os.environ, "PATH": path}
    ran = subprocess.run(
        ["bash", "-c", program], capture_output=True, text=True, check=True, env=env
    )
    assert ran.stdout == "nChw16c\ncomplete -o default -F _memdesc memdesc\n"


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_each_script_is_one_of_its_shell(name: str, shell: Shell) -> None:
    script = "\n".join(shell.lines(f"completion {name}"))
    assert f"memdesc completion {name} --words" in script
    if shutil.which(name):
        ran = subprocess.run([name, "-n"], input=script, capture_output=True, text=True, check=True)
        assert ran.stderr == ""


def test_another_shell_is_refused(shell: Shell) -> None:
    assert "invalid choice: 'tcsh' (choose from" in shell.refusal("completion tcsh")
