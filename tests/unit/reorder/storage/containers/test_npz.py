from __future__ import annotations

import io
import struct
import zipfile
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc, to_json
from reorder.storage.containers.entry import Tensor
from reorder.storage.containers.table import read_container
from tests.writers import write_tensors

if TYPE_CHECKING:
    from pathlib import Path


def _saved(path: Path) -> dict[str, reorder.Memory]:
    x = np.arange(540, dtype=np.float32).reshape(20, 3, 3, 3)
    reorder.save(
        path,
        {
            "conv/w": reorder.reorder(x, "OIhw16o4i"),
            "\u00e9": x.astype(ml_dtypes.bfloat16),
            "empty": np.zeros((0, 3), np.int8),
            "packed": reorder.reorder(np.ones((2, 4), np.uint8), "ab", dtype="u4"),
        },
    )
    return reorder.load_all(path)


def test_archives_are_read_where_members_lie(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    saved = _saved(path)
    found = read_container(path)
    assert found.format == "npz"
    assert found.entries.keys() == saved.keys()
    for name, entry in found.entries.items():
        assert entry.desc == saved[name].desc
        assert (entry.read() == saved[name].data).all()
    np.savez(path, a=np.arange(3), b=np.asfortranarray(np.ones((2, 3))), c=np.float64(2))
    entries = read_container(path).entries
    assert [str(entry.desc) for entry in entries.values()] == [
        "memory_desc((3,), 's64', 'a')",
        "memory_desc((2, 3), 'f64', 'ba')",
        "memory_desc((1,), 'f64', 'a')",
    ]
    assert not any(entry.is_described for entry in entries.values())


def test_words_and_shapes_of_what_is_written_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    codes = reorder.reorder(np.arange(64, dtype=np.uint8).reshape(8, 8) % 16, "gptq", dtype="u4")
    blocks = reorder.reorder(np.ones((20, 6), np.float32), "Ab16a")
    tensors = [
        Tensor("codes", "s32", (1, 8), 32, codes.desc),
        Tensor("blocks", "f32", (2, 6, 16), blocks.nbytes, blocks.desc),
        Tensor("one", "bf16", (), 2),
    ]
    write_tensors(path, tensors, {"codes": codes.data, "blocks": blocks.data})
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    with np.load(path) as arrays:
        assert arrays["codes"].tobytes() == codes.data.tobytes()
        assert (arrays["codes"].dtype, arrays["codes"].shape) == (np.int32, (1, 8))
        assert (arrays["blocks"] == blocks.blocks()).all()
        assert arrays["one"].shape == ()
    found = read_container(path).entries
    assert all(entry.offset % 64 == 0 for entry in found.values())
    assert (found["codes"].dtype, found["codes"].shape) == ("s32", (1, 8))
    assert [found[name].desc for name in ("codes", "blocks")] == [codes.desc, blocks.desc]
    loaded = reorder.load_all(path)
    assert (loaded["codes"].numpy() == codes.numpy()).all()
    np.savez(tmp_path / "y.npz", codes=np.zeros(7, np.int32))
    with zipfile.ZipFile(tmp_path / "y.npz", "a") as archive:
        archive.writestr("codes.npy.json", to_json(codes.desc))
    with pytest.raises(MemdescError, match=r"'codes' has 28 bytes, but its descriptor .* takes 32"):
        read_container(tmp_path / "y.npz")


def _zipped(path: Path, members: list[tuple[str, bytes]]) -> bytes:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path.read_bytes()


def _npy(x: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, x)
    return file.getvalue()


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    array = _npy(np.zeros(4))
    whole = _zipped(path, [("a.npy", array)])
    record = b'{"schema": 1, "record": "q4_0", "dims": [32]}'
    lies = [
        (whole[:50], "damaged one"),
        (whole.replace(b"PK\3\4", b"PK\3\5"), "damaged one: Bad magic number"),
        (whole.replace(b"NUMPY", b"NUMPX"), "Bad CRC-32"),
        (_zipped(path, [("a.npy", array.replace(b"NUMPY", b"NUMPX"))]), "not a .npy file"),
        (_zipped(path, [("a.npy", array.replace(b"(4,)", b"(9,)"))]), "its header means 72"),
        (_zipped(path, [("a.npy", array), ("a.npy.json", b"{}")]), "'schema'"),
        (_zipped(path, [("a.npy", array), ("a.npy.json", b"\xff")]), "damaged one"),
        (
            _zipped(path, [("a.npy", array), ("a.npy.json", record)]),
            "has 32 bytes, but its descriptor record_desc.* takes 18",
        ),
        (_zipped(path, [("a.npy", array), ("a.npy.json", b"1" * 2**21)]), "more than 1048576"),
    ]
    head = struct.pack("<L", 0)
    shared = _zipped(path, [("a.npy", array), ("b.npy", array)])
    at = shared.rindex(b"PK\1\2") + 42
    lies += [
        (shared[:at] + head + shared[at + 4 :], "overlap|differ"),
        (shared.replace(b"b.npy", b"a.npy"), "2 members called 'a.npy'"),
    ]
    for data, reason in lies:
        path.write_bytes(data)
        with pytest.raises(MemdescError, match=reason):
            read_container(path)


def test_compressed_descriptors_are_refused_as_compressed_arrays_are(tmp_path: Path) -> None:
    # a thousand times as much would be read as the file has
    path = tmp_path / "x.npz"
    np.savez(path, a=np.zeros(100))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy.json", " " * 2**19 + to_json(memory_desc((100,), "f64")))
    with pytest.raises(MemdescError, match=r"'a.npy.json' is compressed; reorder.load_all"):
        read_container(path)
