"""Files of numpy, .npy and .npz: those of `save`, of numpy, and damaged ones."""

import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from reorder import load, load_all
from reorder.checkpoints.formats.entry import Tensor
from reorder.checkpoints.formats.table import read_container
from tests.writers import write_tensors


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
    write_tensors(tmp_path / "y.npz", tensors, {"codes": codes.data, "blocks": blocks.data})
    assert path.read_bytes() == (tmp_path / "y.npz").read_bytes()
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        # readers of streams take the checksum before a member
        at = {info.header_offset + 14: info.CRC for info in archive.infolist()}
    whole = path.read_bytes()
    assert all(whole[k : k + 4] == crc.to_bytes(4, "little") for k, crc in at.items())
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


def test_compressed_descriptors_are_refused_as_compressed_arrays_are(tmp_path: Path) -> None:
    # a thousand times as much would be read as the file has
    path = tmp_path / "x.npz"
    np.savez(path, a=np.zeros(100))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy.json", " " * 2**19 + memory_desc((100,), "f64").to_json())
    with pytest.raises(MemdescError, match=r"'a.npy.json' is compressed; reorder.load_all"):
        read_container(path)


def test_a_small_file_does_not_unpack_to_more_than_a_gibibyte_unasked(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.zeros(1000))
    _claim(path, 2**30)
    assert list(load_all(path)) == ["x"]
    _claim(path, 2**30 + 1)
    with pytest.raises(
        MemdescError, match="unpack to 1073741825 bytes, more than the 1073741824 allowed"
    ):
        load_all(path)


def _claim(path: Path, nbytes: int) -> None:
    """Write into the list of members, which comes last, what the first one is to unpack to."""
    whole = path.read_bytes()
    at = whole.index(b"PK\1\2") + 24
    path.write_bytes(whole[:at] + nbytes.to_bytes(4, "little") + whole[at + 4 :])


@pytest.mark.parametrize(
    "kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
@pytest.mark.parametrize("count", [100, 10_000])
def test_compressed_members_are_read_and_damaged_ones_refused(
    tmp_path: Path, kind: int, count: int
) -> None:
    path = tmp_path / "x.npz"
    x = np.random.default_rng(0).standard_normal(count)
    file = io.BytesIO()
    np.save(file, x)
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("x.npy", file.getvalue())
    assert np.array_equal(load_all(path)["x"].numpy(), x)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 255
    path.write_bytes(whole)
    with pytest.raises(MemdescError, match=r"x\.npz"):
        load_all(path)


def test_a_member_that_unpacks_to_more_than_it_claims_takes_no_memory_for_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(2**26))
    _claim(path, 200)
    tracemalloc.start()
    try:
        with pytest.raises(MemdescError, match=r"x\.npz"):
            load_all(path)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def test_a_header_of_version_2_is_read(tmp_path: Path) -> None:
    x = np.asfortranarray(np.arange(24, dtype=np.uint16).reshape(2, 3, 4))
    with (tmp_path / "x.npy").open("wb") as file:
        np.lib.format.write_array(file, x, (2, 0))
    assert np.array_equal(load(tmp_path / "x.npy").numpy(), x)
