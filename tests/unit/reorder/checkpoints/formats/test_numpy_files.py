"""Files of numpy, .npy and .npz: those of `save`, of numpy, and damaged ones."""

import io
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc import MemdescError, data_type, memory_desc
from reorder import load_all, save
from reorder.checkpoints.formats.entry import Tensor
from reorder.checkpoints.formats.numpy_files import header_of, read_data, read_header
from reorder.checkpoints.formats.table import read_container
from reorder.memory.dlpack import TensorView
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
    np.savez(tmp_path / "y.npz", codes=np.zeros(7, np.int32))
    with zipfile.ZipFile(tmp_path / "y.npz", "a") as archive:
        archive.writestr("codes.npy.json", codes.desc.to_json())
    with pytest.raises(MemdescError, match=r"'codes' has 28 bytes, but its descriptor .* takes 32"):
        read_container(tmp_path / "y.npz")


def test_compressed_descriptors_are_refused_as_compressed_arrays_are(tmp_path: Path) -> None:
    # a thousand times as much would be read as the file has
    path = tmp_path / "x.npz"
    np.savez(path, a=np.zeros(100))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy.json", " " * 2**19 + memory_desc((100,), "f64").to_json())
    with pytest.raises(MemdescError, match=r"'a.npy.json' is compressed; reorder.load_all"):
        read_container(path)


def test_the_same_tensors_make_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        save(tmp_path / name, {"x": np.ones((2, 3), np.float32)})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize(
    "name",
    ["", "a\0", 3, None, b"x", "\ud800", "x" * 2**16, "\u00e9" * 2**15],
    ids=lambda name: ascii(name)[:12],
)
def test_a_string_that_is_not_a_name_is_refused(tmp_path: Path, name: Any) -> None:
    with pytest.raises(MemdescError, match=r"name of a tensor must be a string|too long"):
        save(tmp_path / "x.npz", {name: np.ones(3, np.float32)})
    assert not list(tmp_path.iterdir())


def test_long_names_and_names_of_any_script_are_read_back(tmp_path: Path) -> None:
    tensors = {
        name: reorder.reorder(np.ones(3, np.float32), "a")
        for name in ("layer/0.weight", "\u00e9\u4e2d", "x" * 65000)
    }
    save(tmp_path / "x.npz", tensors)
    assert list(load_all(tmp_path / "x.npz")) == list(tensors)


def test_tensors_of_other_libraries_are_stored(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    bits = x.astype(ml_dtypes.bfloat16)
    given: dict[str, Any] = {"view": x.T, "foreign": TensorView(bits)}
    save(tmp_path / "x.npz", given)
    found = load_all(tmp_path / "x.npz")
    assert found["view"].desc == memory_desc((3, 2), "f32")
    assert np.array_equal(found["view"].numpy(), x.T)
    assert found["foreign"].dtype == data_type("bf16")
    assert found["foreign"].numpy().tobytes() == bits.tobytes()


def test_an_archive_that_unpacks_to_more_than_allowed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.zeros(1000), y=np.zeros(1000))
    assert list(load_all(path)) == list(load_all(path, max_nbytes=20_000)) == ["x", "y"]
    with pytest.raises(
        MemdescError,
        match="unpack to 16256 bytes, more than the 16000 allowed; pass max_nbytes=16256",
    ):
        load_all(path, max_nbytes=16_000)
    with pytest.raises(MemdescError, match="max_nbytes must be an integer"):
        load_all(path, max_nbytes="1 GB")  # type: ignore[call-overload] # what a caller might pass


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


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.ones((2, 3), np.int32), r"stored as s32.* means f32 of shape \(2, 3\)"),
        (np.ones((3, 2), np.float32), r"stored as f32 of shape \(3, 2\)"),
        (np.asfortranarray(np.ones((2, 3), np.float32)), "not row-major"),
        (np.ones(3, np.float64), "stored as f64"),
        (np.ones(6, np.float32), r"stored as f32 of shape \(6,\)"),
        (np.ones(3, np.complex64), "stored as <c8"),
        (np.ones((2, 6), np.uint16), "stored as u16"),
        (np.ones((2, 12), np.uint8), "stored as u8"),
        (np.zeros((2, 3), "V4"), r"stored as \|V4"),
    ],
)
def test_an_array_of_as_many_bytes_that_its_descriptor_does_not_mean_is_refused(
    tmp_path: Path, array: Any, reason: str
) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("x.npy", "w") as file:
            np.lib.format.write_array(file, array)
        archive.writestr("x.npy.json", memory_desc((2, 3), "f32").to_json())
    with pytest.raises(MemdescError, match=rf"{reason}.*remove the member 'x.npy.json'"):
        load_all(path)


_ARRAYS = [
    np.zeros((), np.float64),
    np.arange(3, dtype=np.int8),
    np.arange(6, dtype=">f4").reshape(2, 3),
    np.asfortranarray(np.arange(24, dtype=np.uint16).reshape(2, 3, 4)),
    np.zeros((0, 5), np.float16),
    np.ones((1,) * 20, np.bool_),
    np.array(["a", "bcd"]),
    np.zeros(3, "M8[ns]"),
    np.zeros(3, "V5"),
    np.zeros(3, np.complex64),
]


@pytest.mark.parametrize("array", _ARRAYS, ids=lambda x: f"{x.dtype.str}{x.shape}")
def test_an_array_is_read_and_written_as_numpy_does(array: NDArray[Any]) -> None:
    for version in ((1, 0), (2, 0)):
        file = io.BytesIO()
        np.lib.format.write_array(file, array, version)
        whole = file.getvalue()
        file.seek(0)
        header = read_header(file, len(whole))
        data = read_data(file, header)
        found = data.view(header.dtype).reshape(
            header.shape, order="F" if header.is_fortran else "C"
        )
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert found.flags.f_contiguous == array.flags.f_contiguous
        assert found.tobytes() == array.tobytes()
        if version == (1, 0) and array.dtype.kind != "V":
            assert header_of(array.dtype, array.shape, is_fortran=array.flags.fnc) == header
