"""Whole models, dense ones, mixtures of experts, and one for images and text, converted and loaded.

GPTQModel, ModelOpt, mlx-lm and compressed-tensors quantise tiny models with random weights; FP8 in
blocks is made by the formula of DeepSeek-V3. Weights or logits are equal in all bits, except where
a product is summed in another order (MLX) or the formats differ by the reciprocal of a scale
(NVFP4). Sources: DeepSeek-V3, `inference/fp8_cast_bf16.py` and `kernel.py`,
`weight_dequant_kernel`.

GPTQModel changes how transformers loads experts for the rest of the process: its tests are the last
ones here, and this file comes after the others by its name.
"""

import copy
import json
import os
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import reorder
from memdesc import data_type
from memdesc.record import record_desc
from tests.differential.test_decoded import decoded, numbers, of_modelopt, same
from tests.records import random_record

pytestmark = [pytest.mark.judges, pytest.mark.filterwarnings("ignore")]

# GPTQModel 7.7 starts too few threads for itself where there are two cores
os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "2")

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed")
safetensors: Any = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")

SIZES = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
EXPERTS = 4
MODELS = ("llama", "qwen3_moe")
# a part for images, one for text, and a projector between them
_IMAGE, _PATCH = 16, 4
_IMAGE_TOKEN = 63
# matrices of two layers
COUNTS = {"llama": 14, "qwen3_moe": 2 * (4 + 3 * EXPERTS), "mixtral": 2 * (4 + 3 * EXPERTS)}
# without kv_b_proj, which mlx-lm splits; one layer is dense, the other has a shared expert
COUNTS["llava"] = COUNTS["llama"]
COUNTS["deepseek_v3"] = 2 * 4 + 3 + 3 * (EXPERTS + 1)


def config_of(kind: str) -> Any:
    """Return the config of a model."""
    sizes = {"moe_intermediate_size": 128, "intermediate_size": 512, "num_experts_per_tok": 2}
    llama = transformers.LlamaConfig(**SIZES, intermediate_size=512)
    match kind:
        case "llama":
            return llama
        case "qwen3_moe":
            experts = {"num_experts": EXPERTS, "head_dim": 64}
            return transformers.Qwen3MoeConfig(**SIZES, **sizes, **experts)
        case "mixtral":
            experts = {"num_local_experts": EXPERTS, "num_experts_per_tok": 2}
            return transformers.MixtralConfig(**SIZES, intermediate_size=128, **experts)
        case "gpt_oss":
            experts = {"num_local_experts": EXPERTS, "num_experts_per_tok": 2, "head_dim": 64}
            return transformers.GptOssConfig(
                **SIZES, intermediate_size=96, sliding_window=16, dtype="bfloat16", **experts
            )
        case "deepseek_v3":
            heads = {"qk_rope_head_dim": 32, "qk_nope_head_dim": 32, "v_head_dim": 32}
            ranks = {"q_lora_rank": 64, "kv_lora_rank": 64, "num_key_value_heads": 4}
            groups = {"n_routed_experts": EXPERTS, "n_group": 2, "topk_group": 1}
            more = {**sizes, **heads, **ranks, **groups, "first_k_dense_replace": 1}
            return transformers.DeepseekV3Config(**SIZES | more)
    images = {"image_size": _IMAGE, "patch_size": _PATCH, "hidden_size": 128}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256}
    seen = transformers.CLIPVisionConfig(**images, **layers)
    found = transformers.LlavaConfig(
        vision_config=seen, text_config=llama, image_token_index=_IMAGE_TOKEN
    )
    found.tie_word_embeddings = False
    return found


def model_of(kind: str, dtype: Any) -> Any:
    """Return a model with random weights, the same each time."""
    torch.manual_seed(0)
    config = config_of(kind)
    if kind == "llava":
        model = transformers.LlavaForConditionalGeneration(config)
    else:
        model = transformers.AutoModelForCausalLM.from_config(config)
    model.config.architectures = [type(model).__name__]
    return model.to(dtype).eval()


def save_model(folder: Path, kind: str, dtype: Any) -> Path:
    """Save a model that is not quantised, and a tokenizer, which GPTQModel asks for."""
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

    model_of(kind, dtype).save_pretrained(folder)
    special = {"unk_token": "w0", "pad_token": "w1", "bos_token": "w2", "eos_token": "w3"}
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({f"w{k}": k for k in range(64)}, special["unk_token"])
    )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special)
    tokenizer.save_pretrained(folder)
    return folder


def logits_of(folder: Path, dtype: Any, **options: Any) -> Any:
    """Return what transformers computes with a saved model."""
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


def rename_as_published(folder: Path) -> None:
    """Give the part for images its names in published Llava models, which transformers renames."""
    tensors = {
        name.replace("tower.", "tower.vision_model."): each
        for name, each in tensors_in(folder).items()
    }
    save_tensors(folder, tensors)


def tensors_in(folder: Path) -> dict[str, Any]:
    """Return all tensors of a saved model."""
    files = [safetensors.load_file(path) for path in folder.glob("*.safetensors")]
    return {name: tensor for file in files for name, tensor in file.items()}


def save_tensors(folder: Path, tensors: dict[str, Any], **config: Any) -> None:
    """Write the tensors of a model whose config.json is there, and more keys of that."""
    safetensors.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    path = folder / "config.json"
    if config:
        path.write_text(json.dumps(json.loads(path.read_text()) | config))


def is_same(one: Any, other: Any) -> bool:
    """Whether type, shape and numbers of two tensors are equal."""
    return bool(one.dtype == other.dtype and torch.equal(one, other))


def are_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether all tensors of two models are equal."""
    return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)


# what Mixtral calls the layers of an expert
_OF_MIXTRAL = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
_VERIFIED = reorder.checkpoints.ConvertOptions(verify=True)


def _convert(source: Path, target: Path, **how: Any) -> Path:
    """Convert a model, and compare what was written with what was read."""
    reorder.convert(source, target, options=_VERIFIED, **how)
    return target


def _decompressed(folder: Path, target: Path, dtype: Any) -> dict[str, Any]:
    """Return the tensors that compressed-tensors makes of a model in its format."""
    name = "compressed_tensors.entrypoints.convert"
    convert = pytest.importorskip(name, reason="compressed-tensors is not installed")
    section = json.loads((folder / "config.json").read_text())["quantization_config"]
    if "pack" in section["format"]:
        decode = convert.CompressedTensorsDequantizer(str(folder), dtype=dtype)
        convert.convert_checkpoint(str(folder), str(target), decode, 1, "cpu")
        return tensors_in(target)
    # that class asks for scales of norms too where weights of layers have their usual name
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme

    (group,) = section["config_groups"].values()
    scheme = QuantizationScheme.model_validate(group)
    compressor = BaseCompressor.get_value_from_registry(section["format"])
    found = tensors_in(folder)
    for layer in [n.removesuffix(".weight_scale") for n in found if n.endswith(".weight_scale")]:
        state = {role: found.pop(f"{layer}.{role}") for role in ("weight", "weight_scale")}
        found[f"{layer}.weight"] = compressor.decompress(state, scheme)["weight"].to(dtype)
    return found


def _mlx_model(folder: Path) -> tuple[Any, dict[str, Any]]:
    """Load a model by mlx-lm, which reads two keys that transformers 5.24 writes elsewhere."""
    lm = pytest.importorskip("mlx_lm.utils", reason="mlx-lm is not installed")
    config = json.loads((folder / "config.json").read_text())
    config |= {"num_experts": EXPERTS, "rope_theta": config["rope_parameters"]["rope_theta"]}
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
        names = [f"{head}.experts.{k}.{tail}" for k in range(EXPERTS)] if is_stack else [name]
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
_MODELOPT = {
    "fp8": "FP8_DEFAULT_CFG",
    "fp8 in blocks": "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG",
    "nvfp4": "NVFP4_DEFAULT_CFG",
    "mxfp4": "MXFP4_DEFAULT_CFG",
    "mxfp8": "MXFP8_DEFAULT_CFG",
}
# the options of GPTQModel
_GPTQMODEL: dict[str, dict[str, Any]] = {
    "gptq": {"desc_act": False, "sym": True},
    "gptq_v1": {"desc_act": False, "sym": False, "format": "gptq"},
    "gptq_v2": {"desc_act": False, "sym": False, "format": "gptq_v2"},
    "awq": {"quant_method": "awq", "format": "gemm"},
}


def _by_modelopt(folder: Path, kind: str, form: str) -> None:
    name = "modelopt.torch.quantization"
    quantization = pytest.importorskip(name, reason="nvidia-modelopt is not installed")
    from modelopt.torch.export import export_hf_checkpoint

    def calibrate(model: Any) -> None:
        for _ in range(4):
            model(torch.randint(0, 64, (2, 48)))

    config = copy.deepcopy(getattr(quantization, _MODELOPT[form.removesuffix(" and fp8")]))
    for end in ("weight_quantizer", "input_quantizer") if form.endswith(" and fp8") else ():
        own = {"num_bits": (4, 3), "axis": None}
        config["quant_cfg"].append({"quantizer_name": f"*self_attn*{end}", "cfg": own})
    model = quantization.quantize(model_of(kind, torch.bfloat16), config, calibrate)
    with torch.inference_mode():
        export_hf_checkpoint(model, export_dir=str(folder))


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


def _by_compressed_tensors(folder: Path, kind: str, preset: str) -> None:
    """Save a model whose layers compressed-tensors compresses.

    transformers 5 has the experts of a layer in one tensor, where compressed-tensors finds no
    layers: so it gets the weights as transformers saves them.
    """
    name = "compressed_tensors.quantization"
    quantization = pytest.importorskip(name, reason="compressed-tensors is not installed")
    weights = quantization.quant_scheme.PRESET_SCHEMES[preset]["weights"]
    if weights.group_size == 128:  # DeepSeek has 64 inputs
        weights = weights.model_copy(update={"group_size": 32})
    form = _PRESETS[preset]
    scheme = quantization.QuantizationScheme(targets=["Linear"], weights=weights, format=form)
    save_model(folder, kind, _float_of(preset))
    tensors: dict[str, Any] = {}
    for name, value in tensors_in(folder).items():
        layer = name.removesuffix(".weight")
        ends = ("_proj", "_mqa", *_OF_MIXTRAL.values())
        if layer.endswith(ends) and "vision_tower" not in layer:
            parts = _compressed(value, scheme)
            tensors |= {f"{layer}.{role}": each for role, each in parts.items()}
        else:
            tensors[name] = value
    section = quantization.QuantizationConfig(
        config_groups={"g": scheme},
        format=form,
        quantization_status="compressed",
        ignore=["re:.*lm_head$", "re:.*[.]gate$", "re:.*(vision_tower|projector).*"],
    )
    save_tensors(folder, tensors, quantization_config=json.loads(section.model_dump_json()))


def _float_of(preset: str) -> Any:
    """Return the type of the floats of a preset."""
    return torch.float16 if _PRESETS[preset] == "pack-quantized" else torch.bfloat16


def _by_gptqmodel(folder: Path, kind: str, method: str) -> None:
    gptqmodel = pytest.importorskip("gptqmodel", reason="gptqmodel is not installed")
    source = save_model(folder / "plain", kind, torch.float16)
    options = gptqmodel.QuantizeConfig(bits=4, group_size=64, device="cpu", **_GPTQMODEL[method])
    model = gptqmodel.GPTQModel.load(str(source), options, dtype=torch.float16)
    rows = np.random.default_rng(0).integers(0, 64, (64, 64)).tolist()
    texts = [{"input_ids": row, "attention_mask": [1] * 64} for row in rows]
    with chdir(folder):  # it writes a folder of logs
        model.quantize(texts, batch_size=1)
    model.save(str(folder))


def _by_deepseek(folder: Path, kind: str, _: str = "") -> dict[str, Any]:
    """Save a model in FP8 by the formula of DeepSeek-V3; return what DeepSeek casts it to."""
    model_of(kind, torch.bfloat16).save_pretrained(folder)
    tensors = tensors_in(folder)
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
    section: dict[str, Any] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
    save_tensors(folder, tensors, quantization_config=section | {"weight_block_size": [128, 128]})
    return casted


def _as_gpt_oss(folder: Path, _: str = "", __: str = "") -> None:
    """Save a mixture of experts with random blocks and scales, as gpt-oss is stored."""
    model_of("gpt_oss", torch.bfloat16).save_pretrained(folder)
    tensors = tensors_in(folder)
    for name in [each for each in tensors if each.endswith(("gate_up_proj", "down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        shape = experts, outputs, inputs // 32
        tensors[f"{name}_blocks"] = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8)
        tensors[f"{name}_scales"] = torch.randint(117, 123, shape, dtype=torch.uint8)
    kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"]
    section = {"quant_method": "mxfp4", "modules_to_not_convert": kept}
    save_tensors(folder, tensors, quantization_config=section)


_PRODUCERS: dict[str, Callable[[Path, str, str], object]] = {
    "ModelOpt": _by_modelopt,
    "CT": _by_compressed_tensors,
    "GPTQModel": _by_gptqmodel,
    "DeepSeek": _by_deepseek,
    "gpt-oss": _as_gpt_oss,
}


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str], Path]:
    """Return what gives the folder of a model of a producer, made once for all tests."""
    made: dict[tuple[str, ...], Path] = {}

    def find(producer: str, kind: str, form: str = "") -> Path:
        if (producer, kind, form) not in made:
            folder = tmp_path_factory.mktemp(f"{producer}_{kind}_{form}".replace(" ", "_"))
            _PRODUCERS[producer](folder, kind, form)
            made[producer, kind, form] = folder
        return made[producer, kind, form]

    return find


class Row(NamedTuple):
    """Models of a producer, the target that they become, or None, and the library that reads it."""

    producer: str
    kinds: tuple[str, ...]
    forms: tuple[str, ...]
    to: str | None
    reader: str
    # the least and the largest difference that is allowed
    near: dict[str, float] = {}  # noqa: RUF012 - never changed


_EXACT = {"rtol": 0.0, "atol": 0.0}
_ROWS = (
    # of NVFP4 the reciprocal of a scale is rounded to f32, so a few round to another bf16
    Row("ModelOpt", MODELS, ("nvfp4",), "compressed-tensors", "CT", {"rtol": 2**-7, "atol": 0.0}),
    Row("ModelOpt", MODELS, tuple({*_MODELOPT} - {"nvfp4"}), "compressed-tensors", "CT"),
    # without those that transformers does not load, and without FP8, whose scales it rounds to bf16
    Row("ModelOpt", MODELS[:1], ("mxfp4", "mxfp8"), "compressed-tensors", "transformers"),
    Row("ModelOpt", MODELS[1:], ("mxfp4",), "compressed-tensors", "transformers"),
    Row("ModelOpt", MODELS, ("fp8", "fp8 in blocks"), "fp8-block", "transformers"),
    Row("DeepSeek", (*MODELS, "deepseek_v3"), ("",), None, "transformers"),
    Row("gpt-oss", ("gpt_oss",), ("",), None, "transformers"),
    Row("CT", (*MODELS, "llava"), tuple(_PRESETS), None, "CT"),
    # transformers refuses the others, or computes other numbers: docs/records.md
    Row("CT", ("llama", "llava"), tuple({*_PRESETS} - {"W4A16_ASYM"}), None, "transformers"),
    Row(
        "CT",
        ("qwen3_moe",),
        ("FP8", "FP8_DYNAMIC", "W4A16", "W8A16", "MXFP4A16"),
        None,
        "transformers",
    ),
    Row("CT", (*MODELS, "llava"), ("FP8", "FP8_BLOCK"), "fp8-block", "transformers"),
)
_CASES = [(row, kind, form) for row in _ROWS for kind in row.kinds for form in sorted(row.forms)]


@pytest.mark.parametrize(
    ("row", "kind", "form"),
    _CASES,
    ids=[f"{row.producer}, {kind}, {form} -> {row.to}: {row.reader}" for row, kind, form in _CASES],
)
def test_a_reader_gets_the_floats_that_we_get(
    tmp_path: Path, quantised: Callable[[str, str, str], Path], row: Row, kind: str, form: str
) -> None:
    """Law: what a library reads of a model, converted or as it is, equals our floats."""
    source = quantised(row.producer, kind, form)
    is_half = row.producer == "CT" and _float_of(form) == torch.float16
    dtype = torch.float16 if is_half else torch.bfloat16
    floats = _convert(source, tmp_path / "floats", to="f16" if is_half else "bf16")
    target = _convert(source, tmp_path / "target", to=row.to) if row.to else source
    if row.reader == "CT":
        ours, theirs = tensors_in(floats), _decompressed(target, tmp_path / "theirs", dtype)
        if kind in COUNTS:
            layers = [
                name for name in ours if name.endswith("_proj.weight") and "vision" not in name
            ]
            assert len(layers) == COUNTS[kind]
        assert ours.keys() == theirs.keys()
        for name, tensor in ours.items():
            assert torch.allclose(theirs[name], tensor, **row.near or _EXACT)
    else:
        logits = logits_of(floats, dtype)
        assert logits.isfinite().all()
        assert is_same(logits_of(target, dtype), logits)


@pytest.mark.parametrize("form", [*_MODELOPT, "nvfp4 and fp8"])
def test_models_of_modelopt_are_decoded_as_by_it(
    tmp_path: Path, quantised: Callable[[str, str, str], Path], form: str
) -> None:
    source = quantised("ModelOpt", "llama", form)
    held = tensors_in(source)
    with reorder.open_checkpoint(source) as checkpoint:
        for layer in ("self_attn.q_proj", "mlp.up_proj", "mlp.down_proj"):
            name = f"model.layers.0.{layer}"
            roles = ("weight", "weight_scale", "weight_scale_2")
            tensors = {r: held[f"{name}.{r}"] for r in roles if f"{name}.{r}" in held}
            record = checkpoint.record(name)
            if record.desc.name == "fp8_tensor":  # ModelOpt has a class for blocks of 128 only
                wanted = tensors["weight"].float() * tensors["weight_scale"]
            else:
                wanted = of_modelopt(tensors, "f32")
            is_signed = record.desc.name != "modelopt_nvfp4"
            assert same(decoded(record, "f32"), numbers(wanted), is_signed=is_signed)
    if form == "nvfp4 and fp8":
        rules = ["*.self_attn.*: fp8_tensor -> plain, bf16"]
        rules += ["*.mlp.*: modelopt_nvfp4 -> plain, bf16"]
        report = reorder.convert(source, tmp_path / "out", map=rules)
        assert report.converted == COUNTS["llama"]


def test_nvfp4_of_modelopt_becomes_what_compressed_tensors_converts_it_to_and_back(
    tmp_path: Path, quantised: Callable[[str, str, str], Path]
) -> None:
    name = "compressed_tensors.entrypoints.convert"
    convert = pytest.importorskip(name, reason="compressed-tensors is not installed")
    source = quantised("ModelOpt", "llama", "nvfp4")
    rule = "*: modelopt_nvfp4 -> compressed_nvfp4"
    report = reorder.convert(source, tmp_path / "out", map=[rule])
    said = "weight_scale * weight_scale_2 becomes weight_scale / weight_global_scale, with the"
    assert any(said in warning for warning in report.warnings)
    held, found = tensors_in(source), tensors_in(tmp_path / "out")
    wanted = convert.ModelOptNvfp4Converter(targets=["re:.*proj$"]).process(dict(held))
    parts = ("weight_packed", "weight_scale", "weight_global_scale")
    names = [each for each in wanted if each.endswith(parts)]
    assert len(names) == 3 * COUNTS["llama"]
    for name in names:
        words = (each[name].reshape(-1).view(torch.uint8) for each in (found, wanted))
        assert torch.equal(*words)
    rule = "*: compressed_nvfp4 -> modelopt_nvfp4"
    back = _convert(quantised("CT", "llama", "NVFP4A16"), tmp_path / "back", map=[rule])
    section = json.loads((back / "config.json").read_text())["quantization_config"]
    assert section["quant_algo"] == "NVFP4"
    held = tensors_in(back)
    layer = "model.layers.0.self_attn.q_proj"
    roles = ("weight", "weight_scale", "weight_scale_2")
    theirs = of_modelopt({role: held[f"{layer}.{role}"] for role in roles}, "bf16")
    floats = _convert(quantised("CT", "llama", "NVFP4A16"), tmp_path / "floats", to="bf16")
    assert same(numbers(theirs), numbers(tensors_in(floats)[f"{layer}.weight"]), is_signed=False)


def test_experts_of_gpt_oss_are_moved_and_back(
    tmp_path: Path, quantised: Callable[[str, str], Path]
) -> None:
    source = quantised("gpt-oss", "gpt_oss")
    logits = logits_of(source, torch.bfloat16)
    # transformers has inputs before outputs
    plain = _convert(source, tmp_path / "out", map=["*: gpt_oss_mxfp4 -> acb, bf16"])
    assert is_same(logits_of(plain, torch.bfloat16), logits)
    first, second = "*: gpt_oss_mxfp4 -> modelopt_mxfp4", "*: modelopt_mxfp4 -> gpt_oss_mxfp4"
    there = _convert(source, tmp_path / "a", map=[first])
    back = _convert(there, tmp_path / "b", map=[second])
    assert is_same(logits_of(back, torch.bfloat16), logits)


def test_nvfp4_experts_of_modelopt_have_inputs_first(
    quantised: Callable[[str, str, str], Path],
) -> None:
    source = quantised("ModelOpt", "gpt_oss", "nvfp4")
    held = tensors_in(source)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    codes, scales = (held[f"{name}{end}"].transpose(1, 2) for end in ("", "_weight_scale"))
    tensors = {"weight": codes, "scale": scales, "scale_2": held[f"{name}_weight_scale_2"]}
    theirs = numbers(of_modelopt(tensors, "f32"))
    with reorder.open_checkpoint(source) as checkpoint:
        record = checkpoint.record(name)
    sizes = EXPERTS, config_of("gpt_oss").hidden_size, 2 * config_of("gpt_oss").intermediate_size
    assert record.desc == record_desc(sizes, "modelopt_nvfp4")
    assert same(decoded(record, "f32").transpose(0, 2, 1), theirs, is_signed=False)
    made = reorder.records.repack(record, "compressed_nvfp4", exact=False)
    assert made.desc == record_desc((sizes[0], *sizes[:0:-1]), "compressed_nvfp4")
    assert np.allclose(decoded(made, "f32"), theirs, rtol=2**-22, atol=0)


def test_fp8_becomes_what_deepseek_casts_it_to(tmp_path: Path) -> None:
    for kind in (*MODELS, "deepseek_v3"):
        casted = _by_deepseek(tmp_path / kind, kind)
        out = _convert(tmp_path / kind, tmp_path / f"{kind} out", to="bf16")
        assert are_same(tensors_in(out), casted)


def test_mlx_lm_loads_the_numbers_to_which_it_decodes_fp8_itself(tmp_path: Path) -> None:
    utils = pytest.importorskip("mlx.utils", reason="mlx is not installed")
    _by_deepseek(tmp_path / "in", "deepseek_v3")
    _convert(tmp_path / "in", tmp_path / "out", to="bf16")
    models = [_mlx_model(tmp_path / name)[0] for name in ("in", "out")]
    theirs, ours = (dict(utils.tree_flatten(model.parameters())) for model in models)
    assert theirs.keys() == ours.keys()
    assert all(theirs[name].dtype == ours[name].dtype for name in theirs)
    assert all(bool((theirs[name] == ours[name]).all()) for name in theirs)


@pytest.mark.parametrize("kind", MODELS)
def test_floats_become_the_fp8_that_producers_make_and_transformers_loads(
    tmp_path: Path, kind: str
) -> None:
    name = "compressed_tensors.quantization"
    quantization = pytest.importorskip(name, reason="compressed-tensors is not installed")
    from compressed_tensors.quantization.utils import calculate_qparams
    from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear

    model_of(kind, torch.bfloat16).save_pretrained(tmp_path / "plain")
    _convert(tmp_path / "plain", tmp_path / "fp8", to="fp8-block")
    plain, made = tensors_in(tmp_path / "plain"), tensors_in(tmp_path / "fp8")
    names = [name for name in plain if name.endswith("_proj.weight")]
    assert len(names) == COUNTS[kind]
    wanted = dict(plain)
    arguments = quantization.QuantizationArgs(
        num_bits=8, type="float", strategy="block", block_structure=[128, 128]
    )
    for name in names:
        weight = plain[name].float()
        blocks = weight.unflatten(0, (-1, 128)).unflatten(2, (-1, 128))
        scales, points = calculate_qparams(blocks.amin((1, 3)), blocks.amax((1, 3)), arguments)
        codes = quantization.quantize(weight, scales, points, arguments, dtype=torch.float8_e4m3fn)
        wanted |= {name: codes, f"{name}_scale_inv": scales}
        each = scales.repeat_interleave(128, 0).repeat_interleave(128, 1)
        plain[name] = (codes.float() * each).bfloat16()
    assert made.keys() == wanted.keys()
    assert all(made[name].dtype == wanted[name].dtype for name in made)
    assert all(torch.equal(made[n].view(torch.uint8), wanted[n].view(torch.uint8)) for n in made)
    # and back
    _convert(tmp_path / "fp8", tmp_path / "bf16", to="bf16")
    assert are_same(tensors_in(tmp_path / "bf16"), plain)
    # without a GPU, transformers decodes the weights as it loads them
    logits = logits_of(tmp_path / "bf16", torch.bfloat16)
    assert is_same(logits_of(tmp_path / "fp8", torch.bfloat16), logits)
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
    model_of("llava", torch.bfloat16).save_pretrained(tmp_path / "plain")
    if is_published:
        rename_as_published(tmp_path / "plain")
    # all linear layers of both parts become FP8, the projector does not
    _convert(tmp_path / "plain", tmp_path / "fp8", to="fp8-block")
    codes = [each for each in tensors_in(tmp_path / "fp8").values() if each.dtype.itemsize == 1]
    assert len(codes) == COUNTS["llava"] + 2 * 6
    _convert(tmp_path / "fp8", tmp_path / "bf16", to="bf16")
    logits = logits_of(tmp_path / "bf16", torch.bfloat16)
    assert is_same(logits_of(tmp_path / "fp8", torch.bfloat16), logits)
    assert logits.isfinite().all()
    _convert(tmp_path / "fp8", tmp_path / "ct", to="compressed-tensors")
    # transformers rounds scales of FP8 to bf16 first
    _convert(tmp_path / "ct", tmp_path / "f32", map=["*: fp8_block -> plain, f32"])
    wanted = logits_of(tmp_path / "f32", torch.float32)
    assert is_same(logits_of(tmp_path / "ct", torch.float32), wanted)


@pytest.mark.parametrize(("bits", "group"), [(3, 32), (4, 64), (8, 128)])
@pytest.mark.parametrize("kind", [*MODELS, "mixtral"])
def test_models_of_mlx_lm_are_loaded_by_transformers(
    tmp_path: Path, kind: str, bits: int, group: int
) -> None:
    lm = pytest.importorskip("mlx_lm.utils", reason="mlx-lm is not installed")
    model, config = _mlx_model(save_model(tmp_path / "plain", kind, torch.bfloat16))

    def own(name: str, layer: Any) -> Any:  # the down projections have bits of their own
        if "down_proj" in name:
            return {"group_size": 32, "bits": 6}
        return hasattr(layer, "to_quantized") and not name.endswith(".gate")

    model, config = lm.quantize_model(model, config, group, bits, quant_predicate=own)
    (tmp_path / "in").mkdir()
    lm.save_model(tmp_path / "in", model)
    lm.save_config(config, tmp_path / "in/config.json")
    _convert(tmp_path / "in", tmp_path / "out", to="bf16")
    found = tensors_in(tmp_path / "out")
    assert found.keys() == tensors_in(tmp_path / "plain").keys()
    weights = _mlx_weights(model)
    assert len(weights) == COUNTS[kind] + 2  # with embeddings and the head
    assert all(torch.equal(found[name].float(), weight) for name, weight in weights.items())
    wanted = _mlx_logits(lm.dequantize_model(model))
    assert torch.allclose(logits_of(tmp_path / "out", torch.float32), wanted, atol=1e-3)


@pytest.mark.parametrize("form", ["nf4", "fp4"])
@pytest.mark.parametrize("kind", MODELS)
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
    save_model(tmp_path / "plain", kind, torch.bfloat16)
    load(tmp_path / "plain", quantization_config=section, **options).save_pretrained(
        tmp_path / "in"
    )
    _convert(tmp_path / "in", tmp_path / "out", to="bf16")
    model = load(tmp_path / "in", **options).dequantize()
    model.save_pretrained(tmp_path / "theirs")
    found = tensors_in(tmp_path / "out")
    assert are_same(found, tensors_in(tmp_path / "theirs"))
    plain = tensors_in(tmp_path / "plain")
    assert found.keys() == plain.keys()
    # transformers does not quantise experts, which share a tensor in it
    changed = sum(not torch.equal(found[name], plain[name]) for name in plain)
    assert changed == (COUNTS[kind] if kind == "llama" else 8)
    # the codes themselves are multiplied by kernels that sum in another order
    logits = [logits_of(tmp_path / name, torch.bfloat16) for name in ("theirs", "out")]
    assert torch.equal(*logits)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_model_of_hqq_is_decoded_as_by_hqq(tmp_path: Path, bits: int) -> None:
    models = pytest.importorskip("hqq.models.hf.base", reason="hqq or accelerate is missing")
    from hqq.core.quantize import BaseQuantizeConfig, HQQBackend, HQQLinear

    HQQLinear.set_backend(HQQBackend.PYTORCH)
    model = model_of("llama", torch.bfloat16)
    config = BaseQuantizeConfig(nbits=bits, group_size=64)
    options = {"compute_dtype": torch.bfloat16, "device": "cpu"}
    models.AutoHQQHFModel.quantize_model(model, config, **options)
    models.AutoHQQHFModel.save_to_safetensors(model, str(tmp_path / "in"))
    # hqq does not declare what its files hold, but its tensors do
    _convert(tmp_path / "in", tmp_path / "out", to="bf16")
    found = tensors_in(tmp_path / "out")
    layers = {n: each for n, each in model.named_modules() if isinstance(each, HQQLinear)}
    assert len(layers) == COUNTS["llama"]
    for name, layer in layers.items():
        assert is_same(found[f"{name}.weight"], layer.dequantize())
    # hqq has rounded the frequencies of positions to bf16
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    with torch.no_grad():
        logits = model(torch.arange(48)[None]).logits
    assert is_same(logits_of(tmp_path / "out", torch.bfloat16), logits)


def _saved(folder: Path, name: str, *, plain: bool, **options: Any) -> Path:
    """Save a model with a record of random codes for each layer, or with their numbers."""
    rng = np.random.default_rng(0)
    model_of("llama", torch.bfloat16).save_pretrained(folder)
    tensors: dict[str, Any] = tensors_in(folder)
    for each in [each for each in tensors if each.endswith("_proj.weight")]:
        dims = tuple(tensors.pop(each).shape)
        turns = name == "gptq"
        desc = record_desc(dims[::-1] if turns else dims, name, **options)
        record = random_record(desc, rng)
        scale = desc.field(desc.rule.scale[0].parts[0][0])
        values = rng.random(scale.layout.dims) / 64 + 1e-3
        record.set_field(scale.name, values.astype(scale.desc.dtype.numpy))
        if desc.rule.zero is None:  # codes of f8, without NaN
            record.set_field("weight", rng.standard_normal(dims).astype(data_type("f8_e4m3").numpy))
        else:
            half = np.full(desc.field("qzeros").layout.dims, (1 << options["bits"] - 1) - 1)
            record.set_field("qzeros", half)
        made = reorder.dequantize(record, dtype="bf16" if turns else "f32").numpy()
        plain_numbers = reorder.reorder(np.ascontiguousarray(made.T if turns else made), "ab")
        tensors |= {each: plain_numbers} if plain else {each.removesuffix(".weight"): record}
    reorder.save(folder / "model.safetensors", tensors)
    return folder


def _form_of(folder: Path) -> str:
    config = json.loads((folder / "config.json").read_text())
    return str(config["quantization_config"]["format"])


@pytest.mark.parametrize("bits", [4, 8])
def test_integers_written_here_give_the_logits_of_the_numbers(tmp_path: Path, bits: int) -> None:
    options = {"group": 8, "bits": bits, "scales": "bf16"}
    plain = _saved(tmp_path / "plain", "gptq", plain=True, **options)
    source = _saved(tmp_path / "gptq", "gptq", plain=False, **options)
    wanted = logits_of(plain, torch.bfloat16)
    some = "*mlp*: pack_quantized -> int_quantized", "*attn*: pack_quantized -> pack_quantized"
    for number, (form, rules) in enumerate(
        {
            "pack-quantized": [f"*: gptq(bits={bits}) -> pack_quantized"],
            "mixed-precision": [*some],
            "int-quantized": ["*: pack_quantized -> int_quantized"],
        }.items()
    ):
        target = _convert(source, tmp_path / str(number), map=rules)
        source = target if form == "pack-quantized" else source
        assert _form_of(target) == form
        assert is_same(logits_of(target, torch.bfloat16), wanted)


@pytest.mark.parametrize("name", ["fp8_block", "fp8_channel", "fp8_tensor"])
def test_fp8_written_here_gives_the_logits_of_the_numbers_in_f32(tmp_path: Path, name: str) -> None:
    plain = _saved(tmp_path / "plain", name, plain=True)
    source = _saved(tmp_path / "in", name, plain=False)
    config = json.loads((source / "config.json").read_text())
    section = {"quant_method": "compressed-tensors"}
    (source / "config.json").write_text(json.dumps(config | {"quantization_config": section}))
    out = _convert(source, tmp_path / "out", map=[f"*: {name} -> {name}"])
    assert _form_of(out) == "float-quantized"
    assert is_same(logits_of(out, torch.float32), logits_of(plain, torch.float32))


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
    return logits_of(folder, torch.float16, quantization_config=section)


@pytest.mark.parametrize("method", _GPTQMODEL)
@pytest.mark.parametrize("kind", MODELS)
def test_gptqmodel_computes_the_same_with_the_other_format(
    tmp_path: Path, quantised: Callable[[str, str, str], Path], kind: str, method: str
) -> None:
    source = quantised("GPTQModel", kind, method)
    other = "gptq" if method == "awq" else "awq"
    _convert(source, tmp_path / other, to=other)
    logits = _computed(source, method)
    assert logits.isfinite().all()
    assert is_same(_computed(tmp_path / other, other), logits)
    assert is_same(_through_transformers(tmp_path / other, other), logits)
    # the numbers of its kernel
    gptq = tmp_path / other if other == "gptq" else source
    wanted = {
        name: module.dequantize_weight().T
        for name, module in _loaded(gptq, "gptq").named_modules()
        if hasattr(module, "dequantize_weight")
    }
    assert len(wanted) == COUNTS[kind]
    for each in (source, tmp_path / other):
        _convert(each, tmp_path / f"{each.name}_f16", to="f16")
        found = tensors_in(tmp_path / f"{each.name}_f16")
        assert all(is_same(found[f"{name}.weight"], weight) for name, weight in wanted.items())
    _convert(source, tmp_path / "bf16", to="bf16")
    plain = tensors_in(tmp_path / "bf16")
    assert plain.keys() == tensors_in(tmp_path / f"{source.name}_f16").keys()
    assert logits_of(tmp_path / "bf16", torch.bfloat16).isfinite().all()


@pytest.mark.parametrize("method", _GPTQMODEL)
@pytest.mark.parametrize("kind", MODELS)
def test_models_of_gptqmodel_are_decoded_by_compressed_tensors(
    tmp_path: Path, quantised: Callable[[str, str, str], Path], kind: str, method: str
) -> None:
    source = quantised("GPTQModel", kind, method)
    _convert(source, tmp_path / "ct", to="compressed-tensors")
    _convert(source, tmp_path / "f16", to="f16")
    theirs = _decompressed(tmp_path / "ct", tmp_path / "theirs", torch.float16)
    assert are_same(theirs, tensors_in(tmp_path / "f16"))
    if method not in {"gptq_v1", "gptq_v2"}:
        logits = logits_of(tmp_path / "f16", torch.float16)
        assert is_same(logits_of(tmp_path / "ct", torch.float16), logits)
        return
    # transformers 5.24 does not load zero points; compressed-tensors packs those of AWQ likewise
    from compressed_tensors.entrypoints.convert import AutoAWQConverter, convert_checkpoint

    _convert(source, tmp_path / "awq", to="awq")
    convert_checkpoint(tmp_path / "awq", tmp_path / "packed", AutoAWQConverter(4, 64), 1, "cpu")
    assert are_same(tensors_in(tmp_path / "packed"), tensors_in(tmp_path / "ct"))


@pytest.mark.parametrize("preset", ["W4A16", "W4A16_ASYM", "W8A16"])
def test_experts_of_compressed_tensors_become_other_formats(
    tmp_path: Path, quantised: Callable[[str, str, str], Path], preset: str
) -> None:
    pytest.importorskip("gptqmodel", reason="gptqmodel is not installed")
    source = quantised("CT", "qwen3_moe", preset)
    _convert(source, tmp_path / "f16", to="f16")
    wanted = logits_of(tmp_path / "f16", torch.float16)
    logits = {}
    for to in ("gptq",) if preset == "W8A16" else ("gptq", "awq"):
        _convert(source, tmp_path / to, to=to)
        logits[to] = _computed(tmp_path / to, to)
        assert torch.allclose(logits[to], wanted, atol=1e-2)
    assert all(is_same(each, logits["gptq"]) for each in logits.values())


@pytest.mark.parametrize("is_published", [False, True])
def test_transformers_finds_the_parts_of_a_model_in_gptq_and_awq(
    tmp_path: Path, quantised: Callable[[str, str, str], Path], is_published: bool
) -> None:
    pytest.importorskip("gptqmodel", reason="gptqmodel is not installed")
    shutil.copytree(quantised("CT", "llava", "W4A16"), tmp_path / "in")
    if is_published:
        rename_as_published(tmp_path / "in")
    _convert(tmp_path / "in", tmp_path / "f16", to="f16")
    wanted = logits_of(tmp_path / "f16", torch.float16)
    logits = {}
    for to in ("gptq", "awq"):
        _convert(tmp_path / "in", tmp_path / to, to=to)
        logits[to] = _through_transformers(tmp_path / to, to)
        assert torch.allclose(logits[to], wanted, atol=1e-2)
    assert is_same(logits["awq"], logits["gptq"])
