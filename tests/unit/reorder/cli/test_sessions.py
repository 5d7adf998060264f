"""Sessions of the command line: each `.txt` here has some, which run one by one in empty folders.

A section starts with ##; what stands before the first one is done at the start of each. `* name:
a | b` above its lines runs a section with a and with b in the place of {name}. The lines are

    > a line of Python
    $ a command, which succeeds; 1$ where the answer is no
    : a part of what it prints
    - what it does not print
    ? what is true of its JSON, whose keys are names; `lines`, `text` and `warnings` are, too
    ! a command that is refused  # and a part of what it says
"""

import io
import itertools
import json
import os
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import memdesc
import reorder
from tests import checkpoints, headers, hints
from tests.refused import sections
from tests.unit.reorder.cli import made
from tests.unit.reorder.cli.shell import Shell

_TABLES = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.txt"))}
_SECTIONS = {
    f"{stem}: {name}": (path, lines)
    for stem, path in _TABLES.items()
    for name, lines in sections(path).items()
}
_TEXT = re.compile(r"(?<![.\w])(lines|text)\b")
_NAMES = {
    **vars(made),
    **vars(checkpoints),
    **vars(headers),
    **vars(hints),
    "io": io,
    "json": json,
    "memdesc": memdesc,
    "memory_desc": memdesc.memory_desc,
    "image_desc": memdesc.image_desc,
    "ml_dtypes": ml_dtypes,
    "np": np,
    "os": os,
    "Path": Path,
    "reorder": reorder,
    "SimpleNamespace": SimpleNamespace,
    "sys": sys,
    "X": made.X,
}


@pytest.mark.parametrize("section", _SECTIONS)
def test_session(section: str, shell: Shell, tmp_path: Path) -> None:
    path, lines = _SECTIONS[section]
    start = f"\n{path.read_text(encoding='utf-8')}".partition("\n## ")[0].splitlines()
    varied = [line[2:].partition(": ") for line in lines if line.startswith("* ")]
    names = [name for name, _, _ in varied]
    choices = [[each.strip() for each in values.split(" | ")] for _, _, values in varied]
    for k, values in enumerate(itertools.product(*choices)):
        folder = tmp_path / str(k)
        folder.mkdir()
        os.chdir(folder)
        _run(shell, [*start, *(_put(line, names, values) for line in lines)])


def _put(line: str, names: list[str], values: tuple[str, ...]) -> str:
    for name, value in zip(names, values, strict=True):
        line = line.replace(f"{{{name}}}", value)
    return line


def _run(shell: Shell, lines: list[str]) -> None:
    """Run the lines of a session."""
    known: dict[str, Any] = {**_NAMES, "shell": shell}
    for kind, group in itertools.groupby(_blocks(lines), key=lambda block: block[0][0]):
        for block in group if kind != ">" else ["\n".join(each[0] for each in group)]:
            if isinstance(block, str):
                exec(re.sub("^> ?", "", block, flags=re.MULTILINE), known)
            elif kind == "!":
                _refuse(shell, block)
            else:
                _answer(shell, block, known)


def _blocks(lines: list[str]) -> list[list[str]]:
    """Return each line of Python and each command with the lines about its answer."""
    blocks: list[list[str]] = []
    for line in lines:
        if line.startswith(("> ", "$ ", "1$ ", "! ")):
            blocks.append([line])
        elif line.startswith((": ", "- ", "? ")):
            blocks[-1].append(line)
        else:
            assert not line or line.startswith("* "), line
    return blocks


def _refuse(shell: Shell, block: list[str]) -> None:
    command, _, part = block[0][2:].partition("  # ")
    before = _files()
    said = shell.refusal(shlex.split(command))
    for line in [f": {part}", *block[1:]]:
        assert (line[2:] in said) == (line[0] == ":"), (command, line, said)
    assert _files() == before, command


def _files() -> dict[str, tuple[int, int]]:
    """Return which files there are, and when they were written."""
    paths = (path for path in Path().rglob("*") if not path.is_symlink())
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


def _answer(shell: Shell, block: list[str], known: dict[str, Any]) -> None:
    code, _, command = block[0].partition("$ ")
    words = shlex.split(command)
    facts: dict[str, Any] = {}
    checks = block[1:]
    if not checks or any(line[0] == "?" for line in checks):
        facts = shell.facts(words, int(code or 0))
    lines: list[str] = []
    if any(line[0] != "?" or _TEXT.search(line) for line in checks):
        lines = shell.lines(words, int(code or 0))
    text = "\n".join(lines)
    names = {**known, **facts, "facts": facts, "lines": lines, "text": text}
    names["warnings"] = shell.warnings
    for line in checks:
        if line[0] != "?":
            assert (line[2:] in text) == (line[0] == ":"), (command, line, text)
        else:
            assert eval(line[2:], names), (command, line, facts or text)
