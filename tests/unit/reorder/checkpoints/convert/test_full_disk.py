"""Conversions on a small file system that is really full, before they start or half-way."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from reorder.checkpoints import ConvertOptions
from reorder.checkpoints.convert.conversion import plan_conversion
from reorder.cli.main import main
from tests.checkpoints import model_folder
from tests.unit.reorder.checkpoints.convert.results import contents

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from reorder.checkpoints.convert.conversion import Conversion

_RULES = ("model.layers.*: awq -> gptq", "conv.weight: OIhw16i16o", "lm_head.weight: ba, f32")
_SETTINGS = ConvertOptions(threads=1, max_bytes=8000)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Give a file system of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def wanted(tmp_path: Path) -> dict[str, bytes]:
    """Make a model; return the files of its conversion on a disk with room."""
    model_folder(tmp_path / "model", layers=12)
    planned(tmp_path, tmp_path / "wanted").run()
    return contents(tmp_path / "wanted")


def planned(tmp_path: Path, target: Path) -> Conversion:
    return plan_conversion(tmp_path / "model", target, _RULES, _SETTINGS)


def fill(disk: Path, left: int) -> Path:
    """Take all room of a disk but some bytes."""
    path = disk / "ballast"
    with path.open("wb") as file:
        for nbytes in range(shutil.disk_usage(disk).free - left, 0, -4096):
            with suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, nbytes)
                break
    return path


def test_others_who_fill_the_disk_meanwhile_take_no_room_that_is_reserved(
    tmp_path: Path, disk: Path, wanted: dict[str, bytes]
) -> None:
    ballast: list[Path] = []

    def take_all(*_: object) -> None:
        if not ballast:
            ballast.append(fill(disk, left=8192))  # names of folders

    planned(tmp_path, disk / "out").run(take_all)
    assert ballast
    assert contents(disk / "out") == wanted


def test_a_full_disk_is_told_before_anything_is_written(
    tmp_path: Path, disk: Path, wanted: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    nbytes = sum(map(len, wanted.values()))
    fill(disk, left=nbytes // 2)
    rules = [each for rule in _RULES for each in ("--map", rule)]
    assert main(["convert", str(tmp_path / "model"), str(disk / "out"), *rules]) == 2
    told = capsys.readouterr().err
    assert f"takes {nbytes} bytes, but its disk has " in told
    assert "nothing was written" in told
    assert sorted(path.name for path in disk.iterdir() if path.is_file()) == ["ballast"]
    assert not (disk / "out").exists()
