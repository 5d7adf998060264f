"""Files of numpy, .npy and .npz: those of `save`, of numpy, and damaged ones."""

import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from reorder import load_all
from reorder.checkpoints.formats.entry import Tensor
from reorder.checkpoints.formats.table import check_sums, read_container
from tests.writers import write_tensors


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
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
    # numpy does not write others
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("x.npy", file.getvalue())
    with pytest.raises(MemdescError, match=r"is compressed, .* numpy\.savez_compressed"):
        load_all(path)


def test_a_small_file_takes_no_memory_beyond_what_it_claims_and_a_gibibyte(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"

    def claim(nbytes: int, x: bytes, beside: bytes = b"") -> None:
        """Write an archive, whose list of members says what the first one is to unpack to."""
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            if beside:
                archive.writestr("x.npy.json", beside)
            archive.writestr("x.npy", x)
        whole = path.read_bytes()
        at = whole.index(b"PK\1\2") + 24
        path.write_bytes(whole[:at] + nbytes.to_bytes(4, "little") + whole[at + 4 :])

    file = io.BytesIO()
    np.save(file, np.zeros(1000))
    claim(2**30, file.getvalue())
    assert list(load_all(path)) == ["x"]
    whole = file.getvalue()
    for said in ((2**30 + 1, whole), (200, bytes(2**26)), (200, whole, bytes(2**26))):
        claim(*said)
        tracemalloc.start()
        try:
            with pytest.raises(MemdescError, match=r"x\.npz"):
                load_all(path)
            assert tracemalloc.get_traced_memory()[1] < 2**22
        finally:
            tracemalloc.stop()
    # a thousand times as much as the file has
    np.savez(path, a=np.zeros(100))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy.json", " " * 2**19 + memory_desc((100,), "f64").to_json())
    with pytest.raises(MemdescError, match=r"'a.npy.json' is compressed, .* reorder.load_all"):
        read_container(path)


def test_checksums_of_small_arrays_are_compared_when_an_archive_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.zeros(5_000))
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] = 1
    path.write_bytes(whole)
    with pytest.raises(MemdescError, match=r"Bad CRC-32 for file 'x\.npy'"):
        reorder.open_checkpoint(path)


def test_a_conversion_compares_checksums_before_it_writes(tmp_path: Path) -> None:
    path, made = tmp_path / "x.npz", tmp_path / "y.npz"
    np.savez(path, x=np.zeros(50_000))
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] = 1
    path.write_bytes(whole)
    for rules in ([], ["x: f32"]):
        with pytest.raises(MemdescError, match=r"member 'x\.npy' does not match its checksum"):
            reorder.convert(path, made, map=rules)
    assert not made.exists()


def test_numbers_that_start_like_an_archive_have_no_checksums(tmp_path: Path) -> None:
    path = tmp_path / "weights.data"
    path.write_bytes(b"PK\x03\x04" + bytes(1000))
    check_sums(path)


def test_what_is_written_is_an_archive_of_aligned_arrays(tmp_path: Path) -> None:
    codes = reorder.reorder(np.arange(64, dtype=np.uint8).reshape(8, 8) % 16, "gptq", dtype="u4")
    tensors = [Tensor("codes", "s32", (1, 8), 32, codes.desc), Tensor("one", "bf16", (), 2)]
    one, other = (
        write_tensors(tmp_path / name, tensors, {"codes": codes.data})
        for name in ("x.npz", "y.npz")
    )
    whole = one.read_bytes()
    assert whole == other.read_bytes()
    with zipfile.ZipFile(one) as archive:
        assert archive.testzip() is None
        # readers of streams take the checksum before a member
        for info in archive.infolist():
            assert whole[info.header_offset + 14 :][:4] == info.CRC.to_bytes(4, "little")
    with np.load(one) as arrays:
        assert arrays["codes"].tobytes() == codes.data.tobytes()
        shapes = [(each.dtype, each.shape) for each in (arrays["codes"], arrays["one"])]
        assert shapes == [(np.int32, (1, 8)), (np.uint16, ())]
    found = read_container(one).entries
    assert (found["codes"].dtype, found["codes"].desc) == ("s32", codes.desc)
    assert all(entry.offset % 64 == 0 for entry in found.values())
