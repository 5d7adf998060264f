"""The file of speeds: a line for a commit."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

import memdesc
from tests.benchmarks import track

if TYPE_CHECKING:
    from pathlib import Path

_IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


def test_a_small_case_is_measured_and_appended(tmp_path: Path) -> None:
    file = tmp_path / "speed.jsonl"
    given = ["--threads", "1", "--dtag", "aB8b", "--seconds", "0.001", "--peers", "", "200x300"]
    for _ in range(2):
        assert track.main([str(file), *given]) == 0
    first, second = (json.loads(line) for line in file.read_text().splitlines())
    assert first["commit"] == second["commit"]
    ((name, seconds),) = first["seconds"].items()
    assert name.endswith(", 1")
    assert seconds > 0
    assert set(first["ratios"]) == {"memcpy, 1"}


def test_what_cannot_be_measured_is_said_and_appends_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "speed.jsonl"
    assert track.main([str(file), "--to", "ba", "--peers", "nobody", "2x3"]) == 2
    said = capfd.readouterr().err
    assert "no peer 'nobody'" in said
    assert "Traceback" not in said
    assert not file.exists()


def test_the_line_of_an_sdist_has_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(track, "_ROOT", tmp_path)
    assert track.commit() == memdesc.__version__


@pytest.mark.skipif(not _IS_ROOT, reason="only root may give files to another user")
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_of_another_users_checkout_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as in a container that runs as root, whose workspace belongs to the user outside
    monkeypatch.delenv("SUDO_UID", raising=False)
    for scope in ("GLOBAL", "SYSTEM"):  # nothing here may declare the folder safe
        monkeypatch.setenv(f"GIT_CONFIG_{scope}", os.devnull)
    identity = ("-c", "user.name=someone", "-c", "user.email=someone@localhost")
    for command in (("init", "-q"), (*identity, "commit", "-q", "--allow-empty", "-m", "empty")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, 1001, 1001)
    plain = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tmp_path, stderr=subprocess.PIPE, check=False
    )
    assert b"dubious ownership" in plain.stderr
    monkeypatch.setattr(track, "_ROOT", tmp_path)
    assert re.fullmatch("[0-9a-f]{40}", track.commit())
