"""Whole models, dense ones, mixtures of experts, and one for images and text, converted and loaded.

Each library quantises tiny models with random weights; FP8 in blocks is made by the formula of
DeepSeek-V3. Weights or logits are equal in all bits, but where the formats differ by the reciprocal
of a scale (NVFP4), or kernels sum in another order. Sources: DeepSeek-V3,
`inference/fp8_cast_bf16.py` and `kernel.py`, `weight_dequant_kernel`.

GPTQModel changes how transformers loads experts for the rest of the process: its tests are the last
ones here, and this file comes after the others by its name.
"""

import copy
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import chdir
from itertools import product
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

Tensors = dict[str, Any]


def asked(name: str, package: str = "") -> Any:
    """Return a module, or skip the test where its package is not installed."""
    return pytest.importorskip(name, reason=f"{package or name} is not installed")


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
_PICTURES = {"image_size": _IMAGE, "patch_size": _PATCH}
_IMAGE_TOKEN = 63
# matrices of two layers
COUNTS = {"llama": 14, "qwen3_moe": 2 * (4 + 3 * EXPERTS), "mixtral": 2 * (4 + 3 * EXPERTS)}
# without kv_b_proj, which mlx-lm splits; one layer is dense, the other has a shared expert
COUNTS["llava"] = COUNTS["llava published"] = COUNTS["llama"]
COUNTS["deepseek_v3"] = 2 * 4 + 3 + 3 * (EXPERTS + 1)


# the sizes of a config beside those of all
_CONFIGS = """
llama Llama intermediate_size=512
qwen3_moe Qwen3Moe intermediate_size=512 moe_intermediate_size=128 num_experts_per_tok=2 \
num_experts=4 head_dim=64
mixtral Mixtral intermediate_size=128 num_experts_per_tok=2 num_local_experts=4
gpt_oss GptOss intermediate_size=96 num_experts_per_tok=2 num_local_experts=4 head_dim=64 \
sliding_window=16 dtype="bfloat16"
deepseek_v3 DeepseekV3 intermediate_size=512 moe_intermediate_size=128 num_experts_per_tok=2 \
n_routed_experts=4 n_group=2 topk_group=1 first_k_dense_replace=1 q_lora_rank=64 kv_lora_rank=64 \
num_key_value_heads=4 qk_rope_head_dim=32 qk_nope_head_dim=32 v_head_dim=32
image CLIPVision hidden_size=128 num_attention_heads=2 intermediate_size=256 image_size=16 \
patch_size=4
"""


def config_of(kind: str) -> Any:
    """Return the config of a model, or of the part for images of one."""
    if kind.startswith("llava"):
        parts = {"vision_config": config_of("image"), "text_config": config_of("llama")}
        found = transformers.LlavaConfig(**parts, image_token_index=_IMAGE_TOKEN)
        found.tie_word_embeddings = False
        return found
    rows = {name: words for name, *words in map(str.split, _CONFIGS.strip().splitlines())}
    name, *sizes = rows[kind]
    own = {key: json.loads(size) for key, size in (each.split("=") for each in sizes)}
    common = SIZES if kind != "image" else {"num_hidden_layers": SIZES["num_hidden_layers"]}
    return getattr(transformers, f"{name}Config")(**common | own)


def model_of(kind: str, dtype: Any) -> Any:
    """Return a model with random weights, the same each time."""
    torch.manual_seed(0)
    config = config_of(kind)
    if kind.startswith("llava"):
        model = transformers.LlavaForConditionalGeneration(config)
    else:
        model = transformers.AutoModelForCausalLM.from_config(config)
    model.config.architectures = [type(model).__name__]
    return model.to(dtype).eval()


def save_model(folder: Path, kind: str, dtype: Any) -> Path:
    """Save a model that is not quantised, and a tokenizer, which GPTQModel asks for."""
    tokenizers = asked("tokenizers")

    model_of(kind, dtype).save_pretrained(folder)
    if kind.endswith("published"):  # names of the part for images, which transformers changes
        found = tensors_in(folder)
        renamed = {name.replace("tower.", "tower.vision_model."): found[name] for name in found}
        save_tensors(folder, renamed)
    special = {"unk_token": "w0", "pad_token": "w1", "bos_token": "w2", "eos_token": "w3"}
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({f"w{k}": k for k in range(64)}, special["unk_token"])
    )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special)
    tokenizer.save_pretrained(folder)
    return folder


def logits_of(folder: Path, dtype: Any, **options: Any) -> Any:
    """Return what transformers computes with a saved model."""
    is_llava = _config(folder)["model_type"] == "llava"
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


def tensors_in(folder: Path) -> Tensors:
    """Return all tensors of a saved model."""
    files = [safetensors.load_file(path) for path in folder.glob("*.safetensors")]
    return {name: tensor for file in files for name, tensor in file.items()}


def _config(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


def save_tensors(folder: Path, tensors: Tensors, **config: Any) -> None:
    """Write the tensors of a model whose config.json is there, and more keys of that."""
    safetensors.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(_config(folder) | config))


# what Mixtral calls the layers of an expert
_OF_MIXTRAL = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
_VERIFIED = reorder.checkpoints.ConvertOptions(verify=True)


def _convert(source: Path, target: Path, steps: str) -> Path:
    """Convert a model, step by step, and compare what was written with what was read.

    A step is a target, or rules with commas between them and semicolons after the step.
    """
    for k, step in enumerate(filter(None, steps.split("; "))):
        made = target.with_name(f"{target.name}_{k}")
        how: Any = {"map": step.split(" & ")} if "->" in step else {"to": step}
        reorder.convert(source, made, options=_VERIFIED, **how)
        source = made
    return source


# How libraries quantise: each saves a model, and returns the numbers that it decodes it to.


def _by_modelopt(folder: Path, kind: str, form: str) -> None:
    quantization = asked("modelopt.torch.quantization", "nvidia-modelopt")
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


_MODELOPT = {
    "fp8": "FP8_DEFAULT_CFG",
    "fp8 in blocks": "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG",
    "nvfp4": "NVFP4_DEFAULT_CFG",
    "mxfp4": "MXFP4_DEFAULT_CFG",
    "mxfp8": "MXFP8_DEFAULT_CFG",
}
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


def _compressed(value: Any, scheme: Any) -> Tensors:
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
    quantization = asked("compressed_tensors.quantization", "compressed-tensors")
    weights = quantization.quant_scheme.PRESET_SCHEMES[preset]["weights"]
    if weights.group_size == 128:  # DeepSeek has 64 inputs
        weights = weights.model_copy(update={"group_size": 32})
    form = _PRESETS[preset]
    scheme = quantization.QuantizationScheme(targets=["Linear"], weights=weights, format=form)
    save_model(folder, kind, _float_of("CT", preset))
    tensors: Tensors = {}
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


# the options of GPTQModel
_GPTQMODEL: dict[str, dict[str, Any]] = {
    "gptq": {"desc_act": False, "sym": True},
    "gptq_v1": {"desc_act": False, "sym": False, "format": "gptq"},
    "gptq_v2": {"desc_act": False, "sym": False, "format": "gptq_v2"},
    "awq": {"quant_method": "awq", "format": "gemm"},
}


def _by_gptqmodel(folder: Path, kind: str, method: str) -> Tensors:
    gptqmodel = asked("gptqmodel")
    source = save_model(folder / "plain", kind, torch.float16)
    options = gptqmodel.QuantizeConfig(bits=4, group_size=64, device="cpu", **_GPTQMODEL[method])
    model = gptqmodel.GPTQModel.load(str(source), options, dtype=torch.float16)
    rows = np.random.default_rng(0).integers(0, 64, (64, 64)).tolist()
    texts = [{"input_ids": row, "attention_mask": [1] * 64} for row in rows]
    with chdir(folder):  # it writes a folder of logs
        model.quantize(texts, batch_size=1)
    model.save(str(folder))
    # the kernel of GPTQ has the numbers
    gptq = _convert(folder, folder / "as", "gptq" if method == "awq" else "")
    return {
        f"{name}.weight": module.dequantize_weight().T
        for name, module in _loaded(gptq).named_modules()
        if hasattr(module, "dequantize_weight")
    }


def _by_deepseek(folder: Path, kind: str, _: str) -> Tensors:
    """Save a model in FP8 by the formula of DeepSeek-V3, which also casts it back."""
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


def _as_gpt_oss(folder: Path, kind: str, _: str) -> None:
    """Save a mixture of experts with random blocks and scales, as gpt-oss is stored."""
    model_of(kind, torch.bfloat16).save_pretrained(folder)
    tensors = tensors_in(folder)
    for name in [each for each in tensors if each.endswith(("gate_up_proj", "down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        shape = experts, outputs, inputs // 32
        tensors[f"{name}_blocks"] = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8)
        tensors[f"{name}_scales"] = torch.randint(117, 123, shape, dtype=torch.uint8)
    kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"]
    section = {"quant_method": "mxfp4", "modules_to_not_convert": kept}
    save_tensors(folder, tensors, quantization_config=section)


def _by_mlx(folder: Path, kind: str, form: str) -> Tensors:
    """Save a model of mlx-lm by bits and groups; its down projections may have their own."""
    lm = asked("mlx_lm.utils", "mlx-lm")
    bits, group, *alike = form.split()
    model, config = _mlx_model(save_model(folder / "plain", kind, torch.bfloat16))

    def own(name: str, layer: Any) -> Any:
        if "down_proj" in name and not alike:
            return {"group_size": 32, "bits": 6}
        return hasattr(layer, "to_quantized") and not name.endswith(".gate")

    model, config = lm.quantize_model(model, config, int(group), int(bits), quant_predicate=own)
    lm.save_model(folder, model)
    lm.save_config(config, folder / "config.json")
    return _mlx_weights(model)


def _mlx_model(folder: Path) -> tuple[Any, dict[str, Any]]:
    """Load a model by mlx-lm, which reads two keys that transformers 5.24 writes elsewhere."""
    lm = asked("mlx_lm.utils", "mlx-lm")
    config = _config(folder)
    if "rope_parameters" in config:
        config |= {"num_experts": EXPERTS, "rope_theta": config["rope_parameters"]["rope_theta"]}
    (folder / "config.json").write_text(json.dumps(config))
    found: tuple[Any, dict[str, Any]] = lm.load_model(folder)
    return found


def _mlx_weights(model: Any) -> Tensors:
    """Return the weights as MLX decodes them, with experts under the names that others use.

    MLX has the embeddings and the head among them if it quantised the model itself.
    """
    core = asked("mlx.core", "mlx")
    found: Tensors = {}
    for name, layer in model.named_modules():
        if not hasattr(layer, "scales"):
            continue
        parts = layer.weight, layer.scales, getattr(layer, "biases", None)
        steps = {"group_size": layer.group_size, "bits": layer.bits, "mode": layer.mode}
        made = torch.from_numpy(numbers(core.dequantize(*parts, **steps))).to(torch.bfloat16)
        head, is_stack, tail = name.partition(".switch_mlp.")
        tail = _OF_MIXTRAL[tail] if head.endswith("block_sparse_moe") else tail
        names = [f"{head}.experts.{k}.{tail}" for k in range(EXPERTS)] if is_stack else [name]
        made = made if is_stack else made[None]
        found |= {f"{each}.weight": one for each, one in zip(names, made, strict=True)}
    return found


def _by_bitsandbytes(folder: Path, kind: str, form: str) -> Tensors:
    for package in ("bitsandbytes", "accelerate"):
        asked(package)
    section = transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=form, bnb_4bit_compute_dtype=torch.bfloat16
    )
    load = transformers.AutoModelForCausalLM.from_pretrained
    options = {"dtype": torch.bfloat16, "device_map": "cpu"}
    plain = save_model(folder / "plain", kind, torch.bfloat16)
    load(plain, quantization_config=section, **options).save_pretrained(folder)
    load(folder, **options).dequantize().save_pretrained(folder / "theirs")
    found, before = tensors_in(folder / "theirs"), tensors_in(plain)
    # transformers does not quantise experts, which share a tensor in it
    changed = sum(not torch.equal(found[name], before[name]) for name in before)
    assert changed == (COUNTS[kind] if kind == "llama" else 8)
    return found


def _by_hqq(folder: Path, kind: str, bits: str) -> Tensors:
    models = asked("hqq.models.hf.base", "hqq or accelerate")
    from hqq.core.quantize import BaseQuantizeConfig, HQQBackend, HQQLinear

    HQQLinear.set_backend(HQQBackend.PYTORCH)
    model = model_of(kind, torch.bfloat16)
    config = BaseQuantizeConfig(nbits=int(bits), group_size=64)
    options = {"compute_dtype": torch.bfloat16, "device": "cpu"}
    models.AutoHQQHFModel.quantize_model(model, config, **options)
    # hqq does not declare what its files hold, but its tensors do
    models.AutoHQQHFModel.save_to_safetensors(model, str(folder))
    layers = {n: each for n, each in model.named_modules() if isinstance(each, HQQLinear)}
    return {f"{name}.weight": layer.dequantize() for name, layer in layers.items()}


def _by_us(folder: Path, kind: str, form: str) -> Tensors:
    """Save a model with a record of random codes for each layer."""
    name, *bits = form.split()
    options: dict[str, Any] = {"group": 8, "bits": int(bits[0]), "scales": "bf16"} if bits else {}
    rng = np.random.default_rng(0)
    model_of(kind, torch.bfloat16).save_pretrained(folder)
    tensors: Tensors = tensors_in(folder)
    own: Tensors = {}
    for each in [each for each in tensors if each.endswith("_proj.weight")]:
        dims = tuple(tensors.pop(each).shape)
        desc = record_desc(dims[::-1] if bits else dims, name, **options)
        record = random_record(desc, rng)
        scale = desc.field(desc.rule.scale[0].parts[0][0])
        values = rng.random(scale.layout.dims) / 64 + 1e-3
        record.set_field(scale.name, values.astype(scale.desc.dtype.numpy))
        if bits:
            half = np.full(desc.field("qzeros").layout.dims, (1 << options["bits"] - 1) - 1)
            record.set_field("qzeros", half)
        else:  # codes of f8, without NaN
            record.set_field("weight", rng.standard_normal(dims).astype(data_type("f8_e4m3").numpy))
        made = decoded(record, "bf16" if bits else "f32")
        dtype = _float_of("memdesc", form)
        own[each] = torch.from_numpy(np.ascontiguousarray(made.T if bits else made)).to(dtype)
        tensors[each.removesuffix(".weight")] = record
    reorder.save(folder / "model.safetensors", tensors)
    if not bits:
        section = {"quantization_config": {"quant_method": "compressed-tensors"}}
        (folder / "config.json").write_text(json.dumps(_config(folder) | section))
    return own


def _plain(folder: Path, kind: str, _: str) -> None:
    save_model(folder, kind, torch.bfloat16)


_PRODUCERS: dict[str, Callable[[Path, str, str], Tensors | None]] = {
    "nobody": _plain,
    "memdesc": _by_us,
    "ModelOpt": _by_modelopt,
    "CT": _by_compressed_tensors,
    "DeepSeek": _by_deepseek,
    "gpt-oss": _as_gpt_oss,
    "MLX": _by_mlx,
    "bitsandbytes": _by_bitsandbytes,
    "HQQ": _by_hqq,
    "GPTQModel": _by_gptqmodel,
}


class Made(NamedTuple):
    """The folder of a model, and the numbers that its producer decodes it to, if it does."""

    folder: Path
    own: Tensors | None


Find = Callable[[str, str, str], Made]


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Find:
    """Return what gives a model of a producer, made once for all tests."""
    made: dict[tuple[str, ...], Made] = {}

    def find(producer: str, kind: str, form: str) -> Made:
        if (producer, kind, form) not in made:
            folder = tmp_path_factory.mktemp(f"{producer}_{kind}_{form}".replace(" ", "_"))
            made[producer, kind, form] = Made(folder, _PRODUCERS[producer](folder, kind, form))
        return made[producer, kind, form]

    return find


# How libraries read a model: its tensors, or its logits.


def _decompressed(folder: Path, dtype: Any) -> Tensors:
    """Return the tensors that compressed-tensors makes of a model in its format."""
    convert = asked("compressed_tensors.entrypoints.convert", "compressed-tensors")
    section = _config(folder)["quantization_config"]
    if "pack" in section["format"]:
        decode = convert.CompressedTensorsDequantizer(str(folder), dtype=dtype)
        target = folder.with_name(f"{folder.name}_decompressed")
        if not target.exists():
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


def _read_by_modelopt(folder: Path, dtype: Any) -> Tensors:
    held, found = tensors_in(folder), {}
    for layer in [n.removesuffix(".weight_scale") for n in held if n.endswith(".weight_scale")]:
        roles = ("weight", "weight_scale", "weight_scale_2")
        tensors = {r: held[f"{layer}.{r}"] for r in roles if f"{layer}.{r}" in held}
        if tensors["weight_scale"].ndim:
            # it computes FP8 in the type that is asked for
            kind = (
                "f32"
                if tensors["weight_scale"].dtype.is_floating_point and len(tensors) == 2
                else "bf16"
            )
            made = torch.from_numpy(numbers(of_modelopt(tensors, kind)))
        else:  # ModelOpt has a class for blocks of 128 only
            made = tensors["weight"].float() * tensors["weight_scale"]
        found[f"{layer}.weight"] = made.to(dtype)
    return found


def _read_by_mlx(folder: Path, dtype: Any) -> Tensors:
    """Return the weights that are quantised, as MLX decodes them, or else all parameters."""
    utils = asked("mlx.utils", "mlx")
    model, config = _mlx_model(folder)
    parameters = dict(utils.tree_flatten(model.parameters()))
    for layer in (each for each in model.modules() if hasattr(each, "scales")):
        # mlx-lm loads it whatever config.json says
        groups = layer.bits * config["quantization"]["group_size"] * layer.scales.shape[-1]
        assert layer.weight.shape[-1] * 32 == groups
    return _mlx_weights(model) or {
        name: torch.from_numpy(numbers(each)).to(dtype) for name, each in parameters.items()
    }


def _method(folder: Path) -> str:
    return str(_config(folder)["quantization_config"]["quant_method"])


def _loaded(folder: Path) -> Any:
    """Return a model as GPTQModel loads it, with its kernels in torch."""
    gptqmodel = asked("gptqmodel")
    backends = gptqmodel.BACKEND
    backend = backends.AWQ_TORCH if _method(folder) == "awq" else backends.GPTQ_TORCH
    options = {"device": "cpu", "backend": backend, "dtype": torch.float16}
    return gptqmodel.GPTQModel.load(str(folder), **options).model


def _computed(folder: Path, _: Any) -> Any:
    with torch.no_grad():
        return _loaded(folder)(torch.arange(48)[None]).logits


def _through_transformers(folder: Path, _: Any) -> Any:
    """Return the logits of transformers, which asks GPTQModel for the same kernels."""
    asked("gptqmodel")
    if _method(folder) == "awq":
        section = transformers.AwqConfig(backend="torch_awq")
    else:
        section = transformers.GPTQConfig(4, backend="gptq_torch")
    return logits_of(folder, torch.float16, quantization_config=section)


_READERS: dict[str, Callable[[Path, Any], Any]] = {
    "transformers": logits_of,
    "CT": _decompressed,
    "ModelOpt": _read_by_modelopt,
    "MLX": _read_by_mlx,
    "GPTQModel": _computed,
    "GPTQModel, by transformers": _through_transformers,
}


class Row(NamedTuple):
    """A model, steps that convert it, and the library that reads the result.

    It gets our floats of the model, after the first steps, or what it gets of that model itself if
    its name ends with `=`. By "itself" our floats are those of the producer.
    """

    producer: str
    kind: str
    form: str
    first: str
    steps: str
    reader: str


# Producers | kinds of models | forms | steps, of which => follows the first ones | reader
_ROWS = """
ModelOpt  | llama, qwen3_moe | all                | compressed-tensors | CT
# without those that transformers does not load, and without FP8, whose scales it rounds to bf16
ModelOpt  | llama            | mxfp4, mxfp8       | compressed-tensors | transformers
ModelOpt  | qwen3_moe        | mxfp4              | compressed-tensors | transformers
ModelOpt  | llama, qwen3_moe | fp8, fp8 in blocks | fp8-block | transformers
ModelOpt  | llama            | all, nvfp4 and fp8 | | ModelOpt
CT        | llama            | NVFP4A16           | *: compressed_nvfp4 -> modelopt_nvfp4 | ModelOpt
CT        | llama, qwen3_moe, llava | all         | | CT
# transformers refuses the others, or computes other numbers: docs/records.md
CT        | llama, llava     | all but W4A16_ASYM | | transformers
CT        | qwen3_moe        | FP8, FP8_DYNAMIC, W4A16, W8A16, MXFP4A16 | | transformers
CT        | llama, qwen3_moe, llava | FP8, FP8_BLOCK | fp8-block | transformers
DeepSeek  | llama, qwen3_moe, deepseek_v3 | | | transformers
DeepSeek  | llama, qwen3_moe, deepseek_v3 | | | itself
DeepSeek  | deepseek_v3      | | bf16 | MLX =
gpt-oss   | gpt_oss          | | | transformers
# transformers has inputs before outputs
gpt-oss   | gpt_oss          | | *: gpt_oss_mxfp4 -> acb, bf16 | transformers
gpt-oss   | gpt_oss          | | THERE; BACK | transformers
# all linear layers of both parts become FP8, the projector does not
nobody    | llava, llava published | | fp8-block => | transformers
MLX       | llama, qwen3_moe, mixtral | 3 32, 4 64, 8 128 | | itself
MLX       | llama            | 4 64       | *: mlx(bits=4) -> mlx(bits=8, group=32) & DOWN | MLX
MLX       | llama            | 2 64 alike | *: mlx(bits=2) -> mlx(bits=3, group=32) | MLX
MLX       | llama            | 3 64 alike | *: mlx(bits=3) -> mlx(bits=4, group=32) | MLX
MLX       | llama            | 4 64 alike | *: mlx(bits=4) -> mlx(bits=5, group=32) | MLX
MLX       | llama            | 5 64 alike | *: mlx(bits=5) -> mlx(bits=6, group=32) | MLX
bitsandbytes | llama, qwen3_moe | nf4, fp4 | | itself
HQQ       | llama            | 4, 8 | | itself
memdesc   | llama            | gptq 4, gptq 8, fp8_block, fp8_channel, fp8_tensor | | itself
memdesc   | llama            | gptq 4 | *: gptq(bits=4) -> pack_quantized => | transformers
memdesc   | llama            | gptq 8 | *: gptq(bits=8) -> pack_quantized => | transformers
memdesc   | llama            | gptq 4 | *: gptq(bits=4) -> pack_quantized => SOME | transformers
memdesc   | llama            | gptq 8 | *: gptq(bits=8) -> pack_quantized => SOME | transformers
memdesc   | llama            | gptq 8 | *: gptq(bits=8) -> pack_quantized => INT | transformers
memdesc   | llama            | fp8_block   | *: fp8_block -> fp8_block | transformers
memdesc   | llama            | fp8_channel | *: fp8_channel -> fp8_channel | transformers
memdesc   | llama            | fp8_tensor  | *: fp8_tensor -> fp8_tensor | transformers
# the last ones, as GPTQModel changes transformers
GPTQModel | llama, qwen3_moe | all                     | | itself
GPTQModel | llama, qwen3_moe | all                     | compressed-tensors | CT
GPTQModel | llama, qwen3_moe | gptq, awq               | compressed-tensors | transformers
GPTQModel | llama, qwen3_moe | gptq, gptq_v1, gptq_v2  | awq  | GPTQModel =
GPTQModel | llama, qwen3_moe | awq                     | gptq | GPTQModel =
GPTQModel | llama, qwen3_moe | gptq, gptq_v1, gptq_v2  | awq  | GPTQModel, by transformers =
GPTQModel | llama, qwen3_moe | awq                     | gptq | GPTQModel, by transformers =
CT        | qwen3_moe        | W4A16, W4A16_ASYM, W8A16 | gptq | GPTQModel
CT        | qwen3_moe        | W4A16, W4A16_ASYM        | gptq => awq | GPTQModel =
CT        | llava, llava published | W4A16            | gptq | GPTQModel, by transformers
CT        | llava, llava published | W4A16            | gptq => awq | GPTQModel, by transformers =
"""
_STEPS = {
    "THERE": "*: gpt_oss_mxfp4 -> modelopt_mxfp4",
    "BACK": "*: modelopt_mxfp4 -> gpt_oss_mxfp4",
    "DOWN": "*.down_proj: mlx(bits=6) -> mlx(bits=8, group=32)",
    "SOME": "*mlp*: pack_quantized -> int_quantized & *attn*: pack_quantized -> pack_quantized",
    "INT": "*: pack_quantized -> int_quantized",
}


def _rows() -> Iterator[Row]:
    every: dict[str, Iterable[str]] = {
        "ModelOpt": _MODELOPT,
        "CT": _PRESETS,
        "GPTQModel": _GPTQMODEL,
    }
    for line in _ROWS.strip().splitlines():
        if line.startswith("#"):
            continue
        producer, kinds, forms, steps, reader = (part.strip() for part in line.split("|"))
        for name, step in _STEPS.items():
            steps = steps.replace(name, step)
        first, _, steps = steps.rpartition("=>")
        named = [form for form in forms.split(", ") if not form.startswith("all")]
        _, _, without = forms.partition("all but ")
        named += sorted({*every[producer]} - {without}) if forms.startswith("all") else []
        for kind, form in product(kinds.split(", "), named):
            yield Row(producer, kind, form, first.strip(), steps.strip(), reader)


def _float_of(producer: str, form: str) -> Any:
    """Return the type of the floats of a model."""
    if producer == "GPTQModel" or (producer == "CT" and _PRESETS[form] == "pack-quantized"):
        return torch.float16
    # transformers rounds scales of FP8 to bf16 unless all is f32
    return torch.float32 if form.startswith("fp8_") else torch.bfloat16


def _near(row: Row) -> dict[str, float]:
    """Return the least and the largest difference that is allowed."""
    if (row.producer, row.form, row.reader) == ("ModelOpt", "nvfp4", "CT"):
        # the reciprocal of a scale is rounded to f32, so a few round to another bf16
        return {"rtol": 2**-7, "atol": 0.0}
    is_summed = row.producer == "CT" and row.reader.startswith("GPTQModel")
    return {"rtol": 0.0, "atol": 0.0 if not is_summed or row.reader.endswith("=") else 1e-2}


@pytest.mark.parametrize("row", _rows(), ids=": ".join)
def test_a_reader_gets_the_floats_that_we_get(tmp_path: Path, quantised: Find, row: Row) -> None:
    """Law: what a library reads of a model, converted or as it is, equals our floats."""
    dtype = _float_of(row.producer, row.form)
    made = quantised(row.producer, row.kind, row.form)
    source = _convert(made.folder, tmp_path / "first", row.first)
    target = _convert(source, tmp_path / "target", row.steps)
    reader, is_as_source, _ = row.reader.partition(" =")
    if is_as_source:
        ours, theirs = (_READERS[reader](folder, dtype) for folder in (source, target))
    else:
        name = {torch.float16: "f16", torch.bfloat16: "bf16"}.get(dtype)
        floats = _convert(source, tmp_path / "floats", name or f"*: {row.form} -> plain, f32")
        is_logits = reader == "transformers" or reader.startswith("GPTQModel")
        ours = logits_of(floats, dtype) if is_logits else tensors_in(floats)
        theirs = made.own if reader == "itself" else _READERS[reader](target, dtype)
    if isinstance(ours, dict):
        # a reader of layers has all of them
        assert theirs.keys() == ours.keys() or len(theirs) >= COUNTS[row.kind]
    else:
        assert ours.isfinite().all()
        ours, theirs = {"logits": ours}, {"logits": theirs}
    for name, tensor in theirs.items():
        assert tensor.dtype == ours[name].dtype
        assert torch.allclose(tensor, ours[name], **_near(row))


def _nvfp4_of_modelopt(folder: Path, _: Path) -> Tensors:
    """compressed-tensors converts NVFP4 of ModelOpt."""
    convert = asked("compressed_tensors.entrypoints.convert", "compressed-tensors")
    converter = convert.ModelOptNvfp4Converter(targets=["re:.*proj$"])
    wanted = converter.process(dict(tensors_in(folder)))
    parts = ("weight_packed", "weight_scale", "weight_global_scale")
    return {name: each for name, each in wanted.items() if name.endswith(parts)}


def _words_of_awq(folder: Path, tmp_path: Path) -> Tensors:
    """compressed-tensors converts zero points of AWQ, which transformers 5.24 does not load."""
    asked("compressed_tensors", "compressed-tensors")
    from compressed_tensors.entrypoints.convert import AutoAWQConverter, convert_checkpoint

    source = _convert(folder, tmp_path / "awq", "awq")
    convert_checkpoint(source, tmp_path / "packed", AutoAWQConverter(4, 64), 1, "cpu")
    return tensors_in(tmp_path / "packed")


def _fp8_of_floats(folder: Path, _: Path) -> Tensors:
    """compressed-tensors quantises floats to FP8 in blocks."""
    quantization = asked("compressed_tensors.quantization", "compressed-tensors")
    from compressed_tensors.quantization.utils import calculate_qparams

    wanted = tensors_in(folder)
    arguments = quantization.QuantizationArgs(
        num_bits=8, type="float", strategy="block", block_structure=[128, 128]
    )
    for name in [name for name in wanted if name.endswith("_proj.weight")]:
        weight = wanted[name].float()
        blocks = weight.unflatten(0, (-1, 128)).unflatten(2, (-1, 128))
        scales, points = calculate_qparams(blocks.amin((1, 3)), blocks.amax((1, 3)), arguments)
        codes = quantization.quantize(weight, scales, points, arguments, dtype=torch.float8_e4m3fn)
        wanted |= {name: codes, f"{name}_scale_inv": scales}
    return wanted


_CONVERTED = [
    Row("ModelOpt", "llama", "nvfp4", "", "*: modelopt_nvfp4 -> compressed_nvfp4", "CT"),
    *(Row("nobody", kind, "", "", "fp8-block", "CT") for kind in MODELS),
    *(
        Row("GPTQModel", kind, form, "", "compressed-tensors", "CT")
        for kind, form in product(MODELS, ("gptq_v1", "gptq_v2"))
    ),
]
_CONVERTERS = {"ModelOpt": _nvfp4_of_modelopt, "nobody": _fp8_of_floats, "GPTQModel": _words_of_awq}


@pytest.mark.parametrize("row", _CONVERTED, ids=": ".join)
def test_a_library_converts_a_model_to_the_same_tensors(
    tmp_path: Path, quantised: Find, row: Row
) -> None:
    """Law: names, types and bits of what is written are those of the library's own converter."""
    source = quantised(row.producer, row.kind, row.form).folder
    wanted = _CONVERTERS[row.producer](source, tmp_path)
    found = tensors_in(_convert(source, tmp_path / "out", row.steps))
    assert len(wanted) >= 2 * COUNTS[row.kind]
    assert wanted.keys() <= found.keys()
    for name, tensor in wanted.items():
        assert tensor.dtype == found[name].dtype
        assert torch.equal(*(each[name].reshape(-1).view(torch.uint8) for each in (found, wanted)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_model_with_a_scalar_loads_in_another_type(tmp_path: Path, dtype: str) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2}
    parts = {"text_config": sizes | {"vocab_size": 64}, "vision_config": sizes | _PICTURES}
    model = transformers.CLIPModel(transformers.CLIPConfig(**parts)).float()
    assert model.logit_scale.shape == ()
    model.save_pretrained(tmp_path / "in")
    made = _convert(tmp_path / "in", tmp_path / "x", {"float16": "f16"}.get(dtype, "bf16"))
    kind = getattr(torch, dtype)
    loaded = transformers.CLIPModel.from_pretrained(made, dtype="auto").state_dict()
    for name, value in model.state_dict().items():
        assert torch.equal(loaded[name], value.to(kind) if value.is_floating_point() else value)


@pytest.mark.parametrize("kind", MODELS)
def test_fp8_written_here_has_the_modules_of_transformers(tmp_path: Path, kind: str) -> None:
    """With a GPU, transformers loads the weights into these modules, experts as stacks."""
    from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear

    made = _convert(save_model(tmp_path / "in", kind, torch.bfloat16), tmp_path / "x", "fp8-block")
    config = transformers.AutoConfig.from_pretrained(made)
    section = dict(config.quantization_config)
    assert section.pop("quant_method") == "fp8"
    section = transformers.FineGrainedFP8Config(**section)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    replace_with_fp8_linear(model, section.modules_to_not_convert, section, pre_quantized=True)
    loaded, given = (
        {n: (t.dtype, t.shape) for n, t in tensors.items() if ".experts." not in n}
        for tensors in (model.state_dict(), tensors_in(made))
    )
    assert loaded == given
    experts = [t.dtype for n, t in model.state_dict().items() if n.endswith("experts.down_proj")]
    assert experts == [torch.float8_e4m3fn] * (2 if kind == "qwen3_moe" else 0)


def test_nvfp4_experts_of_modelopt_have_inputs_first(quantised: Find) -> None:
    source, _ = quantised("ModelOpt", "gpt_oss", "nvfp4")
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
