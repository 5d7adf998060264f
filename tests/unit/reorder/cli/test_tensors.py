from __future__ import annotations

import pickle
import zipfile
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

from reorder import load, reorder, save
from reorder.cli import main
from tests.unit.reorder.cli.results import facts, refusal

if TYPE_CHECKING:
    from pathlib import Path

    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture

X = np.random.default_rng(0).random((2, 17, 5, 4), np.float32)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """An archive of three tensors, one with dirt in its padding."""
    dirty = reorder(X, "nChw8c")
    dirty.data.view(np.float32)[[324, 325, 959]] = 1
    half = reorder(X.astype(ml_dtypes.bfloat16), "nhwc")
    path = str(tmp_path / "model.npz")
    save(path, {"a.weight": dirty, "b": half, "c": X[0, 0]})
    return path


def test_a_tensor_of_an_archive_is_read_by_its_name(
    model: str, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out.safetensors")
    facts(capsys, "reorder", f"{model}:b", out, "--to", "nchw")
    assert np.array_equal(load(out).numpy(), X.astype(ml_dtypes.bfloat16))
    packed = facts(capsys, "reorder", f"{model}:a.weight", out, "--to", "in_out_channel")
    assert packed["dims"] == list(X.shape)
    facts(capsys, "reorder", f"{model}:b", out, "--to", "nchw", "--dtype", "bf16")
    assert "says bf16, not f32" in refusal(
        capsys, "reorder", f"{model}:b", out, "--to", "nchw", "--dtype", "f32"
    )
    assert "leave --from out" in refusal(
        capsys, "reorder", f"{model}:b", out, "--to", "nchw", "--from", "nchw"
    )


def test_an_archive_of_one_tensor_needs_no_name(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    one, out = str(tmp_path / "one.npz"), str(tmp_path / "out.npy")
    np.savez(one, x=X)
    facts(capsys, "reorder", one, out, "--to", "nchw")
    assert np.array_equal(np.load(out), X)


def test_which_tensor_is_meant_must_be_said(model: str, capsys: CaptureFixture[str]) -> None:
    said = refusal(capsys, "reorder", model, "o.npz", "--to", "ab")
    assert "has 3 tensors: a.weight, b, c; " in said
    assert "commands take one as FILE:NAME" in said
    assert "has no tensor 'd'; it has 3: a.weight, b, c" in refusal(capsys, "check", f"{model}:d")
    np.savez(model, **{f"t{k}": X for k in range(10)})  # type: ignore[arg-type] # names of arrays
    assert "t7 and 2 more" in refusal(capsys, "reorder", model, "o.npz", "--to", "ab")
    np.savez(model)
    assert "has no tensors" in refusal(capsys, "reorder", model, "o.npz", "--to", "argument")
    assert "has no tensors" in refusal(capsys, "check", model)


def test_check_counts_and_lists_what_is_not_zero(
    model: str, tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    found = facts(capsys, "check", model, "--limit", "2", code=1)
    assert (found["zero"], [one["zero"] for one in found["tensors"]]) == (
        False,
        [False, True, True],
    )
    places = [
        {"index": [0, 20, 0, 0], "byte": 1296, "bits": "0x3f800000"},
        {"index": [0, 21, 0, 0], "byte": 1300, "bits": "0x3f800000"},
    ]
    assert (found["tensors"][0]["not_zero"], found["tensors"][0]["places"]) == (3, places)
    assert facts(capsys, "check", f"{model}:b")["zero"] is True
    path = str(tmp_path / "x.safetensors")
    dirty = reorder(X, "nChw8c")
    dirty.data[-1] = 1
    save(path, dirty)
    (checked,) = facts(capsys, "check", path, "--limit", "0", code=1)["tensors"]
    assert checked["places"] == []
    assert main(["check", path]) == 1
    assert "index (1, 23, 4, 3), byte 3836, bits 0x1000000" in capsys.readouterr().out
    assert main(["check", model]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [f"file  {model}", "zero  no", "", "name              a.weight"]
    assert "--limit -1: give how many" in refusal(capsys, "check", path, "--limit", "-1")


def test_pickles_are_not_read_and_the_way_out_is_named(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old.pt", tmp_path / "new.pt"
    old.write_bytes(pickle.dumps({"x": 1}))
    with zipfile.ZipFile(new, "w") as archive:
        archive.writestr("new/data.pkl", b"")
    for path, kind in ((old, "is a pickle, perhaps of torch.save"), (new, "is a file of torch")):
        for command in (("check", str(path)), ("reorder", str(path), "o.npy", "--to", "ab")):
            said = refusal(capsys, *command)
            assert kind in said
            assert "reorder.save('x.safetensors', torch.load(path, weights_only=True))" in said


def test_files_that_may_hold_raw_bytes_are_refused_with_the_command_that_reads_them(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    way_out = "its name does not say which; give --from with a layout, --dims and --dtype"
    raw, damaged, cut = tmp_path / "dump.bin", tmp_path / "dump.npy", tmp_path / "dump"
    for path in (raw, damaged):
        path.write_bytes(bytes(100))
    with cut.open("wb") as file:
        np.save(file, np.zeros(9))
        file.truncate(150)
    assert way_out in refusal(capsys, "reorder", str(raw), "o.npy", "--to", "ab")
    for path in (damaged, cut, tmp_path / "none"):
        assert way_out not in refusal(capsys, "reorder", str(path), "o.npy", "--to", "ab")


def test_a_damaged_archive_is_refused(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(b"PK\x03\x04 and nothing else")
    assert "is not a .npz file, or a damaged one" in refusal(capsys, "check", str(path))
    assert "cannot be read" in refusal(capsys, "check", str(tmp_path / "none.npz:x"))
