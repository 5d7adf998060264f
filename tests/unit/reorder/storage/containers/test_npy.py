from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc, record_desc
from reorder.storage.containers.entry import Tensor
from reorder.storage.containers.table import plan_file, read_container
from reorder.storage.containers.writer import Writer
from reorder.storage.stored import stored_layout
from tests.writers import write_part

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("tag", ["ab", "ba"])
def test_numpy_reads_what_is_written_in_pieces(tmp_path: Path, tag: str) -> None:
    path = tmp_path / "w.npy"
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    m = reorder.reorder(x, tag)
    with Writer(path, plan_file(path, [stored_layout("w", m.desc)], {})) as writer:
        write_part(writer, "w", 0, m.data)
        writer.finish()
    assert [each.name for each in tmp_path.iterdir()] == ["w.npy"]
    assert np.array_equal(np.load(path), x)
    entry = read_container(path).entries["w"]
    assert entry.desc == m.desc
    assert (entry.read() == m.data).all()


def test_arrays_without_a_data_type_have_a_reason(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3, ml_dtypes.bfloat16))
    np.save(tmp_path / "y.npy", np.zeros(3, np.complex64))
    np.save(tmp_path / "s.npy", np.float32(1))
    for name in "xy":
        entry = read_container(tmp_path / f"{name}.npy").entries[name]
        assert entry.desc is None
        assert "unknown data type" in entry.reason
    assert read_container(tmp_path / "s.npy").entries["s"].desc == memory_desc((1,), "f32")


def test_what_a_npy_cannot_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    record = record_desc((32,), "q4_0")
    wrong = [
        ([], "holds one tensor, not 0"),
        ([Tensor("a", "F6_E2M3", (4,), 3)], "has no place for a F6_E2M3"),
        ([Tensor("a", "u8", (18,), 18, record)], "has no place for a q4_0 record"),
        ([stored_layout("a", memory_desc((2, 3), "bf16"))], "has no place for elements of bf16"),
        ([stored_layout("a", memory_desc((2, 3, 4), "f32", "bac"))], "for the layout of"),
        ([stored_layout("a", memory_desc((2, 3), "f32", "aB8b"))], "for the layout of"),
        ([stored_layout("a", memory_desc((2, 3), "f32", strides=(6, 2)))], "for the layout of"),
    ]
    for tensors, reason in wrong:
        with pytest.raises(MemdescError, match=reason):
            plan_file(path, tensors, {})
    path.write_bytes(b"\x93NUMPY")
    with pytest.raises(MemdescError, match="damaged"):
        read_container(path)
