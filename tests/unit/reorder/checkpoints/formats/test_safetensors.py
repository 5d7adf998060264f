"""Files of safetensors: ours, damaged ones, and those of the package."""

from pathlib import Path

import numpy as np
import pytest

import reorder
from memdesc import memory_desc
from reorder.checkpoints.formats.entry import Tensor
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
