"""Weights of bitsandbytes decoded here and by its CPU backend, bit for bit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import memory_desc
from memdesc.record import Field, Number, RecordDesc, Rule, record_desc

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.judges

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
bnb: Any = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
functional: Any = pytest.importorskip("bitsandbytes.functional")

_DIMS = (96, 512)
_TYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


def _layer(kind: str, block: int, dtype: str, *, nested: bool = False) -> Any:
    """Return a linear layer with random weights, quantised."""
    torch.manual_seed(block)
    weight = torch.randn(_DIMS, dtype=getattr(torch, dtype))
    layer = bnb.nn.Linear4bit(
        _DIMS[1], _DIMS[0], bias=False, quant_type=kind, compress_statistics=nested
    )
    layer.weight = bnb.nn.Params4bit(
        weight,
        requires_grad=False,
        quant_type=kind,
        compress_statistics=nested,
        blocksize=block,
    )
    return layer.to("cpu")


def _decoded(layer: Any, kind: str) -> Any:
    state = layer.weight.quant_state
    state.dtype = getattr(torch, _TYPES[kind])
    found = functional.dequantize_4bit(layer.weight.data, state)
    # FP4 has two zeros: 0 in its table and with AVX-512, -0 with AVX2
    return found + 0 if state.quant_type == "fp4" else found


def _same(ours: Any, theirs: Any) -> bool:
    found = torch.from_numpy(np.asarray(ours, np.float32))
    return bool(torch.equal(found.view(torch.int32), theirs.float().view(torch.int32)))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("block", [32, 64, 128, 256, 512])
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_a_layer_is_read_and_decoded_as_by_bitsandbytes(
    tmp_path: Path, kind: str, block: int, dtype: str
) -> None:
    layer = _layer(kind, block, dtype)
    tensors = {f"fc.{name}": each for name, each in layer.state_dict().items()}
    reorder.save(
        tmp_path / "model.safetensors", {name: each.numpy() for name, each in tensors.items()}
    )
    section = {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "bnb_4bit_quant_type": kind,
        "bnb_4bit_use_double_quant": False,
    }
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": section}))
    with reorder.open_checkpoint(tmp_path) as checkpoint:
        record = checkpoint.record("fc")
    assert record.desc == record_desc(_DIMS, f"bnb_{kind}", block=block, dtype=dtype)
    for out in _TYPES:
        assert _same(reorder.dequantize(record, dtype=out).numpy(), _decoded(layer, out))


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_scales_of_double_quantisation_are_decoded_first(kind: str) -> None:
    layer = _layer(kind, 64, "bfloat16", nested=True)
    held = {name: each.numpy() for name, each in layer.state_dict().items()}
    state = json.loads(held[f"weight.quant_state.bitsandbytes__{kind}"].tobytes())
    count = held["weight.absmax"].size

    def field(name: str, dtype: str, group: int) -> Field:
        layout = memory_desc((-(-count // group),), dtype).layout
        return Field(name, dtype, layout, (group,), name)

    rule = Rule(
        Number((("absmax", 0),), table=tuple(held["weight.nested_quant_map"].tolist())),
        (Number((("nested_absmax", 0),)),),
        offset=(Number((("offset", 0),)),),
    )
    fields = (
        field("absmax", "u8", 1),
        field("nested_absmax", "f32", state["nested_blocksize"]),
        field("offset", "f32", count),
    )
    parts = {
        "absmax": held["weight.absmax"],
        "nested_absmax": held["weight.nested_absmax"],
        "offset": np.array([state["nested_offset"]], np.float32),
    }
    scales = reorder.dequantize(reorder.records.Record(RecordDesc((count,), fields, rule), parts))
    desc = record_desc(_DIMS, f"bnb_{kind}")
    record = reorder.records.Record(desc)
    record.set_field("absmax", scales.numpy().reshape(desc.field("absmax").layout.dims))
    record.tensors["weight"][:] = held["weight"].reshape(-1)
    for out in _TYPES:
        assert _same(reorder.dequantize(record, dtype=out).numpy(), _decoded(layer, out))
