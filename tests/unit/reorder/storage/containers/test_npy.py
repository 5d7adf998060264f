from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc, record_desc
from reorder.storage.containers.plan import Tensor
from reorder.storage.containers.table import plan_file, read_container
from reorder.storage.containers.writer import Writer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("times", [1, 3])
def test_load_reads_what_is_written_in_pieces(tmp_path: Path, times: int) -> None:
    path = tmp_path / "w.npy"
    for k in range(times):
        m = reorder.reorder(np.full((20, 3, 3, 3), k, np.float32), "OIhw16o4i")
        tensor = Tensor("w", "u8", (m.nbytes,), m.nbytes, m.desc)
        with Writer(path, plan_file(path, [tensor], {}), overwrite=True) as writer:
            writer.write("w", 0, m.data)
            writer.finish()
        found = reorder.load(path, verify=True)
        assert isinstance(found, reorder.Memory)
        assert found.desc == m.desc
        assert (found.data == m.data).all()
        entry = read_container(path).entries["w"]
        assert entry.desc == m.desc
        assert entry.is_described
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
        ([Tensor("a", "F6_E2M3", (4,), 3)], "files of numpy hold no F6_E2M3"),
        ([Tensor("a", "u8", (18,), 18, record)], "files of numpy hold no record_desc"),
        ([Tensor("a", "f32", (2,), 9)], "has 9 bytes, but .* takes 8"),
    ]
    for tensors, reason in wrong:
        with pytest.raises(MemdescError, match=reason):
            plan_file(path, tensors, {})
    path.write_bytes(b"\x93NUMPY")
    with pytest.raises(MemdescError, match="damaged"):
        read_container(path)


def test_the_array_that_is_there_is_described_whenever_a_process_ends(tmp_path: Path) -> None:
    old = reorder.reorder(np.ones((4, 3), np.float32), "ba")
    new = reorder.reorder(np.full((4, 3), 2, np.float32), "ab")
    path, grown = tmp_path / "w.npy", tmp_path / "grown" / "w.npy"
    reorder.save(path, old)
    (planned,) = plan_file(path, [Tensor("w", "f32", (4, 3), 48, new.desc)], {})
    grown.parent.mkdir()
    ((_, head),) = planned.pieces
    grown.write_bytes(head + new.data.tobytes())
    assert planned.seal is not None
    planned.seal(grown, path)
    # the descriptor gets its name first
    for name, memory in (("w.npy.json", old), ("w.npy", new)):
        (grown.parent / name).replace(tmp_path / name)
        found = reorder.load(path, verify=True)
        assert isinstance(found, reorder.Memory)
        assert found.desc == memory.desc
        assert (found.data == memory.data).all()
