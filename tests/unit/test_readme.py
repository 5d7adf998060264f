"""What README, and the page of commands, show besides their doctests."""

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

import reorder
from reorder.cli.main import main
from tests.checkpoints import model_folder
from tests.notice import without_notice
from tests.programs import run_python

_ROOT = Path(__file__).parents[2]
_README = (_ROOT / "README.md").read_text(encoding="utf-8")
_COMMANDS = (_ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
_LOG = _ROOT / "tests" / "data" / "verbose" / "torch-2.13.log"


def test_the_lines_of_the_readme_are_the_file_that_its_first_command_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", _README, re.DOTALL)
    lines = [line for line in block.splitlines() if line]
    file = _ROOT / "docs" / "first.py"
    shown = [line.removeprefix(">>> ") for line in lines if line.startswith(">>> ")]
    assert shown == [line for line in file.read_text(encoding="utf-8").splitlines() if line]
    printed = [line for line in lines if not line.startswith(">>> ")]
    assert printed == run_python(file).stdout.splitlines()


def test_the_readme_has_two_set_up_commands_of_one_line_each() -> None:
    commands = re.findall(r"```sh\n(.*?)```", _README, re.DOTALL)
    assert [command.count("\n") for command in commands] == [1, 1]


@pytest.mark.docs
def test_every_command_of_the_overview_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = re.findall(r"^\| `(memdesc .*?)` \|", _COMMANDS, re.MULTILINE)
    assert len(commands) >= 9
    x = np.random.default_rng(0).random((1, 17, 5, 4)).astype(np.float16)
    np.save(tmp_path / "in.npy", x)
    reorder.reorder(x, "b_fs_yx_fsv16").data.tofile(tmp_path / "dump.bin")
    shutil.copy(_LOG, tmp_path / "torch.log")
    model_folder(tmp_path / "model", zeros=(8, 9))
    shutil.copy(tmp_path / "model" / "model.safetensors", tmp_path)
    shutil.copytree(tmp_path / "model", tmp_path / "good")
    monkeypatch.chdir(tmp_path)
    for command in commands:
        program, *arguments = shlex.split(command)
        code = main(arguments)
        said = capsys.readouterr()
        assert (program, code, without_notice(said.err)) == ("memdesc", 0, ""), command
        assert said.out
    assert np.array_equal(np.load(tmp_path / "out.npy").shape, x.shape)
    assert (tmp_path / "out.svg").exists()
