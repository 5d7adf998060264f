import json
import os
import pickle
from functools import partial
from pathlib import Path
from time import time_ns

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from memdesc.record import record_desc
from reorder.checkpoints.formats import entry
from reorder.checkpoints.formats.entry import FileState, Tensor
from tests.headers import safetensors_bytes
from tests.writers import write_tensors


@pytest.fixture
def model(tmp_path: Path) -> Path:
    x = np.arange(540, dtype=np.float32).reshape(20, 3, 3, 3)
    blocked = reorder.reorder(x, "OIhw16o4i")
    q4 = np.random.default_rng(0).integers(0, 60, 36, np.uint8)
    tensors = {
        Tensor("conv", "u8", (blocked.nbytes,), blocked.nbytes, blocked.desc): blocked.data,
        Tensor("plain", "f32", (20, 27), x.nbytes): x,
        Tensor("scalar", "f32", (), 4): np.array([7], np.float32),
        Tensor("f4", "f4_e2m1", (2, 3), 3): np.array([0x21, 0x43, 0x65], np.uint8),
        Tensor("q4", "u8", (36,), 36, record_desc((2, 32), "q4_0")): q4,
        Tensor("f6", "F6_E2M3", (4,), 3): np.array([1, 2, 3], np.uint8),
    }
    data = {tensor.name: each for tensor, each in tensors.items()}
    write_tensors(tmp_path / "model.safetensors", tensors, data)
    return tmp_path


def test_tensors_are_mapped_with_their_descriptors(model: Path) -> None:
    x = np.arange(540, dtype=np.float32).reshape(20, 3, 3, 3)
    with reorder.open_checkpoint(model) as checkpoint:
        assert sorted(checkpoint) == ["conv", "f4", "f6", "plain", "q4", "scalar"]
        assert checkpoint.format == "safetensors"
        assert [file.name for file in checkpoint.files] == ["model.safetensors"]
        assert checkpoint.metadata == {}
        conv = checkpoint["conv"]
        assert conv.desc == memory_desc((20, 3, 3, 3), "f32", "OIhw16o4i")
        assert (conv.numpy() == x).all()
        assert (conv.shape, conv.dtype, conv.nbytes) == ((conv.nbytes,), "u8", 4608)
        plain = checkpoint["plain"].numpy()
        assert np.shares_memory(plain, checkpoint["plain"].data)
        assert not plain.flags.writeable
        assert checkpoint["scalar"].numpy().shape == ()
        assert np.asarray(checkpoint["f4"], np.float32).tolist() == [[0.5, 1, 1.5], [2, 3, 4]]
        memory = conv.memory()
        assert isinstance(memory, reorder.Memory)
        assert repr(checkpoint["q4"]).startswith("StoredTensor('q4', record_desc((2, 32), 'q4_0')")
        with pytest.raises(KeyError, match=r"has no tensor 'plian', of 6; did you mean"):
            checkpoint["plian"]
        assert "plian" not in checkpoint
        assert checkpoint.get("x") is None
    assert (plain.reshape(-1) == x.reshape(-1)).all()  # stays mapped
    with pytest.raises(MemdescError, match="is closed"):
        conv.numpy()


def _a(path: Path, shape: list[int], data: bytes, spaces: int = 0) -> Path:
    """Write a file with a tensor of f32 after a header that ends with spaces."""
    header = {"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, len(data)]}}
    path.write_bytes(safetensors_bytes(json.dumps(header).encode() + b" " * spaces, data))
    return path


def test_unaligned_tensors_are_copied_and_dims_that_no_array_has_refused(tmp_path: Path) -> None:
    x = np.array([1, 2], np.float32)
    for spaces in range(4):
        path = _a(tmp_path / "x.safetensors", [2], x.tobytes(), spaces)
        with reorder.open_checkpoint(path) as checkpoint:
            assert checkpoint["a"].numpy().tolist() == [1, 2]
    for shape in ([0, 2**62], [2**62, 0], [1] * 13, [0] * 64):
        path = _a(tmp_path / "x.safetensors", shape, bytes(4 * (0 not in shape)))
        with reorder.open_checkpoint(path) as checkpoint, pytest.raises(MemdescError, match="'a'"):
            checkpoint["a"].numpy()


def test_a_checkpoint_is_pickled_without_what_it_has_mapped_and_files_do_not_change(
    model: Path,
) -> None:
    path = model / "model.safetensors"
    with reorder.open_checkpoint(path) as checkpoint:
        before = len(pickle.dumps(checkpoint))
        x = checkpoint["plain"].numpy()
        assert len(pickle.dumps(checkpoint)) == before
        again = pickle.loads(pickle.dumps(checkpoint["plain"]))
        assert (again.numpy() == x).all()
    with reorder.open_checkpoint(path) as checkpoint:
        os.utime(path, (0, 0))
        with pytest.raises(MemdescError, match="has changed since it was opened; open it again"):
            checkpoint["plain"].numpy()
    with reorder.open_checkpoint(path) as checkpoint:
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(MemdescError, match=r"changed since it was opened: it has \d+ bytes"):
            checkpoint["plain"].numpy()


def test_a_tensor_of_a_checkpoint_is_decoded_with_what_scales_it(tmp_path: Path) -> None:
    awq = reorder.records.Record(record_desc((128, 64), "awq", group=32))
    awq.tensors["qweight"][:] = 0x35
    awq.set_field("scales", np.ones((4, 64), np.float16))
    codes = reorder.quantize(np.ones((4, 8), np.float32), "s8", axis=0)
    blocks = reorder.records.Record(record_desc((4, 64), "q4_0"))
    reorder.save(tmp_path / "x.npz", {"fc": awq, "w": codes, "q": blocks, "p": np.ones(3)})
    with reorder.open_checkpoint(tmp_path / "x.npz") as found:
        for name, wanted in (("fc.qweight", awq), ("w", codes), ("q", blocks)):
            held = reorder.dequantize(found[name]).numpy()
            assert np.array_equal(held, reorder.dequantize(wanted).numpy())
        assert found.record("q").desc == blocks.desc
        assert "codes scaled by fc.qzeros, fc.scales" in repr(found["fc.qweight"])
        assert found["fc.scales"].scaled_by == ()
        plain = found["p"].weight()
        assert isinstance(plain, reorder.Memory)
        assert np.array_equal(plain.numpy(), np.ones(3))
    reorder.convert(tmp_path / "x.npz", tmp_path / "x.gguf", map=["q: rename=blk.0.ffn.weight"])
    with reorder.open_checkpoint(tmp_path / "x.gguf") as found:
        for name in ("blk.0.ffn.weight", "blk.0.ffn"):
            assert found.record(name).desc == blocks.desc


# FAT gives the same time to all that is written within 2 s
_STEP = 2 * 10**9


@pytest.mark.parametrize("is_young", [True, False])
def test_a_young_file_that_is_replaced_has_changed(tmp_path: Path, *, is_young: bool) -> None:
    path, other = tmp_path / "x", tmp_path / "other"
    # on a busy machine, a file may be older than a step before its state is taken
    for _ in range(100):
        then = time_ns() - _STEP * (19 if is_young else 21) // 20
        for each in (path, other):
            each.write_bytes(each.name.encode()[:1])
            os.utime(each, ns=(then, then))
        state = FileState.at(path)
        if (time_ns() - then < _STEP) == is_young:
            break
    # the number of an older file may change by itself
    other.replace(path)
    assert state.is_at(path) != is_young


def test_a_file_is_known_by_its_number_while_another_could_have_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAT gives the same time to all that is written within 2 s."""
    path = tmp_path / "x"
    path.write_bytes(b"x")
    status = path.stat()
    for age, number in ((1.9, status.st_ino), (2.1, 0)):
        now = status.st_mtime_ns + int(age * 1e9)
        monkeypatch.setattr(entry, "time_ns", partial(int, now))
        assert FileState.at(path).inode == number
