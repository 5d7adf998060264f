"""Models as a library saved them: each layer is read, and decoded to the library's own numbers."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import reorder
from memdesc.record import RecordDesc, record_desc
from tests.differential.test_decoded import STRATEGIES, TYPES, decoded, numbers, same, torch
from tests.differential.test_whole_models import model_of, safetensors

pytestmark = [pytest.mark.judges, pytest.mark.filterwarnings("ignore")]

_DIMS = (96, 512)


class Layer(NamedTuple):
    """A layer of a model, its numbers by the library in each type, and its record if it is told."""

    name: str
    wanted: dict[str, Any]
    desc: RecordDesc | None = None


def _linear4bit(kind: str, block: int, dtype: str, *, nested: bool = False) -> Any:
    """Return a layer of bitsandbytes with random weights."""
    nn = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed").nn
    torch.manual_seed(block)
    weight = torch.randn(_DIMS, dtype=getattr(torch, dtype))
    options = {"quant_type": kind, "compress_statistics": nested}
    layer = nn.Linear4bit(_DIMS[1], _DIMS[0], bias=False, **options)
    layer.weight = nn.Params4bit(weight, requires_grad=False, blocksize=block, **options)
    return layer.to("cpu")


def _of_bitsandbytes(layer: Any, kind: str) -> Any:
    functional = pytest.importorskip("bitsandbytes.functional")
    state = layer.weight.quant_state
    state.dtype = getattr(torch, TYPES[kind])
    return numbers(functional.dequantize_4bit(layer.weight.data, state))


def _save_bitsandbytes(folder: Path, kind: str, block: int, dtype: str) -> list[Layer]:
    layer = _linear4bit(kind, block, dtype)
    tensors = {f"fc.{name}": each.numpy() for name, each in layer.state_dict().items()}
    reorder.save(folder / "model.safetensors", tensors)
    section = {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "bnb_4bit_quant_type": kind,
        "bnb_4bit_use_double_quant": False,
    }
    (folder / "config.json").write_text(json.dumps({"quantization_config": section}))
    desc = record_desc(_DIMS, f"bnb_{kind}", block=block, dtype=dtype)
    return [Layer("fc", {each: _of_bitsandbytes(layer, each) for each in TYPES}, desc)]


def _save_hqq(folder: Path, bits: int, group: int, kind: str) -> list[Layer]:
    """Save a layer of HQQ: `pip install --no-build-isolation hqq`, after torch."""
    hqq = pytest.importorskip("hqq.core.quantize", reason="hqq is not installed")
    torch.manual_seed(bits)
    dtype = getattr(torch, TYPES[kind])
    made = hqq.HQQLinear(
        torch.nn.Linear(256, 96).to(dtype),
        hqq.BaseQuantizeConfig(nbits=bits, group_size=group, axis=1),
        compute_dtype=dtype,
        device="cpu",
    )
    tensors = {f"fc.{name}": each.contiguous() for name, each in made.state_dict().items()}
    safetensors.save_file(tensors, folder / "model.safetensors")
    section = {"quant_method": "hqq", "quant_config": {}}
    (folder / "config.json").write_text(json.dumps({"quantization_config": section}))
    return [Layer("fc", dict.fromkeys(("f32", kind), numbers(made.dequantize())))]


def _save_mlx(folder: Path, kind: str) -> list[Layer]:
    """Save a model of MLX whose layers have groups, bits and modes of their own."""
    mx = pytest.importorskip("mlx.core", reason="mlx[cpu] is not installed")
    from mlx import nn
    from mlx.utils import tree_flatten

    mx.set_default_device(mx.cpu)
    own: dict[str, Any] = {
        "up": {"group_size": 32, "bits": 3},
        "down": {"group_size": 32, "bits": 8, "mode": "mxfp8"},
        "lm_head": False,
    }
    model = nn.Module()
    model.embed_tokens, model.norm = nn.Embedding(64, 256), nn.RMSNorm(256)
    model.up, model.down = nn.Linear(256, 128), nn.Linear(128, 256, bias=False)
    model.lm_head = nn.Linear(256, 64, bias=False)
    dtype = getattr(mx, TYPES[kind])
    model.set_dtype(dtype)
    chosen = {"class_predicate": lambda name, layer: own.get(name, hasattr(layer, "to_quantized"))}
    nn.quantize(model, 64, 4, **chosen)
    tensors = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, metadata={"format": "mlx"})
    section = {"group_size": 64, "bits": 4, **own}
    config = {"quantization": section, "quantization_config": section}
    (folder / "config.json").write_text(json.dumps(config))
    found = []
    for name in ("embed_tokens", "up", "down"):
        layer = model[name]
        parts = layer.weight, layer.scales, layer.get("biases")
        steps = {"group_size": layer.group_size, "bits": layer.bits, "mode": layer.mode}
        if layer.mode == "affine" or kind != "f16":  # see docs/records.md
            made = mx.dequantize(*parts, **steps, dtype=dtype)
            found.append(Layer(name, {"f32": numbers(made)}))
    return found


def _group(bits: int, strategy: str, targets: list[str], **more: Any) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": "int", **STRATEGIES[strategy]}
    return {"targets": targets, "weights": weights | more.pop("weights", {}), **more}


_ASYMMETRIC = {"weights": {"symmetric": False}}
_DYNAMIC = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
_GROUPS: dict[str, dict[str, Any]] = {
    "w4 groups": {"g": _group(4, "group", ["Linear"])},
    "w4 groups, zero points": {"g": _group(4, "group", ["Linear"], **_ASYMMETRIC)},
    "w8 channels, zero points": {"g": _group(8, "channel", ["Linear"], **_ASYMMETRIC)},
    "w8a8": {"g": _group(8, "channel", ["Linear"], input_activations=_DYNAMIC)},
    "mixed": {
        "first": _group(4, "group", ["re:.*mlp.(gate|up)_proj$"]),
        "second": _group(8, "channel", ["re:.*down_proj", "model.layers.0.self_attn.q_proj"]),
        "third": _group(8, "tensor", ["Linear"]),
    },
}


def _save_compressed(folder: Path, name: str) -> list[Layer]:
    """Save a model with groups of compressed-tensors, and layers that none of them has."""
    quantization = pytest.importorskip("compressed_tensors.quantization")
    from compressed_tensors.compressors import ModelCompressor

    model = model_of("llama", torch.bfloat16)
    config = quantization.QuantizationConfig(
        config_groups=dict(_GROUPS[name]),
        quantization_status="frozen",
        ignore=["lm_head", "re:.*layers.1.*k_proj"],
    )
    quantization.apply_quantization_config(model, config, show_progress=False)
    rng = torch.Generator().manual_seed(1)
    layers = {
        name: module
        for name, module in model.named_modules()
        if getattr(getattr(module, "quantization_scheme", None), "weights", None) is not None
    }
    for module in layers.values():
        weights = module.quantization_scheme.weights
        shape, half = module.weight_scale.shape, 1 << weights.num_bits - 1
        module.weight_scale.data = (torch.rand(shape, generator=rng) / 64 + 1e-3).bfloat16()
        if not weights.symmetric:
            points = torch.randint(-half, half, module.weight_zero_point.shape, generator=rng)
            module.weight_zero_point.data = points.to(torch.int8)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(str(folder))
    compressor.decompress_model(model)
    assert len(layers) == 13
    return [Layer(each, {"bf16": numbers(module.weight)}) for each, module in layers.items()]


def _models() -> Iterator[tuple[str, Callable[[Path], list[Layer]]]]:
    floats = TYPES.values()
    for kind, block, dtype in product(("nf4", "fp4"), (32, 64, 128, 256, 512), floats):
        save = partial(_save_bitsandbytes, kind=kind, block=block, dtype=dtype)
        yield f"bitsandbytes: {kind}, {block}, {dtype}", save
    for bits, group, kind in product((1, 2, 4, 8), (32, 64, 128, 256), TYPES):
        yield f"HQQ: {bits}, {group}, {kind}", partial(_save_hqq, bits=bits, group=group, kind=kind)
    for kind in TYPES:
        yield f"MLX: {kind}", partial(_save_mlx, kind=kind)
    for name in _GROUPS:
        yield f"compressed-tensors: {name}", partial(_save_compressed, name=name)


_MODELS = dict(_models())


@pytest.mark.parametrize("name", _MODELS)
def test_a_saved_model_is_read_with_the_numbers_of_its_library(tmp_path: Path, name: str) -> None:
    """Law: all bits of all layers are equal, zeros of either sign apart."""
    layers = _MODELS[name](tmp_path)
    assert layers
    with reorder.open_checkpoint(tmp_path) as checkpoint:
        for layer in layers:
            record = checkpoint.record(layer.name)
            assert layer.desc in {None, record.desc}
            for kind, wanted in layer.wanted.items():
                # FP4 of bitsandbytes has -0 with AVX2 and 0 elsewhere
                assert same(decoded(record, kind), wanted, is_signed="fp4" not in name)


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_scales_of_double_quantisation_are_decoded_first(kind: str) -> None:
    layer = _linear4bit(kind, 64, "bfloat16", nested=True)
    held = {name: each.numpy() for name, each in layer.state_dict().items()}
    state = json.loads(held[f"weight.quant_state.bitsandbytes__{kind}"].tobytes())
    codes, steps = held["weight.absmax"], held["weight.nested_absmax"]
    steps = steps.repeat(state["nested_blocksize"])[: codes.size]
    scales = held["weight.nested_quant_map"][codes] * steps + np.float32(state["nested_offset"])
    desc = record_desc(_DIMS, f"bnb_{kind}")
    record = reorder.records.Record(desc)
    record.set_field("absmax", scales.reshape(desc.field("absmax").layout.dims))
    record.tensors["weight"][:] = held["weight"].reshape(-1)
    for out in TYPES:
        wanted = _of_bitsandbytes(layer, out)
        assert same(decoded(record, out), wanted, is_signed=kind != "fp4")
