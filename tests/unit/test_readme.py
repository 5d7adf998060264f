"""What README shows besides its doctests."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_README = (_ROOT / "README.md").read_text(encoding="utf-8")


def test_the_five_lines_of_the_readme_are_the_file_that_its_first_command_runs() -> None:
    block = re.search(r"```python\n(.*?)```", _README, re.DOTALL)
    assert block is not None
    shown = [line.removeprefix(">>> ") for line in block[1].splitlines() if line.startswith(">>> ")]
    file = _ROOT / "docs" / "first.py"
    assert shown == [line for line in file.read_text(encoding="utf-8").splitlines() if line]
    ran = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() in block[1]


def test_the_readme_has_two_set_up_commands_of_one_line_each() -> None:
    commands = re.findall(r"```sh\n(.*?)```", _README, re.DOTALL)
    assert [command.count("\n") for command in commands] == [1, 1]
