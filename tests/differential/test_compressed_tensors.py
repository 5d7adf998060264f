"""compressed-tensors as a judge of its integer formats: tensors, whole models, and transformers.

Models are tiny, with random weights, compressed by `ModelCompressor` and saved by transformers.
They are read and decoded here; those written here are loaded by transformers, which asks
compressed-tensors to decompress them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc.record import record_desc
from tests.records import random_record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from memdesc.record import RecordDesc

pytestmark = [pytest.mark.judges, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")

from compressed_tensors.compressors import BaseCompressor, ModelCompressor  # noqa: E402 - after the skip
from compressed_tensors.quantization import (  # noqa: E402 - likewise
    QuantizationArgs,
    QuantizationConfig,
    QuantizationScheme,
    apply_quantization_config,
)

_KINDS = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
_STRATEGIES: dict[str, dict[str, Any]] = {
    "group": {"strategy": "group", "group_size": 8},
    "channel": {"strategy": "channel"},
    "tensor": {"strategy": "tensor"},
    "block": {"strategy": "block", "block_structure": [4, 8]},
}
_STEPS = {
    "group": {"group": 8},
    "channel": {"group": -1},
    "tensor": {"group": -1, "rows": -1},
    "block": {"group": 8, "rows": 4},
}


def _scheme(form: str, bits: int, strategy: str, *, zeros: bool) -> Any:
    weights = {"num_bits": bits, "type": "int", "symmetric": not zeros, **_STRATEGIES[strategy]}
    return QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights), format=form)


def _torch(record: reorder.records.Record) -> dict[str, Any]:
    """Return the tensors of a record as they lie in a file of compressed-tensors."""
    desc = record.desc
    kinds = {"weight_packed": torch.int32, "weight": torch.int8, "weight_shape": torch.int64}
    kinds["weight_scale"] = _KINDS[desc.field("weight_scale").kind]
    kinds["weight_zero_point"] = torch.int32 if "weight_packed" in desc.tensors else torch.int8
    scales = desc.field("weight_scale").layout.dims
    shapes = {
        "weight_packed": (desc.dims[0], -1),
        "weight": desc.dims,
        "weight_shape": (2,),
        "weight_scale": scales if max(scales) > 1 else (1,),
        "weight_zero_point": (-1, scales[1]) if max(scales) > 1 else (1,),
    }
    return {
        name: torch.from_numpy(data.copy()).view(kinds[name]).reshape(shapes[name])
        for name, data in record.tensors.items()
    }


def _random(desc: RecordDesc) -> reorder.records.Record:
    rng = np.random.default_rng(0)
    record = random_record(desc, rng)
    scale = desc.field("weight_scale")
    values = rng.lognormal(-5, 1, scale.layout.dims) * rng.choice([-1, 1], scale.layout.dims)
    record.set_field("weight_scale", values.astype(scale.desc.dtype.numpy))
    return record


def _bits(values: Any) -> Any:
    """Return bits, so that zeros of either sign differ."""
    found = values if isinstance(values, torch.Tensor) else torch.from_numpy(np.asarray(values))
    return found.float().view(torch.int32)


# compressed-tensors packs zero points of groups and channels only
_COMBINED = [
    (form, bits, strategy, zeros)
    for form, bits in (("pack", 4), ("pack", 8), ("int", 8))
    for strategy in _STRATEGIES
    for zeros in (False, True)
    if form == "int" or not zeros or strategy in {"group", "channel"}
]


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(("form", "bits", "strategy", "zeros"), _COMBINED)
def test_random_tensors_are_decoded_to_the_same_bits(
    form: str, bits: int, strategy: str, kind: str, *, zeros: bool
) -> None:
    name, options = f"{form}_quantized", {"zeros": zeros, "scales": kind, **_STEPS[strategy]}
    options |= {"bits": bits} if form == "pack" else {}
    for dims in ((32, 40), (8, 8), (4, 64), (29, 37)):
        if any(size % 8 for size in dims) and strategy in {"group", "block"}:
            continue
        record = _random(record_desc(dims, name, **options))
        compressor = BaseCompressor.get_value_from_registry(f"{form}-quantized")
        scheme = _scheme(f"{form}-quantized", bits, strategy, zeros=zeros)
        wanted = compressor.decompress(_torch(record), scheme)["weight"]
        assert wanted.dtype == _KINDS[kind]
        made = reorder.dequantize(record, dtype=kind).numpy().astype(np.float32)
        assert torch.equal(_bits(made), _bits(wanted))


def _model(dtype: Any = torch.bfloat16) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=136,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=96,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    return transformers.LlamaForCausalLM(config).to(dtype)


def _produced(folder: Path, groups: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Save a model that compressed-tensors compresses; return the weights that it decompresses."""
    model = _model()
    config = QuantizationConfig(
        config_groups=dict(groups), quantization_status="frozen", **{"ignore": ["lm_head"], **more}
    )
    apply_quantization_config(model, config, show_progress=False)
    rng = torch.Generator().manual_seed(1)
    for module in model.modules():
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is None or scheme.weights is None:
            continue
        shape, half = module.weight_scale.shape, 1 << scheme.weights.num_bits - 1
        module.weight_scale.data = (torch.rand(shape, generator=rng) / 64 + 1e-3).bfloat16()
        if not scheme.weights.symmetric:
            points = torch.randint(-half, half, module.weight_zero_point.shape, generator=rng)
            module.weight_zero_point.data = points.to(torch.int8)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(str(folder))
    compressor.decompress_model(model)
    return {
        name: module.weight.data
        for name, module in model.named_modules()
        if getattr(module, "quantization_scheme", None) is not None and hasattr(module, "weight")
    }


def _group(bits: int, strategy: str, targets: list[str], **more: Any) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": "int", **_STRATEGIES[strategy]}
    return {"targets": targets, "weights": weights | more.pop("weights", {}), **more}


_ASYMMETRIC = {"weights": {"symmetric": False}}
_DYNAMIC = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
_CONFIGS: dict[str, dict[str, Any]] = {
    "w4 groups": {"g": _group(4, "group", ["Linear"])},
    "w4 groups, zero points": {"g": _group(4, "group", ["Linear"], **_ASYMMETRIC)},
    "w8 channels, zero points": {"g": _group(8, "channel", ["Linear"], **_ASYMMETRIC)},
    "w8a8": {"g": _group(8, "channel", ["Linear"], input_activations=_DYNAMIC)},
    "mixed": {
        "first": _group(4, "group", ["re:.*mlp.(gate|up)_proj$"]),
        "second": _group(8, "channel", ["re:.*down_proj", "model.layers.0.self_attn.q_proj"]),
        "third": _group(8, "tensor", ["Linear"], input_activations=_DYNAMIC),
    },
}


@pytest.mark.parametrize("name", _CONFIGS)
def test_models_of_the_producer_are_decoded_to_the_same_bits(tmp_path: Path, name: str) -> None:
    ignored = ["lm_head", "re:.*layers.1.*k_proj"]
    weights = _produced(tmp_path / "in", _CONFIGS[name], ignore=ignored)
    assert len(weights) == 13
    with reorder.open_checkpoint(tmp_path / "in") as checkpoint:
        for layer, wanted in weights.items():
            made = reorder.dequantize(checkpoint.record(layer), dtype="bf16").numpy()
            assert torch.equal(_bits(made.astype(np.float32)), _bits(wanted))


def _logits(folder: Path, **options: Any) -> Any:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, **options)
    with torch.no_grad():
        return model(torch.arange(24)[None]).logits.float()


def test_a_model_with_several_groups_gives_the_same_logits_as_bf16(tmp_path: Path) -> None:
    groups = {name: dict(group) for name, group in _CONFIGS["mixed"].items()}
    del groups["third"]["input_activations"]  # transformers would quantise the activations too
    _produced(tmp_path / "in", groups)
    reorder.convert(tmp_path / "in", tmp_path / "out", to="bf16")
    assert torch.equal(_logits(tmp_path / "out"), _logits(tmp_path / "in"))


def _saved(folder: Path, name: str, *, plain: bool, **options: Any) -> None:
    """Save a model with a record of random codes for each layer, or with their numbers."""
    model, rng = _model(), np.random.default_rng(0)
    model.save_pretrained(folder)
    tensors: dict[str, Any] = {each: value.detach() for each, value in model.state_dict().items()}
    for each in [each for each in tensors if each.endswith("_proj.weight")]:
        dims = tuple(tensors.pop(each).shape)
        turns = name == "gptq"
        desc = record_desc(dims[::-1] if turns else dims, name, **options)
        record = random_record(desc, rng)
        scale = desc.field(desc.rule.scale[0].parts[0][0])
        values = rng.random(scale.layout.dims) / 64 + 1e-3
        record.set_field(scale.name, values.astype(scale.desc.dtype.numpy))
        if desc.rule.zero is None:  # codes of f8, without NaN
            record.set_field("weight", rng.standard_normal(dims).astype("float8_e4m3fn"))
        elif options.get("zeros") != "v2":
            half = np.full(desc.field("qzeros").layout.dims, (1 << options["bits"] - 1) - 1)
            record.set_field("qzeros", half)
        made = reorder.dequantize(record, dtype="bf16" if turns else "f32").numpy()
        numbers = reorder.reorder(np.ascontiguousarray(made.T if turns else made), "ab")
        tensors |= {each: numbers} if plain else {each.removesuffix(".weight"): record}
    reorder.save(folder / "model.safetensors", tensors)


@pytest.mark.parametrize("bits", [4, 8])
def test_models_written_here_give_the_logits_of_the_numbers(tmp_path: Path, bits: int) -> None:
    for plain in (False, True):
        folder = tmp_path / ("plain" if plain else "gptq")
        _saved(folder, "gptq", plain=plain, group=8, bits=bits, scales="bf16")
    wanted = _logits(tmp_path / "plain")
    rule = f"*: gptq(bits={bits}) -> pack_quantized"
    reorder.convert(tmp_path / "gptq", tmp_path / "packed", map=[rule])
    config = json.loads((tmp_path / "packed/config.json").read_text())
    assert config["quantization_config"]["format"] == "pack-quantized"
    assert torch.equal(_logits(tmp_path / "packed"), wanted)
    reorder.convert(
        tmp_path / "packed", tmp_path / "ints", map=["*: pack_quantized -> int_quantized"]
    )
    assert torch.equal(_logits(tmp_path / "ints"), wanted)
    some = "*mlp*: pack_quantized -> int_quantized", "*attn*: pack_quantized -> pack_quantized"
    reorder.convert(tmp_path / "packed", tmp_path / "mixed", map=some)
    config = json.loads((tmp_path / "mixed/config.json").read_text())
    assert config["quantization_config"]["format"] == "mixed-precision"
    assert torch.equal(_logits(tmp_path / "mixed"), wanted)


@pytest.mark.parametrize("name", ["fp8_block", "fp8_channel", "fp8_tensor"])
def test_fp8_written_here_gives_the_logits_of_the_numbers_in_f32(tmp_path: Path, name: str) -> None:
    # one block for most of the layers, which are smaller
    for plain in (False, True):
        _saved(tmp_path / ("plain" if plain else "in"), name, plain=plain)
    config = json.loads((tmp_path / "in/config.json").read_text())
    config["quantization_config"] = {"quant_method": "compressed-tensors"}
    (tmp_path / "in/config.json").write_text(json.dumps(config))
    reorder.convert(tmp_path / "in", tmp_path / "out", map=[f"*: {name} -> {name}"])
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["quantization_config"]["format"] == "float-quantized"
    found, wanted = (_logits(tmp_path / each, dtype=torch.float32) for each in ("out", "plain"))
    assert torch.equal(found, wanted)
