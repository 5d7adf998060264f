"""`memdesc convert`: its flags, and what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from reorder.cli import main
from reorder.storage.containers.partial import Partial, partial_folder
from tests.checkpoints import model_folder, write_safetensors

if TYPE_CHECKING:
    from pathlib import Path

    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


def facts(capsys: CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["convert", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture
def model(tmp_path: Path) -> str:
    model_folder(tmp_path / "model")
    return str(tmp_path / "model")


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(
    model: str, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    found = facts(capsys, model, out, "--map", "conv.weight: OIhw16i16o", "--dry-run")
    assert (found["tensors"], found["converted"], found["copied"]) == (9, 1, 8)
    assert found["bytes_out"] > found["bytes_in"] > 0
    assert found["seconds_estimated"] >= 0
    (line,) = found["would"]
    assert line.startswith("conv.weight: memory_desc((20, 6, 3, 3), 'f32', 'abcd') -> ")
    assert not (tmp_path / "out").exists()


def test_a_dry_run_lists_equal_layers_once(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    names = [f"m.{k}.{part}" for k in range(30) for part in ("up", "down.2")]
    source = tmp_path / "in.safetensors"
    write_safetensors(source, {name: np.ones((4, 4), np.float32) for name in [*names, "head"]})
    out = str(tmp_path / "out.safetensors")
    found = facts(capsys, str(source), out, "--map", "*: ba", "--dry-run")
    assert found["converted"] == 61
    what = "memory_desc((4, 4), 'f32', 'ab') -> memory_desc((4, 4), 'f32', 'ba')"
    listed = ["head: ", "30 x m.*.down.*: ", "30 x m.*.up: "]
    assert sorted(found["would"]) == sorted(f"{each}{what}" for each in listed)


def test_an_output_that_another_process_writes_is_waited_for_and_not_resumed(
    model: str, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    folder = partial_folder(tmp_path / "out")
    partial = Partial(folder)
    (folder / "files" / "model.safetensors").mkdir(parents=True)
    assert main(["convert", model, str(tmp_path / "out")]) == 2
    partial.close()
    said = capsys.readouterr().err
    assert "another process is writing into" in said
    assert "--resume" not in said


def test_a_link_where_an_output_grows_is_refused_without_a_hint_to_resume(
    model: str, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    (tmp_path / "precious" / "files").mkdir(parents=True)
    (tmp_path / "precious" / "files" / "kept").touch()
    partial_folder(tmp_path / "out").symlink_to(tmp_path / "precious")
    assert main(["convert", model, str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "it is a link or a file; move it away, or write elsewhere" in said
    assert "--resume" not in said
    assert "discarded" not in said
    assert (tmp_path / "precious" / "files" / "kept").exists()


def test_rules_of_a_file_come_before_those_of_the_command(
    model: str, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text("[[map]]\nmatch = '*.weight'\ndtype = 'f32'\n")
    out = str(tmp_path / "out")
    options = ["--rules", str(rules), "--map", "conv.*: f16", "--max-bytes", "64KiB", "--verify"]
    found = facts(capsys, model, out, *options, "--threads", "2")
    assert (found["converted"], found["wrote"]) == (3, out)
    assert found["verified"] == "each tensor equals its input put through its rule"
    assert main(["convert", model, out, "--map", "conv.*: f16"]) == 2
    assert "exists" in capsys.readouterr().err
    again = facts(capsys, model, out, "--map", "conv.*: f16", "--overwrite")
    assert (again["converted"], again["verified"]) == (1, "no")
    assert facts(capsys, model, out, "--map", "conv.*: f16", "--resume")["tasks"] == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--map", "conv.weight"], "does not match PATTERN"),
        (["--max-bytes", "much"], "--max-bytes 'much' is not a size above 0, such as 200MiB"),
        (["--max-bytes", "0"], "--max-bytes '0' is not a size"),
        (["--shard-size", "1.5G"], "--shard-size '1.5G' is not a size"),
        (["--threads", "0"], "--threads 0 must be 1 or more"),
        (["--rules", "none.toml"], "'none.toml' cannot be read"),
    ],
)
def test_mistakes_are_one_line(
    model: str,
    tmp_path: Path,
    capsys: CaptureFixture[str],
    options: list[str],
    problem: str,
) -> None:
    assert main(["convert", model, str(tmp_path / "out"), *options]) == 2
    said = capsys.readouterr().err
    assert problem in said
    assert said.count("\n") == 1


def test_files_of_rules_are_named_in_messages(
    model: str, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.toml"
    for data, problem in ((b"[[map]\n", "the rules are not TOML"), (b"\xff", "is not UTF-8")):
        rules.write_bytes(data)
        assert main(["convert", model, str(tmp_path / "out"), "--rules", str(rules)]) == 2
        said = capsys.readouterr().err
        assert "rules.toml'" in said
        assert problem in said


def test_what_a_user_may_not_have_meant_is_a_warning(
    model: str, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    options = ["--map", "*.qweight: awq -> marlin", "--allow-partial", "--dry-run"]
    assert main(["convert", model, str(tmp_path / "out"), *options]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("memdesc: warning: rule '*.qweight: awq -> marlin' changes ")
    assert "warnings" in said.out


def test_names_in_a_file_neither_end_a_line_nor_command_a_terminal(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    source, out = str(tmp_path / "in.safetensors"), str(tmp_path / "out.safetensors")
    write_safetensors(tmp_path / "in.safetensors", {"a\n\x1b[31m": np.ones((4, 4), np.float32)})
    assert main(["convert", source, out, "--map", "a*: abc"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(r"memdesc: rule 'a*: abc': a\n\x1b[31m, memory_desc((4, 4), 'f32', ")
    assert main(["convert", source, out, "--map", "a*: ba", "--dry-run"]) == 0
    assert r"would              a\n\x1b[31m: memory_desc(" in capsys.readouterr().out


def test_names_that_the_encoding_of_a_terminal_does_not_have_are_escaped(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "in.safetensors", {"é": np.ones(4, np.float32)})
    command = [sys.executable, "-m", "memdesc", "inspect", str(tmp_path / "in.safetensors")]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert r"\xe9" in found.stdout


def test_warnings_stop_no_conversion_where_stderr_is_closed(model: str, tmp_path: Path) -> None:
    rule = "*.0.mlp.qweight: awq -> marlin"
    for k, redirect in enumerate(("2>&-", "2>/dev/full")):
        out = tmp_path / f"out{k}"
        command = ["sh", "-c", f'exec "$@" {redirect}', "sh", sys.executable, "-m", "memdesc"]
        subprocess.run(
            [*command, "convert", model, str(out), "--map", rule, "--allow-partial"], check=True
        )
        assert out.is_dir()


def test_more_threads_than_any_machine_has_are_not_started(model: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert main(["convert", model, out, "--map", "conv.*: f16", "--threads", "999999999"]) == 0
