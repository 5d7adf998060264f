"""Files of safetensors: ours, damaged ones, and those of the package."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from reorder.checkpoints.formats.entry import Tensor
from reorder.checkpoints.formats.safetensors import read
from tests.headers import safetensors_bytes
from tests.writers import write_tensors


def _file(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    path.write_bytes(safetensors_bytes(header, data, length))
    return path


def _tensor(shape: Any = (2,), offsets: Any = (0, 8), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        ({"dtype": "BF16", "shape": (2, 3, 5, 8)}, "bf16 .* means f16 of shape"),
        ({"dtype": "F16", "shape": (2, 3, 8, 5)}, "f16 .* means f16 of shape"),
        ({"dtype": "F16", "shape": (2, 3, 5, 8)}, None),
        ({"dtype": "F16", "shape": (2, 1, 24, 5)}, None),
        ({"dtype": "F16", "shape": (6, 5, 8)}, None),
        ({"dtype": "U8", "shape": (480,)}, None),
        ({"dtype": "I32", "shape": (120,)}, None),
    ],
)
def test_a_descriptor_of_what_a_tensor_was_before_is_refused(
    tmp_path: Path, stored: dict[str, Any], reason: str | None
) -> None:
    desc = memory_desc((2, 17, 1, 5), "f16", "nChw8c")
    header = {
        "__metadata__": {"memdesc.a": desc.to_json()},
        "a": _tensor(offsets=(0, 480)) | stored,
    }
    path = _file(tmp_path / "x.safetensors", header, bytes(480))
    if reason is None:
        assert read(path).entries["a"].desc == desc
        return
    with pytest.raises(MemdescError, match=f"'a' is stored as {reason}.*remove 'memdesc.a' from"):
        read(path)


# The package


# types of torch, and their names here
_KINDS = {
    "bool": "boolean",
    "uint8": "u8",
    "int8": "s8",
    "int16": "s16",
    "uint16": "u16",
    "int32": "s32",
    "uint32": "u32",
    "int64": "s64",
    "uint64": "u64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "f8_e4m3",
    "float8_e5m2": "f8_e5m2",
    "float8_e8m0fnu": "e8m0",
}


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
