"""Tensors saved and read back, files that are refused, and mapped ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import MemdescError, from_json, memory_desc
from reorder.storage.files import load, save, sidecar

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "dtype",
    [
        "f64",
        "f32",
        "f16",
        "bf16",
        "f8_e5m2",
        "f8_e4m3",
        "e8m0",
        "f4_e2m1",
        "s64",
        "s32",
        "s8",
        "u8",
        "s4",
        "u4",
    ],
)
@pytest.mark.parametrize("tag", ["abcd", "acdb", "aBcd8b", "ABcd4a/1.8b8a/4.4b"])
def test_a_saved_tensor_is_read_back_bit_for_bit(tmp_path: Path, dtype: str, tag: str) -> None:
    memory = reorder.Memory(memory_desc((2, 11, 3, 2), dtype, tag))
    memory.data[:] = np.random.default_rng(0).integers(0, 256, memory.nbytes, np.uint8)
    memory = reorder.Memory(memory.desc, memory.data)
    save(tmp_path / "x.npy", memory)
    again = load(tmp_path / "x.npy")
    assert isinstance(again, reorder.Memory)
    assert again.desc == memory.desc
    assert again.data.tobytes() == memory.data.tobytes()
    again.check_padding()


def test_a_plain_layout_is_saved_as_an_array_in_memory_order(tmp_path: Path) -> None:
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    save(tmp_path / "x.npy", reorder.reorder(x, "nhwc"))
    assert np.array_equal(np.load(tmp_path / "x.npy"), x.transpose(0, 2, 3, 1))


def test_a_blocked_layout_is_saved_as_raw_bytes_with_its_descriptor_beside_it(
    tmp_path: Path,
) -> None:
    memory = reorder.reorder(np.ones((1, 3, 2, 2), np.float32), "nChw8c")
    save(tmp_path / "x.npy", memory)
    raw = np.load(tmp_path / "x.npy")
    assert raw.dtype == np.uint8
    assert raw.shape == (128,)
    assert from_json(sidecar(tmp_path / "x.npy").read_text()) == memory.desc


def test_a_dtype_names_elements_without_a_type(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(4).astype(ml_dtypes.bfloat16))
    found = load(tmp_path / "x.npy", "bf16")
    assert isinstance(found, np.ndarray)
    assert found.dtype == ml_dtypes.bfloat16
    with pytest.raises(
        MemdescError, match=r"of \|V2 cannot be read as f32: its elements have 16 bits"
    ):
        load(tmp_path / "x.npy", "f32")


@pytest.mark.parametrize(
    ("held", "dtype", "view"),
    [
        ("u1", "s8", "numpy.int8"),
        ("u2", "f16", "numpy.float16"),
        ("u2", "bf16", "ml_dtypes.bfloat16"),
        ("u2", "f32", "numpy.float32"),
        ("i2", "u16", "numpy.uint16"),
        ("u1", "u4", "ml_dtypes.uint4"),
        ("?", "u8", "numpy.uint8"),
    ],
)
def test_what_a_file_says_of_its_elements_is_neither_converted_nor_reinterpreted(
    tmp_path: Path, held: str, dtype: str, view: str
) -> None:
    x = np.array([0, 1, 200], np.uint8).astype(held)
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(MemdescError, match=f"not {dtype}; a file says its own type: --to-dtype"):
        load(tmp_path / "x.npy", dtype)
    with pytest.raises(MemdescError, match=rf"save x\.view\({view}\)"):
        load(tmp_path / "x.npy", dtype)
    plain = load(tmp_path / "x.npy")
    assert isinstance(plain, np.ndarray)
    assert plain.dtype == x.dtype


def test_a_missing_a_truncated_and_a_foreign_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MemdescError, match=r"none.npy' cannot be read: No such file"):
        load(tmp_path / "none.npy")
    np.save(tmp_path / "x.npy", np.arange(100))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-8])
    with pytest.raises(MemdescError, match=r"cut.npy' is no .npy file"):
        load(tmp_path / "cut.npy")
    (tmp_path / "text.npy").write_text("hello")
    with pytest.raises(MemdescError, match=r"text.npy' is no .npy file"):
        load(tmp_path / "text.npy")


def test_pickled_objects_are_never_read(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(MemdescError, match="allow_pickle"):
        load(tmp_path / "x.npy")


def test_a_damaged_descriptor_and_one_of_another_size_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "x.npy", reorder.reorder(np.ones((1, 3, 2, 2), np.float32), "nChw8c"))
    sidecar(tmp_path / "x.npy").write_text("{}")
    with pytest.raises(MemdescError, match=r"x.npy.json"):
        load(tmp_path / "x.npy")
    sidecar(tmp_path / "x.npy").write_bytes(b"\xff\xfe")
    with pytest.raises(MemdescError, match=r"x.npy.json"):
        load(tmp_path / "x.npy")
    save(tmp_path / "y.npy", reorder.reorder(np.ones((4, 3, 2, 2), np.float32), "nChw8c"))
    sidecar(tmp_path / "y.npy").replace(sidecar(tmp_path / "x.npy"))
    with pytest.raises(
        MemdescError,
        match=r"shape \(128,\), but the descriptor beside it means uint8 and \(512,\); "
        "if the array is newer, delete",
    ):
        load(tmp_path / "x.npy")


def test_a_dtype_that_contradicts_the_descriptor_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "x.npy", reorder.reorder(np.ones((1, 3), np.float32), "ba"))
    with pytest.raises(MemdescError, match="says f32, not s8"):
        load(tmp_path / "x.npy", "s8")


def test_an_unwritable_target_leaves_nothing_behind(tmp_path: Path) -> None:
    memory = reorder.reorder(np.ones((1, 3), np.float32), "ba")
    with pytest.raises(MemdescError, match="cannot be written"):
        save(tmp_path / "none" / "x.npy", memory)
    (tmp_path / "x.npy").mkdir()
    with pytest.raises(MemdescError, match="cannot be written"):
        save(tmp_path / "x.npy", memory)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_an_array_written_over_a_described_one_is_not_misread(tmp_path: Path) -> None:
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    save(tmp_path / "x.npy", reorder.reorder(x, "nhwc"))
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(
        MemdescError,
        match=r"shape \(1, 2, 3, 4\), but the descriptor beside it means float32 and "
        r"\(1, 3, 4, 2\)",
    ):
        load(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", x.transpose(0, 2, 3, 1).astype(np.int32))
    with pytest.raises(MemdescError, match="array of int32"):
        load(tmp_path / "x.npy")


def test_elements_without_a_type_and_types_that_contradict_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3, ml_dtypes.bfloat16))
    with pytest.raises(MemdescError, match="elements of 2 bytes without a type; say which: dtype="):
        load(tmp_path / "x.npy")
    np.save(tmp_path / "y.npy", np.zeros(3, np.float32))
    with pytest.raises(MemdescError, match="holds float32, not s32; a file says its own type"):
        load(tmp_path / "y.npy", "s32")
    found = load(tmp_path / "y.npy", "f32")
    assert isinstance(found, np.ndarray)


def test_a_write_protected_file_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = reorder.reorder(np.ones((1, 3), np.float32), "ba")
    save(tmp_path / "x.npy", memory)
    # root may write anything, so the system's answer to everybody else is given here
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(MemdescError, match="write-protected"):
        save(tmp_path / "x.npy", memory)


def test_something_else_than_a_memory_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(MemdescError, match="save takes a Memory, not ndarray"):
        save(tmp_path / "x.npy", np.zeros(3))  # type: ignore[arg-type] # what a caller might pass


def test_a_view_whose_buffer_ends_with_its_last_element_is_saved_too(tmp_path: Path) -> None:
    gap = memory_desc((3, 4), "f32", strides=(6, 1))
    part = memory_desc((1, 17, 5, 4), "f32", "nChw8c").submemory((1, 8, 5, 4), (0, 8, 0, 0))
    for desc in (gap, part):
        memory = reorder.Memory(desc, np.arange(desc.min_nbytes, dtype=np.uint8), zero_pad=False)
        save(tmp_path / "x.npy", memory)
        again = load(tmp_path / "x.npy")
        assert isinstance(again, reorder.Memory)
        assert again.desc == desc
        assert again.numpy().tobytes() == memory.numpy().tobytes()
        reorder.save_archive(tmp_path / "x.npz", {"x": memory})
        assert (
            reorder.load_archive(tmp_path / "x.npz")["x"].numpy().tobytes()
            == memory.numpy().tobytes()
        )


def test_a_file_of_holes_that_is_larger_than_the_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(3, np.uint8))
    whole = path.read_bytes()[:128].replace(b"(3,), }" + b" " * 14, (b"(%d,), }" % 2**43).ljust(21))
    path.write_bytes(whole)
    with path.open("r+b") as file:
        try:
            file.truncate(len(whole) + 2**43)
        except OSError:
            pytest.skip("the file system has no such files")
    with pytest.raises(MemdescError, match="more than the system has memory for"):
        load(path)


def test_a_descriptor_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(3))
    sidecar(path).symlink_to(sidecar(path))
    with pytest.raises(MemdescError, match=r"json' cannot be read: Too many levels of symbolic"):
        load(path)
    sidecar(path).unlink()
    sidecar(path).symlink_to(tmp_path / "none")
    with pytest.raises(MemdescError, match=r"json' cannot be read: No such file"):
        load(path)


@pytest.mark.parametrize("tag", ["abcd", "aBcd8b"])
def test_a_mapped_tensor_is_the_file(tmp_path: Path, tag: str) -> None:
    path = tmp_path / "x.npy"
    x = np.random.default_rng(0).random((2, 17, 5, 4), np.float32)
    save(path, reorder.reorder(x, tag))
    mapped = load(path, mmap=True)
    assert isinstance(mapped, reorder.Memory)
    assert np.array_equal(mapped.numpy(), x)
    assert not mapped.data.flags.writeable
    base: Any = mapped.data
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    assert load(path, mmap=True, verify=True)
    np.save(path, x)  # another array: refused as ever
    sidecar(path).unlink()
    assert np.array_equal(load(path, mmap=True), x)


def test_a_file_without_elements_and_one_that_ends_early_cannot_be_mapped(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    save(path, reorder.reorder(np.ones((2, 0), np.float32), "ab"))
    empty = load(path, mmap=True)
    assert isinstance(empty, reorder.Memory)
    assert empty.numpy().shape == (2, 0)
    np.save(path, np.ones(8, np.float32))
    sidecar(path).unlink()
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(MemdescError, match="its header means 32 bytes"):
        load(path, mmap=True)
