"""Converted checkpoints as other packages read them: safetensors, torch and gguf."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reorder.cli import main
from tests.checkpoints import awq_layer
from tests.gguf_files import gguf_file

pytestmark = pytest.mark.peers

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
gguf = pytest.importorskip("gguf", reason="gguf is not installed")

_INPUTS, _OUTPUTS, _GROUP = 256, 128, 32
_CPU_NAMES = {
    "AVX512": "torch_int4_cpu",
    "AVX2": "torch_int4_cpu_avx2",
    "DEFAULT": "torch_int4_cpu_default",
}
# the column of each nibble of a word, as AutoAWQ 0.2 packs them
_AWQ_ORDER = [0, 4, 1, 5, 2, 6, 3, 7]


def nibbles(words: Any) -> Any:
    """Return the eight 4-bit elements of each word, the lowest first, as a last axis."""
    return (words.unsqueeze(-1) >> torch.arange(0, 32, 4)) & 15


def awq_weights(layer: dict[str, Any]) -> Any:
    """Return the weights over (in, out) by the formula of AutoAWQ, in torch."""
    codes, zeros = (
        nibbles(layer[name])[..., _AWQ_ORDER].flatten(-2).float() for name in ("qweight", "qzeros")
    )
    group = codes.shape[0] // zeros.shape[0]
    return (codes - zeros.repeat_interleave(group, 0)) * layer["scales"].float().repeat_interleave(
        group, 0
    )


def gptq_weights(layer: dict[str, Any]) -> Any:
    """Return the weights over (in, out) by the formula of AutoGPTQ, version 1, in torch."""
    codes = nibbles(layer["qweight"]).transpose(-1, -2).flatten(0, 1).float()
    zeros = nibbles(layer["qzeros"]).flatten(-2).float() + 1
    group = codes.shape[0] // zeros.shape[0]
    return (codes - zeros.repeat_interleave(group, 0)) * layer["scales"].float().repeat_interleave(
        group, 0
    )


def part_of(tensors: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(f"{prefix}."): array for name, array in tensors.items()}


@pytest.fixture
def awq(tmp_path: Path) -> Path:
    """A layer, written by the package safetensors."""
    layer = awq_layer(0, (_INPUTS, _OUTPUTS), _GROUP)
    path = tmp_path / "awq.safetensors"
    tensors = {f"layer.{name}": torch.from_numpy(array) for name, array in layer.items()}
    safetensors.save_file(tensors, path, metadata={"format": "pt"})
    return path


def convert(source: Path, target: Path, rule: str) -> Path:
    assert main(["convert", str(source), str(target), "--map", rule]) == 0
    return target


def test_torch_computes_the_same_with_a_layer_of_the_other_format(
    awq: Path, tmp_path: Path
) -> None:
    old = awq_weights(part_of(safetensors.load_file(awq), "layer"))
    converted = convert(awq, tmp_path / "gptq.safetensors", "layer: awq -> gptq")
    new = gptq_weights(part_of(safetensors.load_file(converted), "layer"))
    assert torch.equal(old, new)
    x = torch.randn(4, _INPUTS, generator=torch.Generator().manual_seed(0))
    assert torch.equal(x @ old, x @ new)
    with safetensors.safe_open(converted, "pt") as file:
        assert file.metadata()["format"] == "pt"


def test_the_operator_of_torch_multiplies_with_a_converted_file(awq: Path, tmp_path: Path) -> None:
    name = _CPU_NAMES[torch.backends.cpu.get_cpu_capability()]
    rule = f"layer: awq -> {name}(scales=f32)"
    made = convert(awq, tmp_path / "torch.safetensors", rule)
    layer = part_of(safetensors.load_file(made), "layer")
    assert layer["weight"].shape == (_OUTPUTS, _INPUTS // 2)
    assert layer["scales_and_zeros"].shape == (_INPUTS // _GROUP, _OUTPUTS, 2)
    x = torch.randn(4, _INPUTS, generator=torch.Generator().manual_seed(0))
    multiply = torch.ops.aten._weight_int4pack_mm_for_cpu  # noqa: SLF001 - the operator's name
    product = multiply(x, layer["weight"], _GROUP, layer["scales_and_zeros"])
    weights = awq_weights(part_of(safetensors.load_file(awq), "layer"))
    assert torch.allclose(product, x @ weights, rtol=1e-4, atol=1e-3)


def test_blocks_of_gguf_go_to_safetensors_and_back(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((_OUTPUTS, _INPUTS), np.float32)
    blocks = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q4_0)
    numbers = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.Q4_0)
    source = tmp_path / "in.gguf"
    with gguf_file(source) as writer:
        writer.add_tensor("blk.0.ffn_up.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    made = convert(source, tmp_path / "awq.safetensors", "blk.*: q4_0 -> awq")
    layer = part_of(safetensors.load_file(made), "blk.0.ffn_up")
    assert np.array_equal(awq_weights(layer).numpy().T, numbers)
    back = convert(made, tmp_path / "out.gguf", "blk.*.ffn_up: awq -> q4_0")
    (tensor,) = gguf.GGUFReader(back).tensors
    assert tensor.name == "blk.0.ffn_up.weight"
    assert tensor.tensor_type == gguf.GGMLQuantizationType.Q4_0
    assert np.array_equal(gguf.quants.dequantize(tensor.data, tensor.tensor_type), numbers)
