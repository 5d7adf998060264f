"""Every block of code on every page runs: python as doctests by pytest, the others here."""

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.notice import without_notice

_ROOT = Path(__file__).parents[2]
_PAGES = sorted(
    [
        *(_ROOT / "docs").glob("*.md"),
        *(_ROOT / "docs" / "commands").glob("*.md"),
        _ROOT / "README.md",
    ]
)
_FENCE = re.compile(r"^```(\S*) ?(\S*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    language: str
    # of a file, after the language of a block of text
    name: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in _FENCE.findall(page.read_text(encoding="utf-8"))]


def every_block() -> list[tuple[Path, Block]]:
    return [(page, block) for page in _PAGES for block in blocks(page)]


def steps(text: str) -> Iterator[tuple[str, str]]:
    """Return the commands of a console block, each with the output that is shown."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def is_shown(shown: str, said: str) -> bool:
    """Whether output is as shown; `...` stands for anything."""
    pattern = ".*".join(map(re.escape, shown.rstrip().split("...")))
    return re.fullmatch(pattern, said.rstrip(), re.DOTALL) is not None


def test_every_block_is_of_a_kind_that_some_test_runs() -> None:
    for page, block in every_block():
        directive = block.language.startswith("{")
        assert directive or block.language in {"python", "console", "c", "sh", "text"}
        if block.language == "python":
            assert block.text.startswith(">>> ")
        if block.language == "console":
            assert block.text.startswith("$ ")
        if block.language == "sh":
            assert page.name == "README.md"


def test_comments_after_lines_fit_the_page_at_1280_pixels() -> None:
    for page, block in every_block():
        if block.language == "python" and page.name != "README.md":
            for line in block.text.splitlines():
                assert len(line) <= 91 or not re.search("\\S +# ", line) or "doctest:" in line


@pytest.mark.docs
@pytest.mark.parametrize(
    "page",
    [page for page in _PAGES if any(b.language == "console" for b in blocks(page))],
    ids=lambda page: page.name,
)
def test_every_command_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "COLUMNS": "100"}
    for block in blocks(page):
        if block.language == "c":
            name = re.match(r"/\* (\w+\.c):", block.text)
            assert name is not None
            (tmp_path / name[1]).write_text(block.text, encoding="utf-8")
        if block.language == "text" and block.name:
            (tmp_path / block.name).write_text(block.text, encoding="utf-8")
        if block.language != "console":
            continue
        for command, shown in steps(block.text):
            if command.startswith("cc ") and shutil.which("cc") is None:
                pytest.skip("there is no C compiler (cc)")
            ran = subprocess.run(
                ["bash", "-c", command],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert is_shown(shown, ran.stdout + without_notice(ran.stderr)), (
                f"$ {command}\n{ran.stdout}{ran.stderr}"
            )
            assert ran.returncode == (2 if shown.startswith("memdesc: ") else 0)


def test_what_a_page_shows_is_compared_in_full() -> None:
    assert is_shown("a\n...\nc\n", "a\nb\nc")
    assert is_shown("", "")
    assert not is_shown("a\n", "a\nb")
    assert not is_shown("a\n...\n", "b\na\n")
