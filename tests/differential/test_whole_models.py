"""Whole models, dense ones, mixtures of experts, and one for images and text, converted and loaded.

GPTQModel, ModelOpt, mlx-lm and compressed-tensors quantise tiny models with random weights; FP8 in
blocks is made by the formula of DeepSeek-V3. Weights or logits are equal in all bits, except where
a product is summed in another order (MLX) or the formats differ by the reciprocal of a scale
(NVFP4). Sources: DeepSeek-V3, `inference/fp8_cast_bf16.py` and `kernel.py`,
`weight_dequant_kernel`.

GPTQModel changes how transformers loads experts for the rest of the process: its tests are the last
ones here, and this file comes after the others by its name.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import chdir
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.judges, pytest.mark.filterwarnings("ignore")]

# GPTQModel 7.7 starts too few threads for itself where there are two cores
os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "2")

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")

_SIZES = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
_EXPERTS = 4
_MODELS = ("llama", "qwen3_moe")
# a part for images, one for text, and a projector between them
_IMAGE, _PATCH = 16, 4
_IMAGE_TOKEN = 63
# matrices of two layers
_COUNTS = {"llama": 14, "qwen3_moe": 2 * (4 + 3 * _EXPERTS), "mixtral": 2 * (4 + 3 * _EXPERTS)}
# without kv_b_proj, which mlx-lm splits; one layer is dense, the other has a shared expert
_COUNTS["llava"] = _COUNTS["llama"]
_COUNTS["deepseek_v3"] = 2 * 4 + 3 + 3 * (_EXPERTS + 1)
# what Mixtral calls the layers of an expert
_OF_MIXTRAL = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
_VERIFIED = reorder.checkpoints.ConvertOptions(verify=True)


def _model(kind: str, dtype: Any) -> Any:
    torch.manual_seed(0)
    if kind == "llama":
        config = transformers.LlamaConfig(intermediate_size=512, **_SIZES)
        model = transformers.LlamaForCausalLM(config)
    else:
        sizes = {"moe_intermediate_size": 128, "intermediate_size": 512, "num_experts_per_tok": 2}
    if kind == "qwen3_moe":
        experts = {"num_experts": _EXPERTS, "head_dim": 64}
        config = transformers.Qwen3MoeConfig(**_SIZES, **sizes, **experts)
        model = transformers.Qwen3MoeForCausalLM(config)
    if kind == "mixtral":
        experts = {"num_local_experts": _EXPERTS, "num_experts_per_tok": 2}
        config = transformers.MixtralConfig(**_SIZES, intermediate_size=128, **experts)
        model = transformers.MixtralForCausalLM(config)
    if kind == "deepseek_v3":
        heads = {"qk_rope_head_dim": 32, "qk_nope_head_dim": 32, "v_head_dim": 32}
        ranks = {"q_lora_rank": 64, "kv_lora_rank": 64, "num_key_value_heads": 4}
        groups = {"n_routed_experts": _EXPERTS, "n_group": 2, "topk_group": 1}
        more = {**sizes, **heads, **ranks, **groups, "first_k_dense_replace": 1}
        model = transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(**_SIZES | more))
    if kind == "llava":
        seen = transformers.CLIPVisionConfig(
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=_IMAGE,
            patch_size=_PATCH,
        )
        read = transformers.LlamaConfig(intermediate_size=512, **_SIZES)
        config = transformers.LlavaConfig(
            vision_config=seen, text_config=read, image_token_index=_IMAGE_TOKEN
        )
        config.tie_word_embeddings = False
        model = transformers.LlavaForConditionalGeneration(config)
    model.config.architectures = [type(model).__name__]
    return model.to(dtype).eval()


def _save(folder: Path, kind: str, dtype: Any) -> Path:
    """Save a model that is not quantised, and a tokenizer, which GPTQModel asks for."""
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

    _model(kind, dtype).save_pretrained(folder)
    special = {"unk_token": "w0", "pad_token": "w1", "bos_token": "w2", "eos_token": "w3"}
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({f"w{k}": k for k in range(64)}, special["unk_token"])
    )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special)
    tokenizer.save_pretrained(folder)
    return folder


def _logits(folder: Path, dtype: Any, **options: Any) -> Any:
    is_llava = json.loads((folder / "config.json").read_text())["model_type"] == "llava"
    given = {"input_ids": torch.arange(48)[None]}
    if is_llava:
        tokens = torch.full((1, (_IMAGE // _PATCH) ** 2), _IMAGE_TOKEN)
        given["input_ids"] = torch.cat([tokens, given["input_ids"][:, :32]], 1)
        values = torch.linspace(-1, 1, 3 * _IMAGE * _IMAGE, dtype=dtype)
        given["pixel_values"] = values.reshape(1, 3, _IMAGE, _IMAGE)
    kind = "AutoModelForImageTextToText" if is_llava else "AutoModelForCausalLM"
    load = getattr(transformers, kind).from_pretrained
    model = load(folder, dtype=dtype, **options).eval()
    with torch.no_grad():
        return model(**given).logits


def _rename_as_published(folder: Path) -> None:
    """Give the part for images its names in published Llava models, which transformers renames."""
    names = {each: each.replace("tower.", "tower.vision_model.") for each in _tensors(folder)}
    tensors = {names[name]: tensor for name, tensor in _tensors(folder).items()}
    safetensors.save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def _tensors(folder: Path) -> dict[str, Any]:
    files = [safetensors.load_file(path) for path in folder.glob("*.safetensors")]
    return {name: tensor for file in files for name, tensor in file.items()}


def _same(one: Any, other: Any) -> bool:
    return bool(one.dtype == other.dtype and torch.equal(one, other))


def _all_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)


def _decompressed(folder: Path, target: Path, dtype: Any) -> dict[str, Any]:
    """Return the tensors that compressed-tensors makes of a model in its format."""
    name = "compressed_tensors.entrypoints.convert"
    convert = pytest.importorskip(name, reason="compressed-tensors is not installed")
    section = json.loads((folder / "config.json").read_text())["quantization_config"]
    if "pack" in section["format"]:
        decode = convert.CompressedTensorsDequantizer(str(folder), dtype=dtype)
        convert.convert_checkpoint(str(folder), str(target), decode, 1, "cpu")
        return _tensors(target)
    # that class asks for scales of norms too where weights of layers have their usual name
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme

    (group,) = section["config_groups"].values()
    scheme = QuantizationScheme.model_validate(group)
    compressor = BaseCompressor.get_value_from_registry(section["format"])
    found = _tensors(folder)
    for layer in [n.removesuffix(".weight_scale") for n in found if n.endswith(".weight_scale")]:
        state = {role: found.pop(f"{layer}.{role}") for role in ("weight", "weight_scale")}
        found[f"{layer}.weight"] = compressor.decompress(state, scheme)["weight"].to(dtype)
    return found


def _mlx_model(folder: Path) -> tuple[Any, dict[str, Any]]:
    """Load a model by mlx-lm, which reads two keys that transformers 5.24 writes elsewhere."""
    lm = pytest.importorskip("mlx_lm.utils", reason="mlx-lm is not installed")
    config = json.loads((folder / "config.json").read_text())
    config |= {"num_experts": _EXPERTS, "rope_theta": config["rope_parameters"]["rope_theta"]}
    (folder / "config.json").write_text(json.dumps(config))
    found: tuple[Any, dict[str, Any]] = lm.load_model(folder)
    return found


def _mlx_logits(model: Any) -> Any:
    core = pytest.importorskip("mlx.core", reason="mlx is not installed")
    model.set_dtype(core.float32)
    return torch.from_numpy(np.array(model(core.arange(48)[None])))


def _mlx_weights(model: Any) -> dict[str, Any]:
    """Return the weights as MLX decodes them, with experts under the names that others use.

    MLX has the embeddings and the head among them if it quantised the model itself.
    """
    core = pytest.importorskip("mlx.core", reason="mlx is not installed")
    found: dict[str, Any] = {}
    for name, layer in model.named_modules():
        if not hasattr(layer, "scales"):
            continue
        parts = layer.weight, layer.scales, getattr(layer, "biases", None)
        steps = {"group_size": layer.group_size, "bits": layer.bits, "mode": layer.mode}
        made = core.dequantize(*parts, **steps).astype(core.float32)
        made = torch.from_numpy(np.array(made))
        head, is_stack, tail = name.partition(".switch_mlp.")
        tail = _OF_MIXTRAL[tail] if head.endswith("block_sparse_moe") else tail
        names = [f"{head}.experts.{k}.{tail}" for k in range(_EXPERTS)] if is_stack else [name]
        made = made if is_stack else made[None]
        found |= {f"{each}.weight": one for each, one in zip(names, made, strict=True)}
    return found


# presets of compressed-tensors, and its format for each
_PRESETS = {
    "FP8": "float-quantized",
    "FP8_DYNAMIC": "float-quantized",
    "FP8_BLOCK": "float-quantized",
    "W8A8": "int-quantized",
    "W4A16": "pack-quantized",
    "W4A16_ASYM": "pack-quantized",
    "W8A16": "pack-quantized",
    "NVFP4A16": "nvfp4-pack-quantized",
    "MXFP4A16": "mxfp4-pack-quantized",
    "MXFP8A16": "mxfp8-quantized",
}
# transformers refuses these, or computes other numbers than compressed-tensors: docs/records.md
_NOT_LOADED = {
    "llama": {"W4A16_ASYM"},
    "llava": {"W4A16_ASYM"},
    "qwen3_moe": {"FP8_BLOCK", "W8A8", "W4A16_ASYM", "NVFP4A16", "MXFP8A16"},
}
_MODELOPT = {
    "fp8": "FP8_DEFAULT_CFG",
    "fp8 in blocks": "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG",
    "nvfp4": "NVFP4_DEFAULT_CFG",
    "mxfp4": "MXFP4_DEFAULT_CFG",
    "mxfp8": "MXFP8_DEFAULT_CFG",
}


@pytest.fixture(scope="module")
def by_modelopt(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Return what quantises a model by ModelOpt and exports it, once for all tests."""
    name = "modelopt.torch.quantization"
    quantization = pytest.importorskip(name, reason="nvidia-modelopt is not installed")
    from modelopt.torch.export import export_hf_checkpoint

    made: dict[tuple[str, str], Path] = {}

    def quantise(kind: str, form: str) -> Path:
        if (kind, form) not in made:
            folder = tmp_path_factory.mktemp(f"{kind}_{form.replace(' ', '_')}")

            def calibrate(model: Any) -> None:
                for _ in range(4):
                    model(torch.randint(0, 64, (2, 48)))

            config = getattr(quantization, _MODELOPT[form])
            model = quantization.quantize(_model(kind, torch.bfloat16), config, calibrate)
            with torch.inference_mode():
                export_hf_checkpoint(model, export_dir=str(folder))
            made[kind, form] = folder
        return made[kind, form]

    return quantise


@pytest.mark.parametrize("form", _MODELOPT)
@pytest.mark.parametrize("kind", _MODELS)
def test_models_of_modelopt_are_decoded_by_compressed_tensors(
    tmp_path: Path, by_modelopt: Callable[[str, str], Path], kind: str, form: str
) -> None:
    source = by_modelopt(kind, form)
    reorder.convert(source, tmp_path / "bf16", options=_VERIFIED, to="bf16")
    reorder.convert(source, tmp_path / "ct", options=_VERIFIED, to="compressed-tensors")
    ours = _tensors(tmp_path / "bf16")
    assert sum(name.endswith("_proj.weight") for name in ours) == _COUNTS[kind]
    theirs = _decompressed(tmp_path / "ct", tmp_path / "theirs", torch.bfloat16)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        # of NVFP4 the reciprocal of a scale is rounded to f32, so a few round to another bf16
        near = {"rtol": 2**-7, "atol": 0} if form == "nvfp4" else {"rtol": 0, "atol": 0}
        assert torch.allclose(theirs[name], tensor, **near)
    assert _logits(tmp_path / "bf16", torch.bfloat16).isfinite().all()


# without those that transformers does not load, and without FP8, whose scales it rounds to bf16
_OF_MODELOPT = [("llama", "nvfp4"), ("llama", "mxfp4"), ("llama", "mxfp8"), ("qwen3_moe", "mxfp4")]


@pytest.mark.parametrize(("kind", "form"), _OF_MODELOPT)
def test_transformers_computes_with_models_of_modelopt(
    tmp_path: Path, by_modelopt: Callable[[str, str], Path], kind: str, form: str
) -> None:
    to = "compressed-tensors"
    reorder.convert(by_modelopt(kind, form), tmp_path / "ct", options=_VERIFIED, to=to)
    reorder.convert(tmp_path / "ct", tmp_path / "bf16", options=_VERIFIED, to="bf16")
    logits = _logits(tmp_path / "bf16", torch.bfloat16)
    assert _same(_logits(tmp_path / "ct", torch.bfloat16), logits)


@pytest.mark.parametrize("form", ["fp8", "fp8 in blocks"])
@pytest.mark.parametrize("kind", _MODELS)
def test_fp8_of_modelopt_is_decoded_by_transformers(
    tmp_path: Path, by_modelopt: Callable[[str, str], Path], kind: str, form: str
) -> None:
    source = by_modelopt(kind, form)
    reorder.convert(source, tmp_path / "fp8", options=_VERIFIED, to="fp8-block")
    reorder.convert(source, tmp_path / "bf16", options=_VERIFIED, to="bf16")
    logits = _logits(tmp_path / "bf16", torch.bfloat16)
    assert _same(_logits(tmp_path / "fp8", torch.bfloat16), logits)


def _by_deepseek(folder: Path, kind: str) -> dict[str, Any]:
    """Save a model in FP8 by the formula of DeepSeek-V3; return what DeepSeek casts it to."""
    _model(kind, torch.bfloat16).save_pretrained(folder)
    tensors = _tensors(folder)
    casted = dict(tensors)
    for name in [each for each in casted if each.endswith(("_proj.weight", "_mqa.weight"))]:
        rows, columns = casted[name].shape
        padded = torch.nn.functional.pad(casted[name].float(), (0, -columns % 128, 0, -rows % 128))
        blocks = padded.unflatten(0, (-1, 128)).unflatten(2, (-1, 128))
        scales = blocks.abs().amax((1, 3)).clamp(min=1e-12) / 448
        each = scales.repeat_interleave(128, 0).repeat_interleave(128, 1)[:rows, :columns]
        codes = (casted[name].float() / each).to(torch.float8_e4m3fn)
        tensors |= {name: codes, f"{name}_scale_inv": scales}
        casted[name] = (codes.float() * each).to(torch.bfloat16)
    safetensors.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    section = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {**section, "weight_block_size": [128, 128]}
    (folder / "config.json").write_text(json.dumps(config))
    return casted


@pytest.mark.parametrize("kind", [*_MODELS, "deepseek_v3"])
def test_fp8_becomes_what_deepseek_casts_it_to(tmp_path: Path, kind: str) -> None:
    source = tmp_path / "in"
    casted = _by_deepseek(source, kind)
    reorder.convert(source, tmp_path / "out", options=_VERIFIED, to="bf16")
    assert _all_same(_tensors(tmp_path / "out"), casted)
    # transformers decodes FP8 itself where there is no GPU
    logits = _logits(tmp_path / "out", torch.bfloat16)
    assert _same(logits, _logits(source, torch.bfloat16))
    assert logits.isfinite().all()


def test_mlx_lm_loads_the_numbers_to_which_it_decodes_fp8_itself(tmp_path: Path) -> None:
    utils = pytest.importorskip("mlx.utils", reason="mlx is not installed")
    _by_deepseek(tmp_path / "in", "deepseek_v3")
    reorder.convert(tmp_path / "in", tmp_path / "out", options=_VERIFIED, to="bf16")
    models = [_mlx_model(tmp_path / name)[0] for name in ("in", "out")]
    theirs, ours = (dict(utils.tree_flatten(model.parameters())) for model in models)
    assert theirs.keys() == ours.keys()
    assert all(theirs[name].dtype == ours[name].dtype for name in theirs)
    assert all(bool((theirs[name] == ours[name]).all()) for name in theirs)


@pytest.mark.parametrize("kind", _MODELS)
def test_floats_become_the_fp8_that_producers_make_and_transformers_loads(
    tmp_path: Path, kind: str
) -> None:
    name = "compressed_tensors.quantization"
    quantization = pytest.importorskip(name, reason="compressed-tensors is not installed")
    from compressed_tensors.quantization.utils import calculate_qparams
    from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear

    _model(kind, torch.bfloat16).save_pretrained(tmp_path / "plain")
    reorder.convert(tmp_path / "plain", tmp_path / "fp8", options=_VERIFIED, to="fp8-block")
    decoded, made = _tensors(tmp_path / "plain"), _tensors(tmp_path / "fp8")
    names = [name for name in decoded if name.endswith("_proj.weight")]
    assert len(names) == _COUNTS[kind]
    wanted = dict(decoded)
    arguments = quantization.QuantizationArgs(
        num_bits=8, type="float", strategy="block", block_structure=[128, 128]
    )
    for name in names:
        weight = decoded[name].float()
        blocks = weight.unflatten(0, (-1, 128)).unflatten(2, (-1, 128))
        scales, points = calculate_qparams(blocks.amin((1, 3)), blocks.amax((1, 3)), arguments)
        codes = quantization.quantize(weight, scales, points, arguments, dtype=torch.float8_e4m3fn)
        wanted |= {name: codes, f"{name}_scale_inv": scales}
        each = scales.repeat_interleave(128, 0).repeat_interleave(128, 1)
        decoded[name] = (codes.float() * each).bfloat16()
    assert made.keys() == wanted.keys()
    assert all(made[name].dtype == wanted[name].dtype for name in made)
    assert all(torch.equal(made[n].view(torch.uint8), wanted[n].view(torch.uint8)) for n in made)
    # and back
    reorder.convert(tmp_path / "fp8", tmp_path / "bf16", options=_VERIFIED, to="bf16")
    assert _all_same(_tensors(tmp_path / "bf16"), decoded)
    # without a GPU, transformers decodes the weights as it loads them
    logits = _logits(tmp_path / "bf16", torch.bfloat16)
    assert _same(_logits(tmp_path / "fp8", torch.bfloat16), logits)
    # with one, it loads them into these modules, experts as stacks
    config = transformers.AutoConfig.from_pretrained(tmp_path / "fp8")
    section = dict(config.quantization_config)
    assert section.pop("quant_method") == "fp8"
    section = transformers.FineGrainedFP8Config(**section)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    replace_with_fp8_linear(model, section.modules_to_not_convert, section, pre_quantized=True)
    loaded = {n: (t.dtype, t.shape) for n, t in model.state_dict().items() if ".experts." not in n}
    given = {n: (t.dtype, t.shape) for n, t in made.items() if ".experts." not in n}
    assert loaded == given
    experts = [t.dtype for n, t in model.state_dict().items() if n.endswith("experts.down_proj")]
    assert experts == [torch.float8_e4m3fn] * (2 if kind == "qwen3_moe" else 0)


@pytest.mark.parametrize("is_published", [False, True])
def test_the_parts_of_a_model_are_found_by_the_lists_of_config(
    tmp_path: Path, is_published: bool
) -> None:
    _model("llava", torch.bfloat16).save_pretrained(tmp_path / "plain")
    if is_published:
        _rename_as_published(tmp_path / "plain")
    # all linear layers of both parts become FP8, the projector does not
    reorder.convert(tmp_path / "plain", tmp_path / "fp8", options=_VERIFIED, to="fp8-block")
    codes = [each for each in _tensors(tmp_path / "fp8").values() if each.dtype.itemsize == 1]
    assert len(codes) == _COUNTS["llava"] + 2 * 6
    reorder.convert(tmp_path / "fp8", tmp_path / "bf16", options=_VERIFIED, to="bf16")
    logits = _logits(tmp_path / "bf16", torch.bfloat16)
    assert _same(_logits(tmp_path / "fp8", torch.bfloat16), logits)
    assert logits.isfinite().all()
    reorder.convert(tmp_path / "fp8", tmp_path / "ct", options=_VERIFIED, to="compressed-tensors")
    # transformers rounds scales of FP8 to bf16 first
    reorder.convert(
        tmp_path / "ct", tmp_path / "f32", map=["*: fp8_block -> plain, f32"], options=_VERIFIED
    )
    wanted = _logits(tmp_path / "f32", torch.float32)
    assert _same(_logits(tmp_path / "ct", torch.float32), wanted)


@pytest.mark.parametrize("form", ["mxfp4", "mxfp8"])
@pytest.mark.parametrize("kind", _MODELS)
def test_mlx_computes_with_mx_of_modelopt(
    tmp_path: Path, by_modelopt: Callable[[str, str], Path], kind: str, form: str
) -> None:
    source = by_modelopt(kind, form)
    reorder.convert(source, tmp_path / "mlx", options=_VERIFIED, to="mlx")
    reorder.convert(source, tmp_path / "bf16", options=_VERIFIED, to="bf16")
    wanted = _logits(tmp_path / "bf16", torch.float32)
    assert torch.allclose(_mlx_logits(_mlx_model(tmp_path / "mlx")[0]), wanted, atol=1e-2)
    # and back
    reorder.convert(tmp_path / "mlx", tmp_path / "back", options=_VERIFIED, to="bf16")
    assert _all_same(_tensors(tmp_path / "back"), _tensors(tmp_path / "bf16"))
    for name, each in (("direct", source), ("again", tmp_path / "mlx")):
        reorder.convert(each, tmp_path / name, options=_VERIFIED, to="compressed-tensors")
    assert _all_same(_tensors(tmp_path / "again"), _tensors(tmp_path / "direct"))


def _compressed(value: Any, scheme: Any) -> dict[str, Any]:
    """Return the tensors that compressed-tensors makes of a weight."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    weights = scheme.weights
    size = weights.group_size
    rows, columns = {
        "tensor": value.shape,
        "channel": (1, value.shape[1]),
        "group": (1, size),
        "tensor_group": (1, size),
        "block": weights.block_structure,
    }[weights.strategy]
    parts = value.unflatten(0, (-1, rows)).unflatten(2, (-1, columns))
    low, high = parts.amin((1, 3)), parts.amax((1, 3))
    if weights.strategy == "tensor":
        low, high = low.reshape(1), high.reshape(1)
    state, whole = {"weight": value}, None
    if weights.strategy == "tensor_group":
        whole = state["weight_global_scale"] = generate_gparam(low.amin(), high.amax())
    scale, point = calculate_qparams(low, high, weights, global_scale=whole)
    state["weight_scale"] = scale
    if not weights.symmetric:
        state["weight_zero_point"] = point
    made = BaseCompressor.get_value_from_registry(scheme.format).compress(state, scheme)
    return {role: each.contiguous() for role, each in made.items()}


@pytest.fixture(scope="module")
def by_compressed_tensors(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Return what saves a model whose layers compressed-tensors compresses, once for all tests.

    transformers 5 has the experts of a layer in one tensor, where compressed-tensors finds no
    layers: so it gets the weights as transformers saves them.
    """
    quantization = pytest.importorskip(
        "compressed_tensors.quantization", reason="compressed-tensors is not installed"
    )
    presets = quantization.quant_scheme.PRESET_SCHEMES
    made: dict[tuple[str, str], Path] = {}

    def quantise(kind: str, preset: str) -> Path:
        if (kind, preset) in made:
            return made[kind, preset]
        weights = presets[preset]["weights"]
        if weights.group_size == 128:  # DeepSeek has 64 inputs
            weights = weights.model_copy(update={"group_size": 32})
        form = _PRESETS[preset]
        scheme = quantization.QuantizationScheme(targets=["Linear"], weights=weights, format=form)
        dtype = torch.float16 if form == "pack-quantized" else torch.bfloat16
        folder = _save(tmp_path_factory.mktemp(f"{kind}_{preset}"), kind, dtype)
        tensors: dict[str, Any] = {}
        for name, value in _tensors(folder).items():
            layer = name.removesuffix(".weight")
            ends = ("_proj", "_mqa", *_OF_MIXTRAL.values())
            if layer.endswith(ends) and "vision_tower" not in layer:
                parts = _compressed(value, scheme)
                tensors |= {f"{layer}.{role}": each for role, each in parts.items()}
            else:
                tensors[name] = value
        safetensors.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        section = quantization.QuantizationConfig(
            config_groups={"g": scheme},
            format=form,
            quantization_status="compressed",
            ignore=["re:.*lm_head$", "re:.*[.]gate$", "re:.*(vision_tower|projector).*"],
        )
        config = json.loads((folder / "config.json").read_text())
        config["quantization_config"] = json.loads(section.model_dump_json())
        (folder / "config.json").write_text(json.dumps(config))
        made[kind, preset] = folder
        return folder

    return quantise


@pytest.mark.parametrize("preset", _PRESETS)
@pytest.mark.parametrize("kind", [*_MODELS, "llava"])
def test_models_of_compressed_tensors_are_decoded_as_by_it(
    tmp_path: Path, by_compressed_tensors: Callable[[str, str], Path], kind: str, preset: str
) -> None:
    source = by_compressed_tensors(kind, preset)
    dtype = torch.float16 if _PRESETS[preset] == "pack-quantized" else torch.bfloat16
    to = "f16" if dtype == torch.float16 else "bf16"
    reorder.convert(source, tmp_path / "out", options=_VERIFIED, to=to)
    theirs = _decompressed(source, tmp_path / "theirs", dtype)
    assert _all_same(theirs, _tensors(tmp_path / "out"))
    logits = _logits(tmp_path / "out", dtype)
    assert logits.isfinite().all()
    if preset not in _NOT_LOADED[kind]:
        assert _same(_logits(source, dtype), logits)
    if preset in {"FP8", "FP8_BLOCK"}:
        reorder.convert(source, tmp_path / "fp8", options=_VERIFIED, to="fp8-block")
        assert _same(_logits(tmp_path / "fp8", dtype), logits)


_FOR_MLX = {
    "W8A8": "int_quantized",
    "W4A16": "pack_quantized",
    "W4A16_ASYM": "pack_quantized",
    "W8A16": "pack_quantized(bits=8)",
    "MXFP4A16": "compressed_mxfp4",
    "MXFP8A16": "mxfp8",
}


@pytest.mark.parametrize("preset", _FOR_MLX)
@pytest.mark.parametrize("kind", [*_MODELS, "mixtral"])
def test_mlx_computes_with_models_of_compressed_tensors(
    tmp_path: Path, by_compressed_tensors: Callable[[str, str], Path], kind: str, preset: str
) -> None:
    source = by_compressed_tensors(kind, preset)
    reorder.convert(source, tmp_path / "mlx", options=_VERIFIED, to="mlx")
    reorder.convert(
        source, tmp_path / "plain", map=[f"*: {_FOR_MLX[preset]} -> plain, f32"], options=_VERIFIED
    )
    model, _ = _mlx_model(tmp_path / "mlx")
    weights, plain = _mlx_weights(model), _tensors(tmp_path / "plain")
    assert len(weights) == _COUNTS[kind]
    assert all(_same(weight, plain[name]) for name, weight in weights.items())
    wanted = _logits(tmp_path / "plain", torch.float32)
    assert torch.allclose(_mlx_logits(model), wanted, atol=1e-2)


@pytest.mark.parametrize(("bits", "group"), [(3, 32), (4, 64), (8, 128)])
@pytest.mark.parametrize("kind", [*_MODELS, "mixtral"])
def test_models_of_mlx_lm_are_loaded_by_transformers(
    tmp_path: Path, kind: str, bits: int, group: int
) -> None:
    lm = pytest.importorskip("mlx_lm.utils", reason="mlx-lm is not installed")
    model, config = _mlx_model(_save(tmp_path / "plain", kind, torch.bfloat16))

    def own(name: str, layer: Any) -> Any:  # the down projections have bits of their own
        if "down_proj" in name:
            return {"group_size": 32, "bits": 6}
        return hasattr(layer, "to_quantized") and not name.endswith(".gate")

    model, config = lm.quantize_model(model, config, group, bits, quant_predicate=own)
    (tmp_path / "in").mkdir()
    lm.save_model(tmp_path / "in", model)
    lm.save_config(config, tmp_path / "in/config.json")
    reorder.convert(tmp_path / "in", tmp_path / "out", options=_VERIFIED, to="bf16")
    found = _tensors(tmp_path / "out")
    assert found.keys() == _tensors(tmp_path / "plain").keys()
    weights = _mlx_weights(model)
    assert len(weights) == _COUNTS[kind] + 2  # with embeddings and the head
    assert all(torch.equal(found[name].float(), weight) for name, weight in weights.items())
    wanted = _mlx_logits(lm.dequantize_model(model))
    assert torch.allclose(_logits(tmp_path / "out", torch.float32), wanted, atol=1e-3)


@pytest.mark.parametrize("form", ["nf4", "fp4"])
@pytest.mark.parametrize("kind", _MODELS)
def test_models_of_bitsandbytes_are_decoded_as_by_transformers(
    tmp_path: Path, kind: str, form: str
) -> None:
    for package in ("bitsandbytes", "accelerate"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    section = transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=form, bnb_4bit_compute_dtype=torch.bfloat16
    )
    load = transformers.AutoModelForCausalLM.from_pretrained
    options = {"dtype": torch.bfloat16, "device_map": "cpu"}
    _save(tmp_path / "plain", kind, torch.bfloat16)
    load(tmp_path / "plain", quantization_config=section, **options).save_pretrained(
        tmp_path / "in"
    )
    reorder.convert(tmp_path / "in", tmp_path / "out", options=_VERIFIED, to="bf16")
    model = load(tmp_path / "in", **options).dequantize()
    model.save_pretrained(tmp_path / "theirs")
    found = _tensors(tmp_path / "out")
    assert _all_same(found, _tensors(tmp_path / "theirs"))
    plain = _tensors(tmp_path / "plain")
    assert found.keys() == plain.keys()
    # transformers does not quantise experts, which share a tensor in it
    changed = sum(not torch.equal(found[name], plain[name]) for name in plain)
    assert changed == (_COUNTS[kind] if kind == "llama" else 8)
    logits = _logits(tmp_path / "out", torch.bfloat16)
    assert _same(_logits(tmp_path / "in", torch.bfloat16), logits)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_model_of_hqq_is_decoded_as_by_hqq(tmp_path: Path, bits: int) -> None:
    models = pytest.importorskip("hqq.models.hf.base", reason="hqq or accelerate is missing")
    from hqq.core.quantize import BaseQuantizeConfig, HQQBackend, HQQLinear

    HQQLinear.set_backend(HQQBackend.PYTORCH)
    model = _model("llama", torch.bfloat16)
    config = BaseQuantizeConfig(nbits=bits, group_size=64)
    options = {"compute_dtype": torch.bfloat16, "device": "cpu"}
    models.AutoHQQHFModel.quantize_model(model, config, **options)
    models.AutoHQQHFModel.save_to_safetensors(model, str(tmp_path / "in"))
    # hqq does not declare what its files hold, but its tensors do
    reorder.convert(tmp_path / "in", tmp_path / "out", options=_VERIFIED, to="bf16")
    found = _tensors(tmp_path / "out")
    layers = {n: each for n, each in model.named_modules() if isinstance(each, HQQLinear)}
    assert len(layers) == _COUNTS["llama"]
    for name, layer in layers.items():
        assert _same(found[f"{name}.weight"], layer.dequantize())
    # hqq has rounded the frequencies of positions to bf16
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    with torch.no_grad():
        logits = model(torch.arange(48)[None]).logits
    assert _same(_logits(tmp_path / "out", torch.bfloat16), logits)


# the options of GPTQModel, and what its weights become
_GPTQMODEL: dict[str, dict[str, Any]] = {
    "gptq": {"desc_act": False, "sym": True},
    "gptq_v1": {"desc_act": False, "sym": False, "format": "gptq"},
    "gptq_v2": {"desc_act": False, "sym": False, "format": "gptq_v2"},
    "awq": {"quant_method": "awq", "format": "gemm"},
}


@pytest.fixture(scope="module")
def by_gptqmodel(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Return what quantises a model by GPTQModel, once for all tests."""
    gptqmodel = pytest.importorskip("gptqmodel", reason="gptqmodel is not installed")
    made: dict[tuple[str, str], Path] = {}

    def quantise(kind: str, method: str) -> Path:
        if (kind, method) not in made:
            folder = tmp_path_factory.mktemp(f"{kind}_{method}")
            source = _save(folder / "plain", kind, torch.float16)
            options = gptqmodel.QuantizeConfig(
                bits=4, group_size=64, device="cpu", **_GPTQMODEL[method]
            )
            model = gptqmodel.GPTQModel.load(str(source), options, dtype=torch.float16)
            rng = np.random.default_rng(0)
            rows = rng.integers(0, 64, (64, 64)).tolist()
            texts = [{"input_ids": row, "attention_mask": [1] * 64} for row in rows]
            with chdir(folder):  # it writes a folder of logs
                model.quantize(texts, batch_size=1)
            model.save(str(folder / "made"))
            made[kind, method] = folder / "made"
        return made[kind, method]

    return quantise


def _loaded(folder: Path, method: str) -> Any:
    """Return a model as GPTQModel loads it, with its kernels in torch."""
    gptqmodel = pytest.importorskip("gptqmodel", reason="gptqmodel is not installed")
    backends = gptqmodel.BACKEND
    backend = backends.AWQ_TORCH if method == "awq" else backends.GPTQ_TORCH
    options = {"device": "cpu", "backend": backend, "dtype": torch.float16}
    return gptqmodel.GPTQModel.load(str(folder), **options).model


def _computed(folder: Path, method: str) -> Any:
    with torch.no_grad():
        return _loaded(folder, method)(torch.arange(48)[None]).logits


def _through_transformers(folder: Path, method: str) -> Any:
    """Return the logits of transformers, which asks GPTQModel for the same kernels."""
    if method == "awq":
        section = transformers.AwqConfig(backend="torch_awq")
    else:
        section = transformers.GPTQConfig(4, backend="gptq_torch")
    return _logits(folder, torch.float16, quantization_config=section)


@pytest.mark.parametrize("method", _GPTQMODEL)
@pytest.mark.parametrize("kind", _MODELS)
def test_gptqmodel_computes_the_same_with_the_other_format(
    tmp_path: Path, by_gptqmodel: Callable[[str, str], Path], kind: str, method: str
) -> None:
    source = by_gptqmodel(kind, method)
    other = "gptq" if method == "awq" else "awq"
    reorder.convert(source, tmp_path / other, options=_VERIFIED, to=other)
    logits = _computed(source, method)
    assert logits.isfinite().all()
    assert _same(_computed(tmp_path / other, other), logits)
    assert _same(_through_transformers(tmp_path / other, other), logits)
    # the numbers of its kernel
    gptq = tmp_path / other if other == "gptq" else source
    wanted = {
        name: module.dequantize_weight().T
        for name, module in _loaded(gptq, "gptq").named_modules()
        if hasattr(module, "dequantize_weight")
    }
    assert len(wanted) == _COUNTS[kind]
    for each in (source, tmp_path / other):
        reorder.convert(each, tmp_path / f"{each.name}_f16", options=_VERIFIED, to="f16")
        found = _tensors(tmp_path / f"{each.name}_f16")
        assert all(_same(found[f"{name}.weight"], weight) for name, weight in wanted.items())
    reorder.convert(source, tmp_path / "bf16", options=_VERIFIED, to="bf16")
    plain = _tensors(tmp_path / "bf16")
    assert plain.keys() == _tensors(tmp_path / "made_f16").keys()
    assert _logits(tmp_path / "bf16", torch.bfloat16).isfinite().all()


@pytest.mark.parametrize("method", _GPTQMODEL)
@pytest.mark.parametrize("kind", _MODELS)
def test_models_of_gptqmodel_are_decoded_by_compressed_tensors(
    tmp_path: Path, by_gptqmodel: Callable[[str, str], Path], kind: str, method: str
) -> None:
    source = by_gptqmodel(kind, method)
    reorder.convert(source, tmp_path / "ct", options=_VERIFIED, to="compressed-tensors")
    reorder.convert(source, tmp_path / "f16", options=_VERIFIED, to="f16")
    theirs = _decompressed(tmp_path / "ct", tmp_path / "theirs", torch.float16)
    assert _all_same(theirs, _tensors(tmp_path / "f16"))
    if method not in {"gptq_v1", "gptq_v2"}:
        logits = _logits(tmp_path / "f16", torch.float16)
        assert _same(_logits(tmp_path / "ct", torch.float16), logits)
        return
    # transformers 5.24 does not load zero points; compressed-tensors packs those of AWQ likewise
    from compressed_tensors.entrypoints.convert import AutoAWQConverter, convert_checkpoint

    reorder.convert(source, tmp_path / "awq", options=_VERIFIED, to="awq")
    convert_checkpoint(tmp_path / "awq", tmp_path / "packed", AutoAWQConverter(4, 64), 1, "cpu")
    assert _all_same(_tensors(tmp_path / "packed"), _tensors(tmp_path / "ct"))


@pytest.mark.parametrize("method", _GPTQMODEL)
@pytest.mark.parametrize("kind", _MODELS)
def test_mlx_computes_with_models_of_gptqmodel(
    tmp_path: Path, by_gptqmodel: Callable[[str, str], Path], kind: str, method: str
) -> None:
    source = by_gptqmodel(kind, method)
    reorder.convert(source, tmp_path / "mlx", options=_VERIFIED, to="mlx")
    rule = f"*: {method.partition('_')[0]} -> plain(axes=oi), f32"
    rule = rule.replace("gptq ->", "gptq(zeros=v2) ->") if method == "gptq_v2" else rule
    reorder.convert(source, tmp_path / "plain", map=[rule])
    wanted = _logits(tmp_path / "plain", torch.float32)
    model, _ = _mlx_model(tmp_path / "mlx")
    weights, plain = _mlx_weights(model), _tensors(tmp_path / "plain")
    assert len(weights) == _COUNTS[kind]
    assert all(_same(weight, plain[name]) for name, weight in weights.items())
    assert torch.allclose(_mlx_logits(model), wanted, atol=1e-2)
    # and back to what transformers reads
    for name in ("mlx", "plain"):
        rules, to = ((), "bf16") if name == "mlx" else (["*_proj.weight: bf16"], None)
        reorder.convert(
            tmp_path / name, tmp_path / f"{name}_bf16", map=rules, options=_VERIFIED, to=to
        )
    one, two = (_tensors(tmp_path / f"{name}_bf16") for name in ("mlx", "plain"))
    assert _all_same(one, two)


@pytest.mark.parametrize("preset", ["W4A16", "W4A16_ASYM", "W8A16"])
def test_experts_of_compressed_tensors_become_other_formats(
    tmp_path: Path, by_compressed_tensors: Callable[[str, str], Path], preset: str
) -> None:
    pytest.importorskip("gptqmodel", reason="gptqmodel is not installed")
    source = by_compressed_tensors("qwen3_moe", preset)
    reorder.convert(source, tmp_path / "f16", options=_VERIFIED, to="f16")
    wanted = _logits(tmp_path / "f16", torch.float16)
    logits = {}
    for to in ("gptq",) if preset == "W8A16" else ("gptq", "awq"):
        reorder.convert(source, tmp_path / to, options=_VERIFIED, to=to)
        logits[to] = _computed(tmp_path / to, to)
        assert torch.allclose(logits[to], wanted, atol=1e-2)
    assert all(_same(each, logits["gptq"]) for each in logits.values())


@pytest.mark.parametrize("is_published", [False, True])
def test_transformers_finds_the_parts_of_a_model_in_gptq_and_awq(
    tmp_path: Path, by_compressed_tensors: Callable[[str, str], Path], is_published: bool
) -> None:
    pytest.importorskip("gptqmodel", reason="gptqmodel is not installed")
    shutil.copytree(by_compressed_tensors("llava", "W4A16"), tmp_path / "in")
    if is_published:
        _rename_as_published(tmp_path / "in")
    reorder.convert(tmp_path / "in", tmp_path / "f16", options=_VERIFIED, to="f16")
    wanted = _logits(tmp_path / "f16", torch.float16)
    logits = {}
    for to in ("gptq", "awq"):
        reorder.convert(tmp_path / "in", tmp_path / to, options=_VERIFIED, to=to)
        logits[to] = _through_transformers(tmp_path / to, to)
        assert torch.allclose(logits[to], wanted, atol=1e-2)
    assert _same(logits["awq"], logits["gptq"])
