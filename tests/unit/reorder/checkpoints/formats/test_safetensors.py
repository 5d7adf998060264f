"""Files of safetensors: those of the package, and models in shards."""

import json
from pathlib import Path

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from reorder.checkpoints.formats.entry import Tensor
from reorder.checkpoints.formats.safetensors import plan_shards
from reorder.checkpoints.formats.table import format_of, read_container
from tests.unit.reorder.checkpoints.formats.models import shard
from tests.writers import write_tensors

# The package


# types of torch whose names are others here
_KINDS = {"bool": "boolean", "bfloat16": "bf16", "float8_e8m0fnu": "e8m0"}
_KINDS |= {"float8_e4m3fn": "f8_e4m3", "float8_e5m2": "f8_e5m2"}
_KINDS |= {
    f"{kind}int{bits}".removeprefix("s"): f"{kind}{bits}"
    for kind in "us"
    for bits in (8, 16, 32, 64)
}
_KINDS |= {f"float{bits}": f"f{bits}" for bits in (16, 32, 64)}


@pytest.mark.peers
def test_every_type_of_the_package_is_read_and_written(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file  # a peer

    raw = torch.arange(48, dtype=torch.uint8)
    tensors = {kind: raw.clone().view(getattr(torch, kind)).reshape(2, -1) for kind in _KINDS}
    tensors["bool"] = (raw % 2).bool().reshape(2, -1)
    save_file({**tensors, "scalar": torch.tensor(2.0)}, tmp_path / "x.safetensors", {"a": "b"})
    with reorder.open_checkpoint(tmp_path / "x.safetensors") as checkpoint:
        assert checkpoint.metadata == {"a": "b"}
        assert checkpoint["scalar"].numpy() == 2
        planned = []
        for kind, tensor in tensors.items():
            found = checkpoint[kind]
            assert found.desc == memory_desc(tensor.shape, _KINDS[kind])
            assert found.data.tobytes() == tensor.contiguous().view(torch.uint8).numpy().tobytes()
            planned.append(Tensor(kind, found.dtype, found.shape, found.nbytes, found.desc))
        data = {kind: checkpoint[kind].data for kind in tensors}
        target = write_tensors(tmp_path / "y.safetensors", planned, data, checkpoint.metadata)
    again = load_file(target)
    for kind, tensor in tensors.items():
        assert again[kind].dtype == tensor.dtype
        assert torch.equal(again[kind].view(torch.uint8), tensor.view(torch.uint8))


@pytest.mark.peers
def test_elements_of_four_bits_are_those_of_the_package(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file  # a peer

    raw = torch.tensor([[0x21, 0x43], [0x65, 0x07]], dtype=torch.uint8)
    save_file({"a": raw.view(torch.float4_e2m1fn_x2)}, tmp_path / "x.safetensors")
    with reorder.open_checkpoint(tmp_path / "x.safetensors") as checkpoint:
        found = checkpoint["a"]
        assert found.desc == memory_desc((2, 4), "f4_e2m1")
        assert np.asarray(found, np.float32).tolist() == [[0.5, 1, 1.5, 2], [3, 4, 6, 0]]


# Shards


def test_an_index_is_read_and_names_of_other_files_are_of_no_format(tmp_path: Path) -> None:
    shard(tmp_path / "s.safetensors", "a", "b")
    path = tmp_path / "model.safetensors.index.json"
    for encoding in ("utf-8", "utf-8-sig"):
        path.write_text(json.dumps({"weight_map": dict.fromkeys("ab", "s.safetensors")}), encoding)
        assert [*read_container(path).entries] == ["a", "b"]
    (tmp_path / "x.bin").touch()
    with pytest.raises(MemdescError, match="names no format of checkpoints"):
        read_container(tmp_path / "x.bin")
    assert format_of("x.npy").name == "npy"


def test_tensors_of_one_name_in_two_shards_are_refused() -> None:
    with pytest.raises(MemdescError, match="two tensors would be called 'a'"):
        plan_shards([Tensor("a", "u8", (1000,), 1000)] * 2, {}, 10)


def test_a_folder_is_all_its_files_and_those_that_are_missing_are_one_line(tmp_path: Path) -> None:
    for name in "ba":
        shard(tmp_path / f"{name}.safetensors", name, **{"of": name, name: ""})
    found = read_container(tmp_path)
    assert [*found.entries] == ["a", "b"]
    assert found.metadata == {"of": "a", "a": "", "b": ""}
    shard(tmp_path / "model-00001-of-99999.safetensors", "c")
    unread = read_container(tmp_path, skip_unreadable=True).unread
    assert sum("are missing" in each.reason for each in unread.values()) == 1
