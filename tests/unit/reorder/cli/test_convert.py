"""`memdesc convert`: its flags, and what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from reorder.checkpoints.writer import Writer, partial_folder
from reorder.cli import main
from tests.checkpoints import model_folder, write_safetensors
from tests.programs import run_python

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell


@pytest.fixture(autouse=True)
def _model(shell: Shell) -> None:
    """Save a model in the folder `model`."""
    del shell  # it enters the folder
    model_folder(Path("model"))


def test_a_dry_run_lists_equal_layers_once(shell: Shell) -> None:
    names = [f"m.{k}.{part}" for k in range(30) for part in ("up", "down.2")]
    tensors = {name: np.ones((4, 4), np.float32) for name in [*names, "head"]}
    write_safetensors(Path("in.safetensors"), tensors)
    found = shell.facts("convert in.safetensors out.safetensors --map '*: ba' --dry-run")
    assert (found["converted"], found["seconds_estimated"] >= 0) == (61, True)
    assert not Path("out.safetensors").exists()
    what = "memory_desc((4, 4), 'f32', 'ab') -> memory_desc((4, 4), 'f32', 'ba')"
    listed = ["head: ", "30 x m.*.down.*: ", "30 x m.*.up: "]
    assert sorted(found["would"]) == sorted(f"{each}{what}" for each in listed)


def test_rules_of_a_file_come_before_those_of_the_command(shell: Shell) -> None:
    Path("rules.txt").write_text("*.weight: f32\n", encoding="utf-8")
    again = "convert model out --map 'conv.*: f16'"
    found = shell.facts(f"{again} --rules rules.txt --max-bytes 64KiB --verify --threads 2")
    assert (found["converted"], found["wrote"]) == (3, "out")
    assert found["verified"] == "each tensor equals its input put through its rule"
    assert "exists" in shell.refusal(again)
    found = shell.facts(f"{again} --overwrite --threads 999999999")  # so many are not started
    assert (found["converted"], found["verified"]) == (1, "no")


def test_an_output_that_another_process_writes_is_waited_for_and_not_resumed(shell: Shell) -> None:
    with Writer(Path("out"), [], is_folder=True):
        (partial_folder(Path("out")) / "files" / "model.safetensors").mkdir(parents=True)
        said = shell.refusal("convert model out --map 'conv.*: f16'")
    assert "another process is writing into" in said
    assert "--resume" not in said


def test_a_link_where_an_output_grows_is_refused_without_a_hint_to_resume(shell: Shell) -> None:
    Path("precious/files").mkdir(parents=True)
    Path("precious/files/kept").touch()
    partial_folder(Path("out")).symlink_to("precious")
    said = shell.refusal("convert model out --map 'conv.*: f16'")
    assert "it is a link or a file; move it away, or write elsewhere" in said
    assert "--resume" not in said
    assert "discarded" not in said
    assert Path("precious/files/kept").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--map conv.weight", "does not match PATTERN"),
        ("--max-bytes much", "--max-bytes 'much' is not a size above 0, such as 200MiB"),
        ("--max-bytes 0", "--max-bytes '0' is not a size"),
        ("--shard-size 1.5G", "--shard-size '1.5G' is not a size"),
        ("--threads 0", "--threads 0 must be 1 or more"),
        ("--to glow", "argument --to: there is no target 'glow'; the targets are bf16, f16,"),
        ("--to fp16", "compressed-tensors; did you mean f16"),
        ("--rules none.txt", "'none.txt' cannot be read"),
        ("--rules wrong.txt", "wrong.txt': rule 'w' does not match PATTERN"),
    ],
)
def test_mistakes_are_one_line(shell: Shell, options: str, problem: str) -> None:
    Path("wrong.txt").write_text("w\n", encoding="utf-8")
    assert problem in shell.refusal(f"convert model out {options}")


def test_what_a_user_may_not_have_meant_is_a_warning(shell: Shell) -> None:
    command = ["convert", "model", "out.npz", "--map", "*.norm.weight: f32"]
    assert any("warnings" in line for line in shell.lines([*command, "--dry-run"]))
    assert shell.warnings[0].startswith("memdesc: warning: the output is one file, without ")
    # a conversion goes on where nobody can be warned
    for k, redirect in enumerate(("2>&-", "2>/dev/full")):
        program = ["sh", "-c", f'exec "$@" {redirect}', "sh", sys.executable, "-m", "memdesc"]
        subprocess.run([*program, *command[:2], f"out{k}.npz", *command[3:]], check=True)
        assert Path(f"out{k}.npz").is_file()


def test_a_conversion_without_a_rule_says_that_it_copies(shell: Shell) -> None:
    assert shell.facts("convert model out")["converted"] == 0
    (warning,) = shell.warnings
    assert warning.startswith("memdesc: warning: nothing is converted: without --to, --map or")


def test_names_in_a_file_neither_end_a_line_nor_command_a_terminal(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = {"a\n\x1b[31m": np.ones((4, 4), np.float32)}
    write_safetensors(Path("in.safetensors"), tensors)
    command = ["convert", "in.safetensors", "out.safetensors", "--map"]
    assert main([*command, "a*: abc"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(r"memdesc: rule 'a*: abc': a\n\x1b[31m, memory_desc((4, 4), 'f32', ")
    shown = "\n".join(shell.lines([*command, "a*: ba", "--dry-run"]))
    assert r"would              a\n\x1b[31m: memory_desc(" in shown


def test_names_that_the_encoding_of_a_terminal_does_not_have_are_escaped() -> None:
    write_safetensors(Path("in.safetensors"), {"é": np.ones(4, np.float32)})
    found = run_python("-m", "memdesc", "inspect", "in.safetensors", PYTHONIOENCODING="ascii")
    assert r"\xe9" in found.stdout
