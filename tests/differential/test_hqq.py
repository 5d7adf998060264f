"""Weights of HQQ decoded here and by HQQ itself, on its backend of PyTorch.

HQQ has no wheel; `pip install --no-build-isolation hqq` after torch installs it from its sources.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.judges

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
hqq: Any = pytest.importorskip("hqq.core.quantize", reason="hqq is not installed")
safetensors: Any = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")

_TYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


@pytest.mark.parametrize("kind", _TYPES)
@pytest.mark.parametrize("group", [32, 64, 128, 256])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_a_layer_is_read_and_decoded_as_by_hqq(
    tmp_path: Path, bits: int, group: int, kind: str
) -> None:
    torch.manual_seed(bits)
    dtype = getattr(torch, _TYPES[kind])
    made = hqq.HQQLinear(
        torch.nn.Linear(256, 96).to(dtype),
        hqq.BaseQuantizeConfig(nbits=bits, group_size=group, axis=1),
        compute_dtype=dtype,
        device="cpu",
    )
    tensors = {f"fc.{name}": each.contiguous() for name, each in made.state_dict().items()}
    safetensors.save_file(tensors, tmp_path / "model.safetensors")
    section = {"quant_method": "hqq", "quant_config": {}}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": section}))
    with reorder.open_checkpoint(tmp_path) as checkpoint:
        record = checkpoint.record("fc")
    wanted = made.dequantize().float()
    for out in ("f32", kind):
        found = torch.from_numpy(reorder.dequantize(record, dtype=out).numpy().astype(np.float32))
        assert torch.equal(found.view(torch.int32), wanted.view(torch.int32))
