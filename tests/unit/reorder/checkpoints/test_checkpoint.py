import json
import pickle
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from memdesc.record import record_desc
from reorder.checkpoints.formats.entry import Tensor
from tests.checkpoints import fp8_layer, write_safetensors
from tests.writers import write_tensors


def _write(path: Path, tensors: Mapping[Tensor, np.ndarray]) -> None:
    write_tensors(path, tensors, {tensor.name: data for tensor, data in tensors.items()})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    x = np.arange(540, dtype=np.float32).reshape(20, 3, 3, 3)
    blocked = reorder.reorder(x, "OIhw16o4i")
    q4 = np.random.default_rng(0).integers(0, 60, 36, np.uint8)
    _write(
        tmp_path / "model.safetensors",
        {
            Tensor("conv", "u8", (blocked.nbytes,), blocked.nbytes, blocked.desc): blocked.data,
            Tensor("plain", "f32", (20, 27), x.nbytes): x,
            Tensor("scalar", "f32", (), 4): np.array([7], np.float32),
            Tensor("f4", "f4_e2m1", (2, 3), 3): np.array([0x21, 0x43, 0x65], np.uint8),
            Tensor("q4", "u8", (36,), 36, record_desc((2, 32), "q4_0")): q4,
            Tensor("f6", "F6_E2M3", (4,), 3): np.array([1, 2, 3], np.uint8),
        },
    )
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
        with pytest.raises(KeyError):
            checkpoint["nothing"]
    assert (plain.reshape(-1) == x.reshape(-1)).all()  # stays mapped
    with pytest.raises(MemdescError, match="is closed"):
        conv.numpy()


def test_unaligned_tensors_are_copied(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    text = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    text += b" " * (-len(text) % 8 + 1)
    path.write_bytes(
        len(text).to_bytes(8, "little") + text + np.array([1, 2], np.float32).tobytes()
    )
    with reorder.open_checkpoint(path) as checkpoint:
        assert checkpoint["a"].numpy().tolist() == [1, 2]


@pytest.mark.parametrize("shape", [[0, 2**62], [2**62, 0], [1] * 13, [0] * 64])
def test_dims_that_no_array_has_are_an_error(tmp_path: Path, shape: list[int]) -> None:
    path = tmp_path / "x.safetensors"
    nbytes = 4 * int(np.prod(shape, dtype=object))
    header = {"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, nbytes]}}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(nbytes))
    with reorder.open_checkpoint(path) as checkpoint, pytest.raises(MemdescError, match="'a'"):
        checkpoint["a"].numpy()


def test_a_file_that_changed_is_refused(model: Path) -> None:
    checkpoint = reorder.open_checkpoint(model)
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(MemdescError, match=r"changed since it was opened: it has \d+ bytes, and"):
        checkpoint["plain"].numpy()


def test_a_checkpoint_is_pickled_without_what_it_has_mapped(model: Path) -> None:
    with reorder.open_checkpoint(model / "model.safetensors") as checkpoint:
        before = len(pickle.dumps(checkpoint))
        x = checkpoint["plain"].numpy()
        assert len(pickle.dumps(checkpoint)) == before
        again = pickle.loads(pickle.dumps(checkpoint["plain"]))
        assert (again.numpy() == x).all()


def test_a_tensor_says_what_scales_it(tmp_path: Path) -> None:
    layer = {f"fc.{name}": array for name, array in fp8_layer().items()}
    write_safetensors(tmp_path / "x.safetensors", layer)
    with reorder.open_checkpoint(tmp_path / "x.safetensors") as checkpoint:
        assert checkpoint["fc.weight"].scaled_by == ("fc.weight_scale_inv",)
        assert "codes scaled by fc.weight_scale_inv" in repr(checkpoint["fc.weight"])
        assert checkpoint["fc.weight_scale_inv"].scaled_by == ()
        assert checkpoint["fc.weight"].desc == memory_desc((256, 128), "f8_e4m3", "ab")


def test_a_name_that_is_not_there_is_answered_by_those_that_are_near(tmp_path: Path) -> None:
    reorder.save(tmp_path / "x.npz", {"layer.weight": np.ones(3), "layer.bias": np.ones(3)})
    with reorder.open_checkpoint(tmp_path / "x.npz") as found:
        with pytest.raises(KeyError, match=r"has no tensor 'layer.wieght', of 2; did you mean"):
            found["layer.wieght"]
        assert "layer.wieght" not in found
        assert found.get("x") is None


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
        plain = found["p"].weight()
        assert isinstance(plain, reorder.Memory)
        assert np.array_equal(plain.numpy(), np.ones(3))
    reorder.convert(tmp_path / "x.npz", tmp_path / "x.gguf", map=["q: rename=blk.0.ffn.weight"])
    with reorder.open_checkpoint(tmp_path / "x.gguf") as found:
        for name in ("blk.0.ffn.weight", "blk.0.ffn"):
            assert found.record(name).desc == blocks.desc
