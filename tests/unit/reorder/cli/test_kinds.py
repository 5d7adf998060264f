"""Files that are not raw bytes, given to commands that read raw bytes."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import struct
import zipfile
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

from reorder.cli.tensors import kind_of, load_file
from tests.unit.reorder.cli.results import facts, refusal

if TYPE_CHECKING:
    from pathlib import Path

    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture

X = np.random.default_rng(0).random((2, 17, 5, 4), np.float32)
RAW = ("--from", "abcd", "--dims", "2x17x5x4", "--dtype", "f32")
_READ = ("npy", "npz", "safetensors")
KINDS = {
    "npy": "a .npy file",
    "npz": "a .npz, or another .zip",
    "torch": "a file of torch.save",
    "legacy": "a pickle, perhaps of torch.save",
    "pickle": "a pickle, perhaps of torch.save",
    "safetensors": "a .safetensors file",
    "gguf": "a GGUF file",
    "onnx": "an ONNX model",
    "gzip": "compressed by gzip",
    "hdf5": "an HDF5 file",
}


def make(kind: str, folder: Path) -> str:
    """Write a file of a kind under a name that does not say it, but for a model of ONNX."""
    path = folder / ("model.onnx" if kind == "onnx" else "dump.bin")
    if kind == "npy":
        with path.open("wb") as file:
            np.save(file, X)
    elif kind == "npz":
        with path.open("wb") as file:
            np.savez(file, x=X)
    elif kind == "torch":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(1))
            archive.writestr("archive/data/0", X.tobytes())
    else:
        header = json.dumps({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        path.write_bytes(
            {
                "legacy": pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2),
                "pickle": pickle.dumps({"x": X}),
                "safetensors": struct.pack("<Q", len(header)) + header + bytes(4),
                "gguf": b"GGUF" + struct.pack("<IQQ", 3, 0, 0),
                "onnx": b"\x08\x07\x12\x03abc",
                "gzip": gzip.compress(X.tobytes()),
                "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(100),
            }[kind]
        )
    return str(path)


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_other_kinds_are_no_raw_bytes_whatever_they_are_called(
    tmp_path: Path, capsys: CaptureFixture[str], kind: str
) -> None:
    path, out = make(kind, tmp_path), str(tmp_path / "out.npy")
    found = kind_of(path)
    assert found is not None
    assert found.what == KINDS[kind]
    names = {file.name for file in tmp_path.iterdir()}
    if kind in _READ:
        return  # commands read their arrays, whatever they are called
    known = ("--from", "in_out_channel", "--dims", "2x17x5x4", "--dtype", "f32")
    for command in (
        ("reorder", path, out, *RAW),
        ("reorder", path, out, *RAW, "--ignore-rest"),
        ("reorder", path, out, *known),
        ("reorder", path, out, "--to", "plain"),
        ("compare", path, path, "--from-a", "f32:bfyx:2x17x5x4"),
        ("identify", path, "--dims", "2x17x5x4"),
        ("check", path),
    ):
        said = refusal(capsys, *command)
        assert f"is {KINDS[kind]}: " in said
        assert found.way_out in said
        assert "--ignore-rest" not in said
    assert {file.name for file in tmp_path.iterdir()} == names


def test_an_offset_says_where_bytes_are_in_a_file_of_any_kind(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    path, out = make("npy", tmp_path), str(tmp_path / "out.npy")
    facts(capsys, "reorder", path, out, *RAW, "--offset", "128")
    assert np.array_equal(np.load(out), X)
    (tmp_path / "raw.bin").write_bytes(b"GGUF" + X.tobytes()[4:])
    facts(capsys, "reorder", str(tmp_path / "raw.bin"), out, *RAW, "--offset", "0")
    assert np.load(out).tobytes()[4:] == X.tobytes()[4:]
    (tmp_path / "raw.bin").write_bytes(bytes(16) + X.tobytes())
    assert "pass --offset 16 if" in refusal(capsys, "reorder", str(tmp_path / "raw.bin"), out, *RAW)


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_arrays_are_read_as_such_whatever_they_are_called(
    tmp_path: Path, capsys: CaptureFixture[str], kind: str
) -> None:
    path, out = make(kind, tmp_path), str(tmp_path / "out.npy")
    facts(capsys, "reorder", path, out, "--to", "plain")
    assert np.array_equal(np.load(out), X)
    layout = "f32:bfyx:2x17x5x4"
    facts(capsys, "compare", path, path, "--from-a", layout, "--from-b", layout)
    assert facts(capsys, "identify", path, "--dims", "2x17x5x4", code=1)["bytes"] == X.nbytes


def test_identify_and_compare_read_words_as_other_types_only_where_they_are_words(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    paths = {name: str(tmp_path / f"{name}.npy") for name in ("f4", "i4", "u2", "u1", "V2")}
    for name, path in paths.items():
        np.save(path, X.view({"f4": "f4", "i4": "i4", "u2": "u2", "u1": "u1", "V2": "V2"}[name]))
    for name, dtype in (("f4", "f16"), ("f4", "u4"), ("i4", "f32"), ("u2", "bf16"), ("u2", "f16")):
        said = refusal(capsys, "identify", paths[name], "--dims", "680", "--dtype", dtype)
        assert f"not {dtype}; a file says its own type: name that one" in said
        said = refusal(capsys, "compare", paths[name], paths[name], "--from-a", f"{dtype}:bfyx:680")
        assert f"not {dtype}; a file says its own type" in said
    for name, dtype, dims in (
        ("f4", "f32", "680"),
        ("i4", "u4", "5440"),
        ("u1", "f32", "680"),
        ("u1", "u4", "5440"),
        ("V2", "bf16", "1360"),
    ):
        facts(capsys, "identify", paths[name], "--dims", dims, "--dtype", dtype)
        layout = f"{dtype}:bfyx:{dims}"
        both = ("--from-a", layout, "--from-b", layout)
        facts(capsys, "compare", paths[name], paths[name], *both)


def test_elements_of_npy_without_a_type_are_read_as_the_type_that_is_told(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X.astype(ml_dtypes.bfloat16))
    found = load_file(str(tmp_path / "x.npy"), "bf16")
    assert isinstance(found, np.ndarray)
    assert np.array_equal(found, X.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize(
    "command",
    [
        ("reorder", "IN", "OUT", *RAW),
        ("reorder", "IN", "OUT", "--like", "*", "--dims", "2x17x5x4"),
        ("reorder", "IN", "OUT", "--from", "in_out_channel", "--dims", "1x2x3x4", "--dtype", "f32"),
        ("compare", "IN", "IN"),
        ("compare", "IN", "IN", "--from-a", "f32:bfyx:2x17x5x4"),
        ("identify", "IN", "--dims", "2x17x5x4"),
        ("identify", "IN", "--like", "IN"),
        ("inspect", "IN"),
        ("check", "IN"),
        ("reorder", "IN", "OUT", "--to", "in_out_channel"),
        ("reorder", "IN", "OUT", "--to", "ab"),
        ("convert", "IN", "OUT.npz"),
        ("convert", "DIR", "OUT", "--rules", "IN"),
        ("log", "IN"),
        ("bench", "--batch", "IN"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("special", ["fifo", "/dev/zero", "folder"])
def test_no_command_waits_for_a_pipe_or_reads_a_device(
    tmp_path: Path, capsys: CaptureFixture[str], special: str, command: tuple[str, ...]
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    path = special if special.startswith("/") else str(tmp_path / special)
    names = {"IN": path, "OUT": str(tmp_path / "out.npy"), "OUT.npz": str(tmp_path / "out.npz")}
    names["DIR"] = str(tmp_path / "folder")
    refusal(capsys, *(names.get(word, word) for word in command))
    assert {file.name for file in tmp_path.iterdir()} == {"folder", "fifo"}
