"""Files that are missing, damaged or protected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.unit.reorder.cli.results import refusal

if TYPE_CHECKING:
    from pathlib import Path

    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


def test_files_that_are_missing_damaged_or_protected_are_refused_and_nothing_is_left(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    whole = tmp_path / "x.npy"
    np.save(whole, np.ones((2, 3), np.float32))
    (tmp_path / "short.npy").write_bytes(whole.read_bytes()[:-4])
    (tmp_path / "empty.npy").write_bytes(b"")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    out = str(tmp_path / "out.npy")
    for name, reason in (
        ("none.npy", "cannot be read: No such file"),
        ("short.npy", "is not a .npy file"),
        ("empty.npy", "is not a .npy file"),
    ):
        path = str(tmp_path / name)
        assert reason in refusal(capsys, "reorder", path, out, "--to", "ba")
        assert reason in refusal(capsys, "check", path)
    for target in (str(tmp_path / "none" / "out.npy"), str(tmp_path), "/dev/full/out.npy"):
        said = refusal(capsys, "reorder", str(whole), target, "--to", "ba")
        assert "cannot be written" in said or "cannot be saved" in said
    assert "is for 4 dims" in refusal(capsys, "reorder", str(whole), out, "--to", "nhwc")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
