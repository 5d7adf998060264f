"""Whole models that become another format: their tensors, config.json, and what is refused."""

import json
import textwrap
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc import MemdescError
from memdesc.record import record_desc
from reorder.checkpoints.convert.targets import TARGETS
from reorder.checkpoints.formats.table import read_container
from reorder.checkpoints.weights import Model
from tests.checkpoints import awq_layer, fp8_layer, gptq_layer, write_safetensors
from tests.unit.reorder.checkpoints.convert.results import SMALL, convert, refused, words_of
from tests.unit.reorder.checkpoints.schemes import (
    EXPERTS,
    Weight,
    compressed,
    deepseek_fp4,
    fp8,
    mlx,
    mxfp4,
    numbers_in,
    nvfp4,
    recorded,
)

Tensors = dict[str, NDArray[Any]]


_BF16 = ml_dtypes.bfloat16
_FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm"}
_GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False}
_GROUPS: dict[str, Any] = {"type": "int", "num_bits": 4, "strategy": "group", "group_size": 64}
_BESIDE: Tensors = {
    "model.embed_tokens.weight": np.full((8, 128), 0.1, _BF16),
    "model.layers.0.input_layernorm.weight": np.full(128, 3e38, np.float32),
    "lm_head.weight": np.full((8, 128), -0.7, _BF16),
}


def _model(
    folder: Path,
    layer: Tensors,
    section: dict[str, Any] | None,
    beside: Tensors = _BESIDE,
    **config: Any,
) -> Path:
    """Write a model of two quantised layers and some other tensors."""
    folder.mkdir()
    tensors = {f"model.layers.{k}.mlp.{n}": x for k in range(2) for n, x in layer.items()}
    write_safetensors(folder / "model.safetensors", tensors | beside, {"format": "pt"})
    if section is not None:
        config["quantization_config"] = section
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text('{"a": 1}')
    (folder / "generation_config.json").write_text("{}")
    return folder


def _compressed(strategy: str, **more: Any) -> dict[str, Any]:
    weights = {"type": "float", "num_bits": 8, "strategy": strategy, **more}
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


def _made(
    source: Path,
    target: Path,
    to: str | None,
    *rules: str,
    settings: reorder.checkpoints.ConvertOptions = SMALL,
) -> tuple[Tensors, dict[str, Any], reorder.checkpoints.ConvertReport]:
    """Convert; returns the words of all tensors, config.json and the report."""
    report = reorder.convert(source, target, map=rules, options=settings, to=to)
    return words_of(target), json.loads((target / "config.json").read_text()), report


def _refused(source: Path, to: Any, *rules: str, target: str = "out") -> str:
    return refused(source, source.parent / target, *rules, to=to)


def _mlx_model(folder: Path, beside: Tensors) -> list[NDArray[Any]]:
    """Write a model of MLX with a layer and three experts in a stack; returns their numbers."""
    made = [mlx(seed=seed) for seed in range(4)]
    layers = [{end.removeprefix("."): x for end, x in layer.items()} for layer, _ in made]
    stack = "model.layers.0.mlp.switch_mlp.up_proj"
    tensors = {f"{stack}.{end}": np.stack([each[end] for each in layers[1:]]) for end in layers[0]}
    tensors |= {f"model.layers.0.self_attn.q_proj.{end}": x for end, x in layers[0].items()}
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors | beside)
    own = {"group_size": 64, "bits": 4}  # a stack by its own name
    section = {"group_size": 64, "bits": 8, stack: own, "model.layers.0.self_attn.q_proj": own}
    (folder / "config.json").write_text(json.dumps({"quantization": section}))
    return [numbers for _, numbers in made]


def test_experts_that_mlx_has_in_a_tensor_become_several(tmp_path: Path) -> None:
    first, *experts = _mlx_model(tmp_path / "in", _BESIDE)
    found, config, _ = _made(tmp_path / "in", tmp_path / "out", "bf16")
    wanted = {f"mlp.experts.{k}.up_proj": x for k, x in enumerate(experts)}
    for name, numbers in {"self_attn.q_proj": first, **wanted}.items():
        made = found.pop(f"model.layers.0.{name}.weight")
        assert made.tobytes() == numbers.astype(_BF16).tobytes()
    assert found.keys() == _BESIDE.keys()
    assert config == {"torch_dtype": "bfloat16"}


def test_models_that_mlx_stores_otherwise_are_refused(tmp_path: Path) -> None:
    name = "model.layers.0.linear_attn.conv1d.weight"
    _mlx_model(tmp_path / "in", {name: np.ones((8, 4, 1), np.float32)})
    said = _refused(tmp_path / "in", "bf16")
    assert f"{name} of shape (8, 4, 1) has other axes in MLX than in transformers" in said
    assert _refused(tmp_path / "in", "mlx").endswith("and mlx_lm.convert quantises that")


_LAYERS = {
    "q_proj.weight": (256, 384),
    "q_proj.bias": (256,),
    "out_proj.weight": (128, 128),
    "experts.0.up_proj.weight": (256, 128),
    "kv_a_proj.weight": (192, 384),
    "gate.weight": (128, 384),
    "ffn_router.weight": (128, 384),
    "embed_positions.weight": (128, 384),
    "lm_head.weight": (128, 384),
    "input_layernorm.weight": (384,),
    "q_proj.lora_A.weight": (128, 384),
    # what transformers or vLLM do not expect in FP8
    "eh_proj.weight": (128, 256),
    "shared_head.head.weight": (256, 128),
    "indexer.weights_proj.weight": (128, 128),
    "compressor.wkv.weight": (128, 128),
    "DenseReluDense.wo.weight": (128, 128),
    "qformer.layer.0.query.weight": (128, 128),
    "mixer.dt_proj.weight": (256, 128),
    "query.weight": (128, 128),
    "query.weight_integer": (128, 128),
    "attn.in_proj_weight": (384, 128),
    "attn.out_proj.weight": (128, 128),
}
_QUANTISED = ("q_proj", "experts.0.up_proj", "out_proj")


def _floats(kind: Any, layers: dict[str, tuple[int, ...]] = _LAYERS) -> Tensors:
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal(dims, np.float32).astype(kind) for name, dims in layers.items()
    }


@pytest.mark.parametrize("kind", [np.float32, np.float16, _BF16])
def test_layers_of_floats_become_blocks_of_fp8(tmp_path: Path, kind: Any) -> None:
    layers = _floats(kind)
    layers["q_proj.weight"][:128, 128:256] = 0
    beside = _floats(kind, {"wte.weight": (256, 128), "visual.0.conv.weight": (128, 128, 2)})
    source = _model(tmp_path / "in", layers, None, beside, dtype="bfloat16")
    found, config, report = _made(source, tmp_path / "out", "fp8-block")
    kept = {f"model.layers.{k}.mlp.{name}": x for k in range(2) for name, x in layers.items()}
    kept |= beside
    for name in _QUANTISED:
        weight = layers[f"{name}.weight"].astype(np.float32)
        blocks = weight.reshape(weight.shape[0] // 128, 128, -1, 128)
        largest = abs(blocks).max((1, 3), keepdims=True)
        scales = np.where(largest > 0, largest / np.float32(448), np.float32(1))
        codes = (blocks / scales).astype(ml_dtypes.float8_e4m3fn)
        decoded = (codes.astype(np.float32) * scales).reshape(weight.shape)
        assert not np.array_equal(decoded, weight)
        for prefix in (f"model.layers.{k}.mlp.{name}" for k in range(2)):
            kept |= {f"{prefix}.weight": codes, f"{prefix}.weight_scale_inv": scales}
            assert np.array_equal(numbers_in(tmp_path / "out", prefix), decoded)
    assert {name: x.tobytes() for name, x in found.items()} == {
        name: x.tobytes() for name, x in kept.items()
    }
    quantised = {f"model.layers.{k}.mlp.{name}" for k in range(2) for name in _QUANTISED}
    names = (name for name, x in kept.items() if x.ndim == 2 and name.endswith(".weight"))
    matrices = {name.removesuffix(".weight") for name in names}
    section = config.pop("quantization_config")
    assert {*section.pop("modules_to_not_convert")} == matrices - quantised | {"lm_head"}
    assert section == _FP8 | {"activation_scheme": "dynamic", "scale_fmt": "float"}
    assert config == {"dtype": "bfloat16"}
    assert report.converted == 6
    short = {np.float32: "f32", np.float16: "f16", _BF16: "bf16"}[kind]
    rounded, left = report.warnings
    assert rounded.startswith(
        f"weights of {short} are rounded to fp8_block, 6 in all, with a scale"
    )
    assert left == (
        "model.layers.0.mlp.kv_a_proj.weight, model.layers.1.mlp.kv_a_proj.weight stay floats: "
        "blocks of 128 x 128 do not cover them"
    )


def test_what_comfyui_notes_in_a_header_is_refused(tmp_path: Path) -> None:
    source, tensors = tmp_path / "x.safetensors", {f"q{end}": x for end, x in nvfp4()[0].items()}
    write_safetensors(source, tensors, {"_quantization_metadata": "{}"})
    problem = "the header has _quantization_metadata, by which ComfyUI may order scales"
    for given in ({"to": "bf16"}, {"map": ["q: modelopt_nvfp4 -> plain, bf16"]}):
        with pytest.raises(MemdescError, match=problem):
            reorder.convert(source, tmp_path / "out.safetensors", **given)


def _bits(width: int) -> Tensors:
    """Return a layer of GPTQ with all codes and zero points 0."""
    return {
        "qweight": np.zeros((128 * width // 32, 256), np.int32),
        "qzeros": np.zeros((2, 256 * width // 32), np.int32),
        "scales": np.zeros((2, 256), np.float16),
    }


def test_a_rule_quantises_floats_to_a_record(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((128, 192), np.float32)
    source, target = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    write_safetensors(source, {f"fc{k}.weight": weight for k in (1, 128, 6)})
    rules = ("fc1.*: fp8_tensor", "fc128.*: fp8_channel", "fc6.*: fp8_block(block=64)")
    convert(source, target, *rules)
    for name, made in reorder.load_all(target, reorder.records.Record).items():
        assert name == f"fc{len(made.tensors['weight_scale'].view(np.float32))}"
        # the largest weight of each group becomes the largest code
        assert (abs(reorder.dequantize(made).numpy() - weight) <= abs(weight) / 16 + 1e-4).all()


# Lines that are not indented are parts of what the call below them says, in this order, or after !
# what it does not say: why a model is refused, or the config.json and the warnings of the output.
# Calls after it work. A line that is indented further continues the one before it.
_TABLE = """
holds 'model.layers.0.mlp.experts.0.up_proj.weight', which is also a tensor
    refused(awq(), AWQ, "f16", {L0 + "switch_mlp.up_proj.weight": ones(2, 4, 4),
        L0 + "experts.0.up_proj.weight": ones(4, 4)})
-> pack_quantized(zeros=False), symmetric as config.json says': model.layers.0
zero point 8, but the code at (0,
    refused(awq(zeros=(0, 16)), AWQ | {"zero_point": False}, "compressed-tensors")
mlp.perm is beside the codes of model.layers.1.mlp, and may
    refused(gptq(), GPTQ, "f16", {"model.layers.1.mlp.perm": ones(128)})
    made(gptq(), GPTQ, "f16", {"model.layers.1.mlp.bias": ones(128)})
mlp.smooth_factor is beside the codes of model.layers.1.mlp, and may
    refused(gptq(), GPTQ, "f16", {"model.layers.1.mlp.smooth_factor": ones(128)})
cannot say that model.embed_tokens is
: loaders of gptq do not expect embeddings to be quantised;
--map 'model.embed_tokens: awq -> plain(axes=oi), bf16' decodes it
    refused(awq(), AWQ, "gptq", under("model.embed_tokens", awq()))
    made(awq(), AWQ, "gptq", under("model.embed_tokens", awq()),
        "model.embed_tokens: awq -> plain(axes=oi), bf16")
: loaders of compressed-tensors do not expect embeddings to be quantised;
    refused(awq(zeros=(8, 9)), AWQ, "compressed-tensors", under("model.embed_tokens", awq()))
c_fc.weight of shape (128, 512) with a bias of shape (512,) has its outputs las
    refused({"c_fc.weight": ones(128, 512), "c_fc.bias": ones(512)}, None, "fp8-block")
    made({"c_fc.weight": ones(512, 128), "c_fc.bias": ones(512)}, None, "fp8-block")
norm.scale is called like scales of codes, and transformers would take it for that
    refused({"up.weight": ones(128, 128), "norm.scale": ones(128)}, None, "fp8-block")
    made({"up.weight": ones(128, 128), "norm.scales": ones(128)}, None, "fp8-block")
up.weight: x[3, 4] is nan; only finite values can be quantised
    refused({"up.weight": nan_at(3, 4)}, None, "fp8-block")
not 'u8'; give scales= if the words hold one of these
    refused(fp8() | {"weight_scale_inv": np.full((2, 1), 127, "u1")}, FP8, "bf16")
do not cover model.layers.0.mlp.experts.0.up_proj.weight of shape (96, 128)
    refused({"experts.0.up_proj.weight": ones(96, 128), "o_proj.weight": ones(128, 128)}, None,
        "fp8-block")
experts.0.up and model.layers.2.mlp.experts.0.down have different formats
    refused(gptq(), GPTQ | {"dynamic": {r"+:.*[.]down": {"bits": 8}}}, "compressed-tensors",
        under(L2 + "experts.0.up", bits(4)) | under(L2 + "experts.0.down", bits(8)))
    made(gptq(), GPTQ | {"dynamic": {r"+:.*[.]down": {"bits": 8}}}, "f16",
        under(L2 + "experts.0.up", bits(4)) | under(L2 + "experts.0.down", bits(8)))
"targets": ["model.layers.0.mlp", "model.layers.1.mlp", "model.layers.2.mlp.q"]
"targets": ["re:.*\\\\.experts\\\\.[0-9]+\\\\..*"], "weights": {"num_bits": 8
    made(gptq(), GPTQ | {"dynamic": {r"+:.*[.]up": {"bits": 8}}}, "compressed-tensors",
        under(L2 + "experts.0.up", bits(8)) | under(L2 + "q", bits(4)))
"targets": ["re:.*\\\\.experts\\\\.[0-9]+\\\\..*"], "weights": {"num_bits": 4
"targets": ["model.layers.2.mlp.q"], "weights": {"num_bits": 8
    made(under("experts.0.up", gptq()), GPTQ | {"dynamic": {r"+:.*[.]q": {"bits": 8}}},
        "compressed-tensors", under(L2 + "q", bits(8)))
"targets": ["model.layers.0.mlp", "model.layers.1.mlp",
"re:(.*\\\\.)?model\\\\.layers\\\\.0\\\\.mlp$", "re:(.*\\\\.)?1\\\\.mlp$"]
"targets": ["model.layers.2.mlp.q", "re:(.*\\\\.)?q$"]
    made(gptq(), GPTQ | {"dynamic": {r"+:.*[.]q": {"bits": 8}}}, "compressed-tensors",
        under(L2 + "q", bits(8)) | {"vision.layers.0.mlp.weight": ones(4, 128)},
        config={"text_config": {"model_type": "llama"}})
"format": "mixed-precision", "config_groups": {"group_0": {"targets": ["model.layers.0.mlp"]
"targets": ["model.layers.1.mlp"], "weights": {"num_bits": 8
    made(awq(zeros=(8, 9)), AWQ, "compressed-tensors", {}, "*.1.mlp: awq -> int_quantized")
would list proj as not quantised, in modules_to_not_convert, and transformers
finds that name in model.layers.0.mlp.up_proj, so it would load the codes
    refused(under("up_proj", fp8_tensor()), compressed("tensor"), "fp8-block",
        {"proj.weight": ones(128, 128)})
    made(under("up_proj", fp8_tensor()), compressed("tensor"), "bf16",
        {"proj.weight": ones(128, 128)})

# rules that leave a target nothing
rule '--to bf16: fp8_block -> plain, bf16': later rules leave it nothing to convert;
    refused(fp8(), FP8, "bf16", {}, "*: rename=x.*")
    made(fp8(), FP8, "bf16", {}, "*.0.mlp*: rename=*.3.mlp*", same=False)
    made(fp8(), FP8, None, {}, "*: rename=x.*", same=False)
    made(fp8(), FP8, "bf16", {}, "*: fp8_block -> ba, bf16", same=False)
rule '--to bf16: floats -> bf16': later rules leave it nothing to convert; leave out --to
    refused({"up.weight": ones(4, 4)}, None, "bf16", {}, "*norm.weight: rename=*norm.scale")
    made({"up.weight": ones(4, 4)}, None, "bf16", {}, "*norm.weight: a, bf16, rename=*norm.scale")
rule '--to bf16: fp8_block -> plain, bf16': later rules leave it nothing to convert; leave out --to
    refused(fp8(), FP8, "bf16", {}, "*: fp8_block -> plain, f32")
rule '--to fp8-block: floats -> fp8_block(scale_inv=True)': later rules leave it nothing to convert
    refused({"up.weight": ones(128, 128)}, None, "fp8-block", {}, "*.weight: f16")
    made({"up.weight": ones(128, 128)}, None, "fp8-block", {}, "*.0.mlp.*: f16", same=False)

# what is damaged, or not compressed yet
down.weight holds codes of f8_e4m3, but nothing beside it scales them
    refused({"down.weight": fp8()["weight"], "up.weight": ones(128, 128)}, FP8, "fp8-block")
experts.down_proj holds codes of f8_e4m3, but nothing beside it scales them
    refused({"experts.down_proj": fp8()["weight"][None], "up.weight": ones(128, 128)}, None,
        "fp8-block")
experts.down_proj holds codes of f8_e4m3, but nothing beside it scales them
    refused({"experts.up_proj": fp8()["weight"][None], "experts.down_proj": fp8()["weight"][None],
        "experts.up_proj_scale_inv": fp8()["weight_scale_inv"][None]}, FP8, "bf16")
experts.down_proj_scale_inv scales a weight, as other tensors of that name do, but there is no
    refused({f"experts.{name}_proj{end}": fp8()[f"weight{end}"][None] for name, end in
        (("up", ""), ("up", "_scale_inv"), ("down", "_scale_inv"))}, FP8, "bf16")
experts.down_proj_blocks holds codes of u8, but nothing beside it scales them
    refused({"experts.down_proj_blocks": np.ones((2, 64, 2, 16), np.uint8)},
        {"quant_method": "mxfp4"}, "bf16")
up.weight holds plain bf16, but model.layers.0.mlp.up.weight_scale is beside it
    refused({"up.weight": ones(128, 128), "up.weight_scale": ones(128, 1)},
        compressed("channel") | {"quantization_status": "frozen"}, "fp8-block")
up.weight holds plain bf16, but model.layers.0.mlp.up.pre_quant_scale is beside
    refused(under("down", nvfp4()) | {"up.weight": ones(128, 128), "up.pre_quant_scale": ones(128)},
        NVFP4, "bf16")

# what a target does not hold
--to fp8-block: model.layers.0.mlp is awq, and --to fp8-block takes only fp8_block, fp8_tensor;
--to bf16 and --to f16 decode any, and
--map 'model.layers.0.mlp: awq -> RECORD' tries any record
    refused(awq(zeros=(0, 2)), AWQ, "fp8-block")
with codes of f8_e4m3, not f8_e5m2; --to
    refused(fp8_tensor("float8_e5m2"), {"quant_method": "fp8", "fmt": "e5m2"}, "fp8-block")
with codes of f8_e4m3, not f8_e5m2; --to
    refused(fp8_tensor("float8_e5m2"), {"quant_method": "fp8", "fmt": "e5m2"}, "compressed-tensors")
with codes of u4, not u8; --to bf16
    refused(bits(8), GPTQ | {"bits": 8}, "awq")

# keys that change the meaning of weights
config.json says transform_config {'config_groups': {'R1': {'type': 'hadamard'}}}, which rotates we
    refused(fp8(), FP8 | {"transform_config": ROTATED}, "bf16")
config.json says sparsity_config {'format': 'sparse-24-bitmask'}, which stores sparse weights
    refused(fp8(), FP8 | {"sparsity_config": {"format": "sparse-24-bitmask"}}, "bf16")
config.json says adapter {'rank': 8}, which adds a low-rank adapter
    refused(fp8(), FP8 | {"adapter": {"rank": 8}}, "bf16")
config.json says rotation 'hadamard', which rotates weights
    refused(fp8(), FP8 | {"rotation": "hadamard"}, None, {}, "*: fp8_block -> plain, bf16")
config.json says expert_dtype 'nf4', which stores experts in another type
    refused(fp8(), FP8 | {"expert_dtype": "nf4"}, "bf16")

# files of other programs are read where config.json declares nothing
"torch_dtype": "bfloat16"
    made(gptq(), GPTQ | {"checkpoint_format": "gptq_v2"}, "bf16", old={"desc_act": True})
quantize_config.json says checkpoint_format 'gptq_v2', but config.json None; correct the one
    refused(gptq(), GPTQ, "bf16", old={"checkpoint_format": "gptq_v2"})
but config.json 'gptq_v2'; correct the one
    refused(gptq(), GPTQ | {"format": "gptq_v2"}, "bf16", old={"format": "gptq"})
declares group_size 32, but the shapes
    refused(gptq(), None, "f16", old={"bits": 4, "group_size": 32})
says rotation 'hadamard', which
    refused(gptq(), None, "f16", old={"bits": 4, "rotation": "hadamard"})
quantize_config.json ignores model.layers.0.mlp, by 'mlp'
    refused(gptq(), None, "f16", old={"modules_to_not_convert": ["mlp"]})
--to bf16: model.layers.1.mlp is not known: config.json ignores model.layers.1
    refused(modelopt(), {"quant_method": "modelopt", "quant_algo": "FP8",
        "exclude_modules": ["*layers.1*", "lm_head"]}, "bf16")
model.layers.1.mlp is not known: hf_quant_config.json ignores model.layers.1
    refused(modelopt(), None, "bf16", old={"producer": {"name": "modelopt"}, "quantization":
        {"quant_algo": "FP8", "exclude_modules": ["model.layers.1.*"]}}, named="hf_quant_config")

# what is not known
--to bf16: model.layers.0.mlp.fc is not known: nothing declares what 'model.layers.0.mlp.fc' holds:
! give the name
    refused(under("fc", nvfp4() | {"comfy_quant": np.ones(8, "u1")}), None, "bf16")
fc.comfy_quant belong to model.layers.0.mlp.fc.weight, and
    refused(under("fc", {"weight": np.ones((8, 256), "i1"), "weight_scale": ones(8, 1),
        "comfy_quant": np.ones(8, "u1")}), None, None, {}, "*.fc: int_quantized -> plain, bf16")
model.layers.0.mlp._weight is not known
there is no record for quant_method 'torchao'
    refused({"_weight_qdata": np.zeros((16, 2, 32, 4), "i4"), "up.weight": ones(128, 128),
        "_weight_scale_and_zero": ones(2, 128, 2)}, {"quant_method": "torchao"}, "fp8-block")
no target 'fp4'; the targets are bf16, f16, fp8-block
    refused(fp8(), FP8, "fp4")
there is no target 3
    refused(fp8(), FP8, 3)
; did you mean f16
    refused(fp8(), FP8, "float16")
    made(fp8(), FP8, "f16")
--to bf16: model.layers.0.mlp is not known: nothing declares what
; 1 more like it; --map
    refused(fp8(), None, "bf16")
none is quantised, and in its numbered blocks there is no matrix of floats
    refused({"weight": ones(4, 4)}, None, "fp8-block")
none is quantised; GPTQModel quantises floats
    refused({"weight": ones(4, 4)}, None, "awq")
model.layers.2.mlp.weight holds codes of f8_e4m3, but nothing beside it scales
    refused(fp8(), FP8, "bf16", {L2 + "weight": fp8()["weight"]})
model.layers.2.mlp.weight_scale_inv scales a weight, as other tensors of that
name do, but there is no model.layers.2.mlp.weight; if that is damage, get the checkpoint
    refused(fp8(), FP8, "bf16", {L2 + "weight_scale_inv": np.ones((2, 1), "f4")})
(act-order), which no record holds
    refused(gptq(), GPTQ, "gptq", {L0 + "g_idx": reversed_groups()})
    made(gptq(), GPTQ, "f16", {L0 + "g_idx": reversed_groups()})
(act-order), which no record holds
    refused(gptq(), GPTQ, "compressed-tensors", {L0 + "g_idx": reversed_groups()})
is a GGUF, whose tensors have the names of llama.cpp, which loaders of
    refused_file("gguf", q4_0(), "bf16")
is a GGUF, whose tensors have the names of llama.cpp, which loaders of
    refused_file("gguf", np.ones((128, 128), "f4"), "fp8-block")
they are blocks of q4_0; --map '*: bf16' decodes them
    refused_file("npz", q4_0(), "bf16")

# numbers that are lost
although codes are finite
    refused(overflowing(), FP8, "bf16")
become inf
    refused(overflowing(), FP8, "f16")
model.layers.0.mlp:
would become inf in f16, whose largest number is 65504, and so do
more near it; bf16 and f32 hold it
    refused(scaled(1e6), FP8, "f16")
    made(scaled(1e6), FP8, "bf16")
model.layers.0.mlp: all numbers would become 0 in f16: the largest is
; bf16 and f32 hold it
    refused(scaled(1e-11), FP8, "f16")
    made(scaled(1e-11), FP8, "bf16")
model.layers.0.mlp: qzeros of u4 is 15 at (1, 16), and 1 of 512 read with it are a zero point
GPTQModel writes it, a 0 that also lowers the next one by 1; save the model with
    refused(borrowed(), GPTQ, "f16")
model.layers.0.mlp: qzeros of u4 is 15 at (1, 16), and 1 of 512 read with it are a zero point
    refused(borrowed(), GPTQ, "awq")

# what a record does not have
64 does not divide b (dim 1) of size 96
    refused_file("npz", np.ones((192, 96), "f4"), None, "*: fp8_block(block=64)")

# what config.json says of the output, and the warnings
and the KV cache: model.layers.0.mlp.input_scale_ub
! <model.layers.0.mlp.input_scale_ub>
    made(channels("input_scale_ub"), FBGEMM, "bf16")
and the KV cache: model.layers.0.mlp.output_scale
! <model.layers.0.mlp.output_scale>
    made(channels("output_scale"), FBGEMM, None, {}, "*: fp8_channel -> plain, bf16")
<model.layers.0.mlp.input_scale_ub>
    made(channels("input_scale_ub"), FBGEMM, None, {}, "*: fp8_channel -> fp8_channel(scales=bf16)")
<model.layers.0.mlp.input_scale_ub>
    made(channels("input_scale_ub"), FBGEMM, None, {}, "*: fp8_channel -> ab, f32", "*_ub: f16")
"ignore": ["lm_head", "model.layers.0.mlp", "model.embed_tokens"]
    made(pack(), PACK, None, {}, "*.0.mlp: pack_quantized -> plain, f16")
"model.layers.0.mlp": false
    made(mlx(), None, None, {}, "*.0.mlp: mlx -> plain, f16",
        config=quantization(4, **{"model.layers.0.mlp": {"bits": 4, "group_size": 64}}))
"targets": ["Linear"]
"ignore": ["model.embed_tokens", "lm_head", "vision.layers.0.mlp", "projector.linear",
"language_model.model.layers.0.router", "re:(.*\\\\.)?embed_tokens$", "re:(.*\\\\.)?lm_head$",
"re:(.*\\\\.)?vision\\\\.layers\\\\.0\\\\.mlp$", "re:(.*\\\\.)?linear$", "re:(.*\\\\.)?router$"]
    made(awq(), AWQ, "compressed-tensors", {f"{name}.weight": ones(4, 128) for name in PARTS},
        config={"text_config": {"model_type": "llama"}})
"quant_method": "fp8"
    made(fp8(), FP8 | {"quant_method": "FP8"}, "fp8-block")
"quant_method": "fp8"
does not load parts of blocks of FP8 without a GPU, or computes wrong
and the KV cache: model.layers.0.mlp.input_scale, model.layers.1.mlp.input_scale
! input_scale>
    made(rows(192, 2) | {"input_scale": ones(1)}, compressed("block", block_structure=[128, 128]),
        "fp8-block")
does not load parts of blocks
    made(rows(192), compressed("tensor"), "fp8-block")
! parts of blocks
    made(rows(256, 2), compressed("block", block_structure=[128, 128]), "fp8-block")
! parts of blocks
    made(rows(64), compressed("tensor"), "fp8-block")
weights of fp8_block are rounded to bf16
    made(scaled(0.5), FP8, "bf16")
! are rounded to
    made(powers(), FP8, "bf16")
are rounded to f16
    made(powers(), FP8, "f16")
"quant_method": "gptq", "sym": false, "checkpoint_format": "gptq_v2", "bits": 4, "group_size": 64,
"desc_act": false
vLLM 0.10 takes zero points of version 2 of GPTQ for version 1
    made(awq(zeros=(0, 16)), AWQ, "gptq")
"quant_method": "awq", "zero_point": true, "version": "gemm", "bits": 4, "group_size": 64,
"modules_to_not_convert": ["model.embed_tokens", "lm_head"]
    made(gptq(), GPTQ, "awq")
"format": "pack-quantized", "config_groups": {"group_0": {"targets": ["Linear"], "weights":
"num_bits": 4, "dynamic": false, "type": "int", "symmetric": false,
"ignore": ["model.embed_tokens", "lm_head"]
does not load zero points of pack-quantized, or computes
    made(awq(zeros=(0, 16)), AWQ, "compressed-tensors")
"sym": true, "checkpoint_format": "gptq", "bits": 4, "group_size": 64, "desc_act": false
! zero points
    made(awq(zeros=(8, 9)), AWQ | {"zero_point": False}, "gptq")
"symmetric": true
    made(awq(zeros=(8, 9)), AWQ | {"zero_point": False}, "compressed-tensors")
and the KV cache: model.layers.0.mlp.workspace
    made(awq(zeros=(8, 9)), AWQ, "f16", {L0 + "workspace": np.zeros(32, "i4")})
and the KV cache: model.layers.0.mlp.workspace
    made(awq(zeros=(8, 9)), AWQ, None, {L0 + "workspace": np.zeros(32, "i4")}, "*: awq -> gptq")
and the KV cache: model.layers.0.self_attn.k_scale, model.layers.0.self_attn.v_scale
! kv_cache
    made(fp8_tensor(), compressed("tensor") | {"kv_cache_scheme": {"num_bits": 8}}, "fp8-block",
        under("model.layers.0.self_attn", {"k_scale": ones(1), "v_scale": ones(1)}))
does not load experts of gptq, or computes wrong numbers from them; GPTQModel
    made(awq(), AWQ, "gptq", under(L0 + "experts.0.up", awq()))
! experts
    made(nvfp4(), NVFP4, "compressed-tensors")
does not load experts of compressed_nvfp4, or computes wrong
    made(under("experts.0.up", nvfp4()), NVFP4, "compressed-tensors")
"checkpoint_format": "gptq",
    made(gptq(), GPTQ | {"checkpoint_format": "gptq_v2"}, None, {},
        "*: gptq(zeros=v1) -> gptq(zeros=v1, scales=f32)", same=False)
"quant_method": "fp8", "activation_scheme": "dynamic", "scale_fmt": "ue8m0", "weight_block_size":
[128, 128], "fmt": "e4m3", "modules_to_not_convert": ["model.embed_tokens", "lm_head"]
    made(powers(), None, None, {},
        "*: fp8_block(scale_inv=true, block=128) -> fp8_block(scale_inv=true, scales=e8m0)")
"weight_block_size": null
    made({"weight": fp8()["weight"][:128], "weight_scale_inv": np.ones((1, 1), "f4")}, FP8, None,
        {}, "*: fp8_block(scale_inv=true) -> fp8_tensor(scale_inv=true)")
"scale_fmt": "ue8m0"
    made(powers(), FP8 | {"scale_fmt": "ue8m0"}, None, {},
        "*: fp8_block(scale_inv=true) -> fp8_block(scale_inv=true)")
"scale_fmt": "float"
    made(powers(), FP8 | {"scale_fmt": "ue8m0"}, None, {},
        "*: fp8_block(scale_inv=true) -> fp8_block(scale_inv=true, scales=f32)")
"dynamic": {"+:.*q": {"bits": 8}}
    made(gptq(), GPTQ | {"dynamic": {"+:.*q": {"bits": 8}}}, "gptq", under(L2 + "q", bits(8)))
"dynamic": {"-:^model\\\\.layers\\\\.0\\\\.mlp\\\\.gate$": {},
"+:^model\\\\.layers\\\\.2\\\\.mlp\\\\.q$": {"bits": 8}}
    made(gptq(), GPTQ | {"dynamic": {"+:.*q": {"bits": 8}}}, None,
        under(L2 + "q", bits(8)) | {L0 + "gate.weight": ones(4, 128)}, "*: gptq -> gptq(zeros=v2)")
"dynamic": {"+:^model\\\\.layers\\\\.2\\\\.mlp\\\\.q$": {"bits": 8}}
    made(gptq(), GPTQ | {"dynamic": {"+:.*q": {"bits": 8}}}, None, under(L2 + "q", bits(8)),
        "*: gptq -> gptq(zeros=v2)")
"lm_head": true
does not load the lm_head of gptq
    made(awq(), AWQ, "gptq", under("lm_head", awq()))
! "lm_head"
    made(awq(), AWQ, "gptq", under("lm_head", awq()), "lm_head: awq -> plain(axes=oi), f16")
"lm_head": false
    made(gptq(), GPTQ | {"lm_head": True}, None, under("lm_head", gptq()),
        "lm_head: gptq -> ba, f16")
! "lm_head
    made(awq(), AWQ, "gptq", {"lm_head.weight": ones(8, 16)}, "lm_head.weight: ba, s8, scales=a")
"dynamic": {"-:^model\\\\.layers\\\\.0\\\\.mlp\\\\.gate$": {}}
    made(awq(), AWQ, "gptq", {L0 + "gate.weight": ones(4, 128)})
"modules_to_not_convert": ["model.embed_tokens", "lm_head", "model.layers.0.mlp.gate"]
    made(gptq(), GPTQ, "awq", {L0 + "gate.weight": ones(4, 128)})
"group_size": 64
! -1
    made(awq(), AWQ, "gptq", under(L0 + "up", awq(3, (64, 128))))
"modules_to_not_convert": ["lm_head", "model.layers.1.mlp", "model.embed_tokens"]
! ignored_layers
    made(fp8(), FP8 | {"modules_to_not_convert": ["lm_head"]}, None, {},
        "*.1.mlp: fp8_block(scale_inv=true) -> plain, bf16")
"modules_to_not_convert": ["model.layers.1.mlp", "model.embed_tokens", "lm_head"]
"ignored_layers": ["a", "model.layers.1.mlp", "model.embed_tokens", "lm_head"]
    made(fp8(), FP8 | {"modules_to_not_convert": [], "ignored_layers": ["a"]}, None, {},
        "*.1.mlp: fp8_block(scale_inv=true) -> plain, bf16")
mlp.experts.1.up would be floats beside quantised experts of model.layers.0
    refused(awq(), AWQ, None, experts(2), "*.experts.1.*: awq -> plain(axes=oi), f16")
    made(awq(), AWQ, None, experts(2), "*.experts.*: awq -> plain(axes=oi), f16")
{"torch_dtype": "bfloat16"}
    made(fp8_tensor(), None, "bf16", config={"compression_config": compressed("tensor")})
{}
    made(fp8_tensor(), None, None, {}, "*: fp8_tensor -> plain, bf16",
        config={"compression_config": compressed("tensor")})
"modules_to_not_convert": ["model.layers.0.mlp.experts", "model.layers.1.mlp.experts",
model.layers.1.mlp.experts.down_proj stay floats: each has all experts of a layer
    made({"o_proj.weight": ones(128, 128), "experts.down_proj": ones(2, 128, 128)}, None,
        "fp8-block")
mlp.experts.gate_up_proj is fp8_block with all experts of a layer in one tensor
and loaders of compressed-tensors do not
    refused(stacked(), FP8, "compressed-tensors")
    made(stacked(), FP8, "bf16")
! twist
    made(fp8(), FP8 | {"twist": None, "turns": [], "expert_dtype": "fp8", "adapter": None}, "bf16")
! dense
    made(fp8(), FP8 | {"transform_config": {}, "sparsity_config": {"format": "dense"}}, "bf16")
"zero_point": true
    made(awq(zeros=(8, 9)), AWQ | {"zero_point": True, "sym": True}, None, {}, "*: awq -> awq")

# records, by the names and sections that their readers expect
"quant_method": "compressed-tensors"
"strategy": "block", "block_structure": [128, 128]
"ignore": ["model.embed_tokens", "lm_head"]
    made(fp8(), FP8, None, {}, "*: fp8_block -> fp8_block(scale_inv=false)")
"quant_method": "fp8"
"modules_to_not_convert": ["model.embed_tokens", "lm_head"]
    made(rows(256, 2), compressed("block", block_structure=[128, 128]), None, {},
        "*: fp8_block -> fp8_block(scale_inv=true)")
"quant_method": "fbgemm_fp8"
    made(fp8_tensor(), PLAIN, None, {}, "*: fp8_tensor -> fp8_channel")
"quant_method": "fp8"
"weight_block_size": [64, 64]
    made(fp8_tensor(), PLAIN, None, {}, "*: fp8_tensor -> fp8_block(scale_inv=true, block=64)")
"quant_method": "fp8"
<model.layers.0.mlp.weight_scale>
    made({"weight": fp8()["weight"], "weight_scale_inv": np.full((1, 1), 3, "f4")}, PLAIN, None, {},
        "*: fp8_tensor(scale_inv=true) -> fp8_tensor")
"quant_method": "fp8"
<model.layers.0.mlp.weight_scale_inv>
    made(fp8_tensor(), PLAIN, None, {}, "*: fp8_tensor -> fp8_tensor(scale_inv=true, scales=bf16)")
! expert_dtype
! quantization_config
    made(under("wq_a", dense_v4()) | under("experts.0.w1", fp4_v4()), FP8, "bf16",
        config={"expert_dtype": "fp4"})
<model.layers.0.mlp.experts.gate_up_proj>
<model.layers.0.mlp.experts.gate_up_proj_weight_scale>
    made(gpt_oss(), {"quant_method": "mxfp4"}, None, {}, "*: gpt_oss_mxfp4 -> modelopt_mxfp4")
<model.layers.0.mlp.experts.gate_up_proj_scale_inv>
    made(stacked(), FP8, None, {}, "*: fp8_block -> fp8_block(scale_inv=true, block=64)")
<model.layers.0.mlp.experts.gate_up_proj>
<model.layers.0.mlp.experts.gate_up_proj_weight_scale>
    made(stacked(), FP8, None, {}, "*: fp8_block -> fp8_block(scale_inv=false)")
"torch_dtype": "bfloat16"
    made(under("a", nvfp4()) | under("b", modelopt()), mixed("NVFP4", "FP8"), "bf16",
        old={"quantization": mixed("NVFP4", "FP8")}, named="hf_quant_config")
with the reciprocal rounded to f32: scales change by at most 1.2e-07 of their value
    made(nvfp4(), NVFP4, "compressed-tensors")
with the reciprocal rounded to f32: scales change by at most 1.2e-07 of their value
    made(nvfp4(divides=True), PAIRS, None, {}, "*: compressed_nvfp4 -> modelopt_nvfp4")
a factor becomes its reciprocal, and
scales change by up to 1 of their value
    refused(nvfp4() | {"weight_scale_2": np.array(2.0**-140, "f4")}, NVFP4, "compressed-tensors")
a factor of scales is 0, which has no reciprocal
    refused(nvfp4() | {"weight_scale_2": np.array(0, "f4")}, NVFP4, "compressed-tensors")
{"quantization": {"mode": "affine", "bits": 2, "group_size": 32}
    made(mlx(1), None, None, {}, "*: mlx -> mlx(bits=2, group=32)", config=quantization(1))
    made(mlx(3), None, None, {}, "*: mlx -> mlx(bits=4, group=32)", config=quantization(3))
    made(mlx(3), None, None, {}, "*: mlx -> mlx(bits=5, group=32)", config=quantization(3))
    made(mlx(5), None, None, {}, "*: mlx -> mlx(bits=6, group=32)", config=quantization(5))
    made(mlx(4), None, None, {}, "*: mlx -> mlx(bits=8, group=32)", config=quantization(4))
    made(mlx(6), None, None, {}, "*: mlx -> mlx(bits=8, group=32)", config=quantization(6))
mlp.scales' of bf16 has the shape
    refused(mlx(8), None, None, {}, "*: mlx(bits=4) -> plain, bf16", config=quantization(8))
{"torch_dtype": "bfloat16"}
    made(mlx() | {"weight": mlx()["weight"].view("i4")}, None, "bf16", config=quantization(4))
"kv_cache_scheme": {"num_bits": 8}
    made(pack(), PACK | {"kv_cache_scheme": {"num_bits": 8}}, None, {},
        "*: pack_quantized -> pack_quantized(scales=f32)")
"kv_cache_scheme": {"num_bits": 8}
    made(pack(), activated() | {"kv_cache_scheme": {"num_bits": 8}}, None, {},
        "*: pack_quantized -> int_quantized")
! weight_g_idx>
    made(pack() | {"weight_g_idx": np.arange(128, dtype="i4") // 64}, PACK, None, {},
        "*: pack_quantized -> int_quantized")
"modules_to_not_convert": ["model.embed_tokens", "lm_head", "vision.layers.0.mlp", "projector.linear
".vision.layers.0.mlp", ".linear", ".router"
    made(gptq(), GPTQ, "awq", {f"{name}.weight": ones(4, 128) for name in PARTS},
        config={"text_config": {"model_type": "llama"}})

# what config.json can and cannot say
{"a": 1, "text_config": {"quantization_config": {"quant_method": "gptq", "sym": false,
    made(awq(zeros=(8, 9)), None, None, {}, TO_GPTQ,
        config={"a": 1, "text_config": {"quantization_config": AWQ}})
left out, because they describe the input: quant_config.json
    made(awq(zeros=(8, 9)), None, None, {}, TO_GPTQ, old={"w_bit": 4}, named="quant_config")
zero points: qzeros of gptq
; gptq(zeros=v2) holds more zero points
    refused(awq(zeros=(0, 2)), AWQ, None, {}, TO_GPTQ)
    made(awq(zeros=(0, 2)), AWQ, None, {}, "*: awq -> gptq(zeros=v2)")
does not declare model.layers.1.mlp.qweight
    refused(awq(), None, None, {}, DECODED, old={"w_bit": 4}, named="quant_config")
config.json declares gptq, not awq
    refused(awq(zeros=(8, 9)), None, None, {}, TO_GPTQ,
        config={"a": {"b": {"quantization_config": GPTQ}}})
are gptq while model.layers.1.mlp.qweight stays as it was, as no loader reads
such as OUT.safetensors, which has no config.json
    refused(awq(zeros=(8, 9)), AWQ, None, {}, "*.0.mlp: awq -> gptq")
are gptq and others pack_quantized, as no loader reads that
    refused(awq(zeros=(8, 9)), AWQ, None, {}, TO_GPTQ, "*.0.mlp: awq -> pack_quantized")
cannot say that some layers are gptq and others q4_0, as no loader reads that
    refused(awq(zeros=(8, 9)), AWQ, None, {}, TO_GPTQ, "*.0.mlp: awq -> q4_0")
scale_inv=True), as no loader reads that from it
    refused({"weight": fp8()["weight"], "weight_scale": np.ones((256, 1), "f4")},
        {"quant_method": "fbgemm_fp8"}, None, {}, "*: fp8_channel -> fp8_channel(scale_inv=true)")
"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm", "modules_to_not_convert":
["model.layers.0.mlp", "model.embed_tokens", "lm_head"]
    made(awq(), AWQ, None, {}, "*.1.mlp: awq -> awq(scales=f32)", DECODED)
"quant_method": "gptq", "sym": false, "checkpoint_format": "gptq", "bits": 4, "group_size": 64,
"desc_act": false, "dynamic": {"-:^model\\\\.layers\\\\.0\\\\.mlp$": {}}
    made(awq(zeros=(8, 9)), AWQ, None, {}, TO_GPTQ, DECODED)

# the type of a model
{"torch_dtype": "bfloat16", "model_type": "some"}
    made(fp8(), FP8, "bf16", config={"torch_dtype": "float32", "model_type": "some"})
{"torch_dtype": "float16", "text_config": {"torch_dtype": "float16", "dtype": "int8"},
"vision_config": {"dtype": "float32"}, "audio_config": {"dtype": {"a": "bfloat16"}}}
loaders will round model.embed_tokens.weight, lm_head.weight too: config.json now says float16, not
    made(fp8(), FP8, "f16", config={"torch_dtype": "bfloat16", "text_config":
        {"torch_dtype": "bfloat16", "dtype": "int8"}, "vision_config": {"dtype": "float32"},
        "audio_config": {"dtype": {"a": "bfloat16"}}})
loaders will round model.layers.0.input_layernorm.weight too
    made(fp8(), FP8, "bf16", config={"dtype": "float32"})
{"dtype": "bfloat16"}
! loaders
    made(fp8(), FP8, "bf16", config={"dtype": "float16"})
{"torch_dtype": "float16"}
! loaders
    made(fp8(), FP8, "f16")

# floats beside what may be codes
w.codes of u8 may hold codes, which some of the floats may scale
    refused({"w.codes": np.ones((8, 4), "u1"), "w.factors": ones(8, 1)}, None, "bf16")
rounded to bf16
    made({"position_ids": np.ones((1, 8), "i8"), "w.weight": np.ones((8, 4), "f4")}, None, "bf16")

# models whose method is not known
--to fp8-block: config.json declares quantised weights, by 'vptq', but no tensors have the names
    refused(vptq(), {"quant_method": "vptq"}, "fp8-block")
--to bf16: config.json declares quantised weights, by 'vptq', but no tensors have the names of a
    refused(vptq(), {"quant_method": "vptq"}, "bf16")
"""


class _Row(NamedTuple):
    """What is said, the call that says it, and calls that work."""

    said: list[str]
    calls: list[str]


def _rows() -> list[_Row]:
    found = [_Row([], [])]
    for line in textwrap.dedent(_TABLE).splitlines():
        indent = len(line) - len(line.lstrip())
        if indent > 4:
            found[-1].calls[-1] += f" {line.strip()}"
        elif indent:
            found[-1].calls.append(line.strip())
        elif line and not line.startswith("#"):
            if found[-1].calls:
                found.append(_Row([], []))
            found[-1].said.append(line)
    return found


def _borrowed() -> dict[str, Any]:
    """Return a layer as GPTQModel writes it, which subtracts 1 from all codes of a word at once."""
    layer = gptq_layer()[0]
    # a 0 in the lowest one borrows from the next
    layer["qzeros"][1, 2] = np.uint32((0x88888880 - 0x11111111) & 0xFFFFFFFF).view(np.int32)
    return layer


def _nan_at(*at: int) -> Any:
    weight = np.ones((128, 128), ml_dtypes.bfloat16)
    weight[at] = np.nan
    return weight


def _mixed(*algorithms: str) -> dict[str, Any]:
    """Return what ModelOpt says of layers of their own."""
    own = {
        f"model.layers.{k}.mlp.{name}": {"quant_algo": each}
        for k in range(2)
        for name, each in zip("ab", algorithms, strict=True)
    }
    return {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": own}


def _activated() -> dict[str, Any]:
    """Return a section with a group that also quantises activations."""
    section: dict[str, Any] = compressed("pack-quantized", **_GROUPS)["quantization_config"]
    section["config_groups"]["group_0"]["input_activations"] = {"num_bits": 8, "dynamic": True}
    return section


def _roles(made: Weight) -> dict[str, Any]:
    return {end.removeprefix("."): x for end, x in made[0].items()}


def _scaled(factor: float) -> dict[str, Any]:
    layer = fp8_layer()
    layer["weight_scale_inv"] *= factor
    return layer


def _overflowing() -> dict[str, Any]:
    layer = fp8_layer()
    layer["weight_scale_inv"][1, 0] = 3e38
    return layer


def _fp8_tensor(kind: str = "float8_e4m3fn") -> dict[str, Any]:
    codes = np.random.default_rng(0).standard_normal((256, 128)).astype(getattr(ml_dtypes, kind))
    return {"weight": codes, "weight_scale": np.full(1, 0.75, np.float32)}


_NAMES: dict[str, Any] = {
    "AWQ": _AWQ,
    "FP8": _FP8,
    "GPTQ": _GPTQ,
    "FBGEMM": {"quant_method": "fbgemm_fp8"},
    "NVFP4": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    "PAIRS": compressed(
        "nvfp4-pack-quantized", type="float", num_bits=4, strategy="tensor_group", group_size=16
    )["quantization_config"],
    "PLAIN": {"quant_method": "fp8"},
    "PACK": compressed("pack-quantized", **_GROUPS)["quantization_config"]
    | {"ignore": ["lm_head"]},
    # transformers 5.24 has model.vision.layers.0.mlp and model.language_model.layers.0.router
    "PARTS": ("vision.layers.0.mlp", "projector.linear", "language_model.model.layers.0.router"),
    "ROTATED": {"config_groups": {"R1": {"type": "hadamard"}}},
    "DECODED": "*.0.mlp: awq -> plain(axes=oi), f16",
    "TO_GPTQ": "*: awq -> gptq",
    "L0": "model.layers.0.mlp.",
    "L2": "model.layers.2.mlp.",
    "np": np,
    "activated": _activated,
    "awq": awq_layer,
    "fp8": fp8_layer,
    "gptq": lambda: gptq_layer()[0],
    "bits": _bits,
    "borrowed": _borrowed,
    "channels": lambda name: (
        _fp8_tensor() | {"weight_scale": np.ones((256, 1), "f4"), name: np.ones(1, "f4")}
    ),
    "compressed": _compressed,
    "experts": lambda count: {
        f"model.layers.0.mlp.experts.{k}.up.{role}": x
        for k in range(count)
        for role, x in awq_layer(k).items()
    },
    "fp8_tensor": _fp8_tensor,
    "mlx": lambda bits=4: _roles(mlx(bits)),
    "dense_v4": lambda: _roles(fp8("scale", (3, 2), kind="e8m0")),
    "fp4_v4": lambda: _roles(deepseek_fp4()),
    "gpt_oss": lambda: {
        f"experts.gate_up_proj{end}": x
        for end, x in mxfp4(EXPERTS, "_blocks", "_scales")[0].items()
    },
    "mixed": _mixed,
    "modelopt": lambda: _fp8_tensor() | {"weight_scale": np.ones((), np.float32)},
    "nan_at": _nan_at,
    "nvfp4": lambda **options: _roles(nvfp4(**options)),
    "ones": lambda *shape: np.ones(shape, ml_dtypes.bfloat16),
    "overflowing": _overflowing,
    "pack": lambda: _roles(recorded("pack_quantized", (256, 128), group=64, zeros=False)),
    "powers": lambda: (
        fp8_layer() | {"weight_scale_inv": np.array([[1], [0.5]], ml_dtypes.float8_e8m0fnu)}
    ),
    "quantization": lambda bits, **more: {"quantization": {"bits": bits, "group_size": 64, **more}},
    "q4_0": lambda: reorder.records.Record(record_desc((8, 64), "q4_0")),
    "reversed_groups": lambda: np.arange(128, dtype=np.int32)[::-1] // 64,
    "rows": lambda rows, *blocks: (
        _fp8_tensor()
        | {"weight": fp8_layer()["weight"][:rows]}
        | ({"weight_scale": np.ones((*blocks, 1), np.float32)} if blocks else {})
    ),
    "scaled": _scaled,
    "stacked": lambda: {
        "experts.gate_up_proj": np.stack([fp8_layer(k)["weight"] for k in range(2)]),
        "experts.gate_up_proj_scale_inv": np.ones((2, 2, 1), np.float32),
    },
    "under": lambda name, layer: {f"{name}.{role}": x for role, x in layer.items()},
    "vptq": lambda: {
        "up_proj.weight": np.ones((128, 128), _BF16),
        "down_proj.indices": np.zeros((1, 128, 48), np.int32),
        "down_proj.centroids.weight": np.zeros((1, 512), np.float16),
    },
}


def _check_numbers(given: Path, out: Path, prefixes: set[str]) -> None:
    """Check that weights have their numbers in what they became: records with prefixes, or floats.

    The reciprocal of a scale of NVFP4 is rounded, and floats are rounded to their type.
    """
    words = words_of(out)
    for weight in Model(given, read_container(given)).weights:
        if weight.desc is not None:
            wanted = numbers_in(given, weight.prefix)
            if weight.prefix in prefixes:
                found = numbers_in(out, weight.prefix)
            else:
                found = words[weight.decoded_name(weight.prefix)]
                wanted = wanted.astype(found.dtype)
            turned = wanted if wanted.shape == found.shape else wanted.swapaxes(-1, -2)
            assert np.allclose(
                found.astype(np.float32), turned.astype(np.float32), rtol=2.0**-21, atol=0
            )


def _functions(folder: Path) -> dict[str, Callable[..., str]]:
    """Return what the table calls: it writes a model, and is refused or converts it."""
    number = count()

    def source(
        layer: Tensors,
        section: Any,
        beside: Tensors,
        old: Any = None,
        named: str = "",
        config: Any = None,
    ) -> Path:
        taken = {".".join(name.split(".")[:count]) for name in beside for count in (1, 2)}
        rest = {name: x for name, x in _BESIDE.items() if name.removesuffix(".weight") not in taken}
        path = folder / f"in{next(number)}"
        made = _model(path, layer, section, rest | beside, **config or {})
        if old:
            (made / f"{named or 'quantize_config'}.json").write_text(json.dumps(old))
        return made

    def refused_model(
        layer: Tensors, section: Any, to: Any, beside: Any = None, *rules: str, **files: Any
    ) -> str:
        return _refused(source(layer, section, beside or {}, **files), to, *rules)

    def made(
        layer: Tensors,
        section: Any,
        to: Any,
        beside: Any = None,
        *rules: str,
        same: bool = True,
        **files: Any,
    ) -> str:
        given = source(layer, section, beside or {}, **files)
        out = folder / f"out{next(number)}"
        report = reorder.convert(given, out, to, map=rules, options=SMALL)
        config = json.loads((out / "config.json").read_text())
        for name in ("tokenizer.json", "generation_config.json"):
            assert (out / name).read_bytes() == (given / name).read_bytes()
        model = Model(out, read_container(out))
        assert all(weight.tensors for weight in model.weights)
        if same:
            _check_numbers(given, out, {weight.prefix for weight in model.weights})
        return " ".join((json.dumps(config), *report.warnings, *(f"<{x}>" for x in model.entries)))

    def refused_file(ending: str, value: Any, to: Any, *rules: str) -> str:
        reorder.save(folder / "x.npz", {"blk.0.ffn_up.weight": value})
        if ending != "npz":
            reorder.convert(folder / "x.npz", folder / f"x.{ending}")
        out = folder / ("out" if to else "out.safetensors")
        return refused(folder / f"x.{ending}", out, *rules, to=to)

    return {"refused": refused_model, "made": made, "refused_file": refused_file}


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row.said[0][:40])
def test_a_model_is_converted_or_refused_with_what_is_said_of_it(tmp_path: Path, row: _Row) -> None:
    known = _NAMES | _functions(tmp_path)
    first, *works = row.calls
    said, at = eval(first, known), 0
    for part in row.said:
        if part.startswith("! "):
            assert part[2:] not in said
            continue
        assert part in said[at:]
        at = said.index(part, at) + len(part)
    for each in works:
        eval(each, known)


def test_every_target_is_named_in_the_docstring() -> None:
    text = " ".join((reorder.convert.__doc__ or "").split())
    assert all(f"``{name}``" in text for name in TARGETS)
