"""The file of speeds: a line for a commit, and the plot of two or more."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import memdesc
from tests.benchmarks import track

if TYPE_CHECKING:
    from pathlib import Path

_IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


def _line(commit: str, ratio: float, processor: str = "one") -> dict[str, Any]:
    facts = {
        "machine": {"processor": processor, "numpy": commit},
        "cases": [{"name": "f32 2x3", "threads": 1, "seconds": 1e-6}],
        "summary": [{"beside": "memcpy", "threads": 1, "geomean": ratio, "p50": ratio}],
    }
    return track.line_of(facts, commit, "2026-01-01")


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
    assert track.main([str(file), "--plot", str(tmp_path / "speed.svg")]) == 0
    picture = ET.parse(tmp_path / "speed.svg").getroot()
    assert len(picture.findall("{*}polyline")) == 1


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


def test_only_lines_of_one_machine_are_plotted() -> None:
    lines = [_line("aaa", 0.5), _line("bbb", 9.0, "another"), _line("ccc", 1.0)]
    picture = ET.fromstring(track.plot(lines))
    (drawn,) = picture.findall("{*}polyline")
    points = [point.split(",") for point in drawn.attrib["points"].split()]
    low, high = (float(y) for _, y in points)
    assert low - high == pytest.approx(300 - 96)  # the axis has powers of two, from 0.5 to 1
    with pytest.raises(ValueError, match="there are 1"):
        track.plot(lines[:2])


def test_every_series_looks_different_and_labels_do_not_overlap() -> None:
    lines = [_line(f"{k:07x}" + "0" * 33, 0.5) for k in range(40)]
    for line in lines:
        found = line["ratios"]["memcpy, 1"]
        line["ratios"] = {f"{peer}, {n}": found for peer in "abcdefg" for n in (1, 2, 16)}
    picture = ET.fromstring(track.plot(lines))
    looks = [
        (e.attrib["stroke"], e.attrib["stroke-dasharray"])
        for e in picture.iter()
        if "points" in e.attrib
    ]
    assert len(looks) == len(set(looks)) == 21
    at = [
        float(e.attrib["x"])
        for e in picture.findall("{*}text")
        if re.fullmatch("[0-9a-f]{7}", e.text or "")
    ]
    assert at[-1] == 640 - 48  # the last commit
    assert all(b - a > 50 for a, b in pairwise(at))


def test_one_line_is_not_plotted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "speed.jsonl"
    file.write_text(json.dumps(_line("aaa", 1.0)) + "\n")
    assert track.main([str(file), "--plot", str(tmp_path / "speed.svg")]) == 2
    assert "a plot needs two lines" in capsys.readouterr().err
