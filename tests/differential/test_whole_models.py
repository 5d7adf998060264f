"""Whole models, dense ones and mixtures of experts, converted and loaded by the target's library.

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
# matrices of two layers
_COUNTS = {"llama": 14, "qwen3_moe": 2 * (4 + 3 * _EXPERTS)}
_VERIFIED = reorder.ConvertOptions(verify=True)


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
    if kind == "deepseek_v3":
        heads = {"qk_rope_head_dim": 32, "qk_nope_head_dim": 32, "v_head_dim": 32}
        ranks = {"q_lora_rank": 64, "kv_lora_rank": 64, "num_key_value_heads": 4}
        groups = {"n_routed_experts": _EXPERTS, "n_group": 2, "topk_group": 1}
        more = {**sizes, **heads, **ranks, **groups, "first_k_dense_replace": 1}
        model = transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(**_SIZES | more))
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


def _logits(folder: Path, dtype: Any) -> Any:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    with torch.no_grad():
        return model(torch.arange(48)[None]).logits


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
    """Load a model by mlx-lm, which reads two keys that transformers 5.23 writes elsewhere."""
    lm = pytest.importorskip("mlx_lm.utils", reason="mlx-lm is not installed")
    config = json.loads((folder / "config.json").read_text())
    config |= {"num_experts": _EXPERTS, "rope_theta": 10_000.0}
    (folder / "config.json").write_text(json.dumps(config))
    found: tuple[Any, dict[str, Any]] = lm.load_model(folder)
    return found


def _mlx_logits(model: Any) -> Any:
    core = pytest.importorskip("mlx.core", reason="mlx is not installed")
    model.set_dtype(core.float32)
    return torch.from_numpy(np.array(model(core.arange(48)[None])))


def _mlx_weights(model: Any) -> dict[str, Any]:
    """Return the affine weights as MLX decodes them, with experts under the names that others use.

    MLX has the embeddings and the head among them if it quantised the model itself.
    """
    core = pytest.importorskip("mlx.core", reason="mlx is not installed")
    found: dict[str, Any] = {}
    for name, layer in model.named_modules():
        if not hasattr(layer, "biases"):
            continue
        parts = (layer.weight, layer.scales, layer.biases, layer.group_size, layer.bits)
        made = torch.from_numpy(np.array(core.dequantize(*parts).astype(core.float32)))
        head, is_stack, tail = name.partition(".switch_mlp.")
        names = [f"{head}.experts.{k}.{tail}" for k in range(_EXPERTS)] if is_stack else [name]
        made = made if is_stack else made[None]
        found |= {f"{each}.weight": one for each, one in zip(names, made, strict=True)}
    return found


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
    reorder.convert(source, tmp_path / "bf16", (), _VERIFIED, to="bf16")
    reorder.convert(source, tmp_path / "ct", (), _VERIFIED, to="compressed-tensors")
    ours = _tensors(tmp_path / "bf16")
    assert sum(name.endswith("_proj.weight") for name in ours) == _COUNTS[kind]
    theirs = _decompressed(tmp_path / "ct", tmp_path / "theirs", torch.bfloat16)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        # of NVFP4 the reciprocal of a scale is rounded to f32, so a few round to another bf16
        near = {"rtol": 2**-7, "atol": 0} if form == "nvfp4" else {"rtol": 0, "atol": 0}
        assert torch.allclose(theirs[name], tensor, **near)
    assert _logits(tmp_path / "bf16", torch.bfloat16).isfinite().all()


@pytest.mark.parametrize("form", ["fp8", "fp8 in blocks"])
@pytest.mark.parametrize("kind", _MODELS)
def test_fp8_of_modelopt_is_decoded_by_transformers(
    tmp_path: Path, by_modelopt: Callable[[str, str], Path], kind: str, form: str
) -> None:
    source = by_modelopt(kind, form)
    reorder.convert(source, tmp_path / "fp8", (), _VERIFIED, to="fp8-block")
    reorder.convert(source, tmp_path / "bf16", (), _VERIFIED, to="bf16")
    logits = _logits(tmp_path / "bf16", torch.bfloat16)
    assert _same(_logits(tmp_path / "fp8", torch.bfloat16), logits)


@pytest.mark.parametrize("kind", [*_MODELS, "deepseek_v3"])
def test_fp8_becomes_what_deepseek_casts_it_to(tmp_path: Path, kind: str) -> None:
    source = tmp_path / "in"
    _model(kind, torch.bfloat16).save_pretrained(source)
    tensors = _tensors(source)
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
    safetensors.save_file(tensors, source / "model.safetensors", {"format": "pt"})
    section = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {**section, "weight_block_size": [128, 128]}
    (source / "config.json").write_text(json.dumps(config))
    report = reorder.convert(source, tmp_path / "out", (), _VERIFIED, to="bf16")
    assert _all_same(_tensors(tmp_path / "out"), casted)
    assert report.rounding is not None
    # transformers decodes FP8 itself where there is no GPU
    logits = _logits(tmp_path / "out", torch.bfloat16)
    assert _same(logits, _logits(source, torch.bfloat16))
    assert logits.isfinite().all()


@pytest.mark.parametrize("kind", _MODELS)
def test_floats_become_the_fp8_that_producers_make_and_transformers_loads(
    tmp_path: Path, kind: str
) -> None:
    name = "compressed_tensors.quantization"
    quantization = pytest.importorskip(name, reason="compressed-tensors is not installed")
    from compressed_tensors.quantization.utils import calculate_qparams
    from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear

    _model(kind, torch.bfloat16).save_pretrained(tmp_path / "plain")
    reorder.convert(tmp_path / "plain", tmp_path / "fp8", (), _VERIFIED, to="fp8-block")
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
    reorder.convert(tmp_path / "fp8", tmp_path / "bf16", (), _VERIFIED, to="bf16")
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


@pytest.mark.parametrize("form", ["mxfp4", "mxfp8"])
@pytest.mark.parametrize("kind", _MODELS)
def test_mlx_computes_with_mx_of_modelopt(
    tmp_path: Path, by_modelopt: Callable[[str, str], Path], kind: str, form: str
) -> None:
    source = by_modelopt(kind, form)
    reorder.convert(source, tmp_path / "mlx", (), _VERIFIED, to="mlx")
    reorder.convert(source, tmp_path / "bf16", (), _VERIFIED, to="bf16")
    wanted = _logits(tmp_path / "bf16", torch.float32)
    assert torch.allclose(_mlx_logits(_mlx_model(tmp_path / "mlx")[0]), wanted, atol=1e-2)
    # and back
    reorder.convert(tmp_path / "mlx", tmp_path / "back", (), _VERIFIED, to="bf16")
    assert _all_same(_tensors(tmp_path / "back"), _tensors(tmp_path / "bf16"))
    for name, each in (("direct", source), ("again", tmp_path / "mlx")):
        reorder.convert(each, tmp_path / name, (), _VERIFIED, to="compressed-tensors")
    assert _all_same(_tensors(tmp_path / "again"), _tensors(tmp_path / "direct"))


@pytest.mark.parametrize(("bits", "group"), [(3, 32), (4, 64), (8, 128)])
@pytest.mark.parametrize("kind", _MODELS)
def test_models_of_mlx_lm_are_loaded_by_transformers(
    tmp_path: Path, kind: str, bits: int, group: int
) -> None:
    lm = pytest.importorskip("mlx_lm.utils", reason="mlx-lm is not installed")
    model, config = _mlx_model(_save(tmp_path / "plain", kind, torch.bfloat16))

    def own(name: str, layer: Any) -> Any:  # the down projections have bits of their own
        if "down_proj" in name:
            return {"group_size": 32, "bits": 6}
        return hasattr(layer, "to_quantized") and not name.endswith("mlp.gate")

    model, config = lm.quantize_model(model, config, group, bits, quant_predicate=own)
    (tmp_path / "in").mkdir()
    lm.save_model(tmp_path / "in", model)
    lm.save_config(config, tmp_path / "in/config.json")
    report = reorder.convert(tmp_path / "in", tmp_path / "out", (), _VERIFIED, to="bf16")
    assert report.rounding is None  # MLX computes in the type of its scales
    found = _tensors(tmp_path / "out")
    assert found.keys() == _tensors(tmp_path / "plain").keys()
    weights = _mlx_weights(model)
    assert len(weights) == _COUNTS[kind] + 2  # with embeddings and the head
    assert all(torch.equal(found[name].float(), weight) for name, weight in weights.items())
    wanted = _mlx_logits(lm.dequantize_model(model))
    assert torch.allclose(_logits(tmp_path / "out", torch.float32), wanted, atol=1e-3)


# the options of GPTQModel, and what its weights become
_GPTQMODEL: dict[str, dict[str, Any]] = {
    "gptq": {"desc_act": False, "sym": True},
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


@pytest.mark.parametrize("method", _GPTQMODEL)
@pytest.mark.parametrize("kind", _MODELS)
def test_gptqmodel_computes_the_same_with_the_other_format(
    tmp_path: Path, by_gptqmodel: Callable[[str, str], Path], kind: str, method: str
) -> None:
    source = by_gptqmodel(kind, method)
    other = "gptq" if method == "awq" else "awq"
    reorder.convert(source, tmp_path / other, (), _VERIFIED, to=other)
    logits = _computed(source, method)
    assert logits.isfinite().all()
    assert _same(_computed(tmp_path / other, other), logits)
    # through transformers, which asks GPTQModel
    assert _same(_logits(tmp_path / other, torch.float16), logits)
    # the numbers of its kernel
    gptq = tmp_path / other if other == "gptq" else source
    wanted = {
        name: module.dequantize_weight().T
        for name, module in _loaded(gptq, "gptq").named_modules()
        if hasattr(module, "dequantize_weight")
    }
    assert len(wanted) == _COUNTS[kind]
    for each in (source, tmp_path / other):
        reorder.convert(each, tmp_path / f"{each.name}_f16", (), _VERIFIED, to="f16")
        found = _tensors(tmp_path / f"{each.name}_f16")
        assert all(_same(found[f"{name}.weight"], weight) for name, weight in wanted.items())
    reorder.convert(source, tmp_path / "bf16", (), _VERIFIED, to="bf16")
    plain = _tensors(tmp_path / "bf16")
    assert plain.keys() == _tensors(tmp_path / "made_f16").keys()
    assert _logits(tmp_path / "bf16", torch.bfloat16).isfinite().all()


@pytest.mark.parametrize("method", _GPTQMODEL)
@pytest.mark.parametrize("kind", _MODELS)
def test_models_of_gptqmodel_are_decoded_by_compressed_tensors(
    tmp_path: Path, by_gptqmodel: Callable[[str, str], Path], kind: str, method: str
) -> None:
    source = by_gptqmodel(kind, method)
    reorder.convert(source, tmp_path / "ct", (), _VERIFIED, to="compressed-tensors")
    reorder.convert(source, tmp_path / "f16", (), _VERIFIED, to="f16")
    theirs = _decompressed(tmp_path / "ct", tmp_path / "theirs", torch.float16)
    assert _all_same(theirs, _tensors(tmp_path / "f16"))
    if method != "gptq_v2":
        logits = _logits(tmp_path / "f16", torch.float16)
        assert _same(_logits(tmp_path / "ct", torch.float16), logits)
        return
    # transformers 5.23 does not load zero points; compressed-tensors packs those of AWQ likewise
    from compressed_tensors.entrypoints.convert import AutoAWQConverter, convert_checkpoint

    reorder.convert(source, tmp_path / "awq", (), _VERIFIED, to="awq")
    convert_checkpoint(tmp_path / "awq", tmp_path / "packed", AutoAWQConverter(4, 64), 1, "cpu")
    assert _all_same(_tensors(tmp_path / "packed"), _tensors(tmp_path / "ct"))


@pytest.mark.parametrize("method", _GPTQMODEL)
@pytest.mark.parametrize("kind", _MODELS)
def test_mlx_computes_with_models_of_gptqmodel(
    tmp_path: Path, by_gptqmodel: Callable[[str, str], Path], kind: str, method: str
) -> None:
    source = by_gptqmodel(kind, method)
    reorder.convert(source, tmp_path / "mlx", (), _VERIFIED, to="mlx")
    rule = f"*: {method.partition('_')[0]} -> plain(axes=oi), f32"
    rule = rule.replace("gptq ->", "gptq(zeros=v2) ->") if method == "gptq_v2" else rule
    reorder.convert(source, tmp_path / "plain", [rule])
    wanted = _logits(tmp_path / "plain", torch.float32)
    model, _ = _mlx_model(tmp_path / "mlx")
    weights, plain = _mlx_weights(model), _tensors(tmp_path / "plain")
    assert len(weights) == _COUNTS[kind]
    assert all(_same(weight, plain[name]) for name, weight in weights.items())
    assert torch.allclose(_mlx_logits(model), wanted, atol=1e-2)
    # and back to what transformers reads
    for name in ("mlx", "plain"):
        rules, to = ((), "bf16") if name == "mlx" else (["*_proj.weight: bf16"], None)
        reorder.convert(tmp_path / name, tmp_path / f"{name}_bf16", rules, _VERIFIED, to=to)
    one, two = (_tensors(tmp_path / f"{name}_bf16") for name in ("mlx", "plain"))
    assert _all_same(one, two)


@pytest.mark.parametrize("is_symmetric", [True, False])
def test_experts_of_compressed_tensors_become_other_formats(
    tmp_path: Path, *, is_symmetric: bool
) -> None:
    pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
    pytest.importorskip("gptqmodel", reason="gptqmodel is not installed")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import (
        QuantizationArgs,
        QuantizationConfig,
        QuantizationScheme,
    )

    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 64}
    scheme = QuantizationScheme(
        targets=["Linear"],
        weights=QuantizationArgs(symmetric=is_symmetric, **weights),
        format="pack-quantized",
    )
    compressor = BaseCompressor.get_value_from_registry("pack-quantized")
    folder = _save(tmp_path / "in", "qwen3_moe", torch.float16)
    rng, tensors = torch.Generator().manual_seed(1), {}
    for name, value in _tensors(folder).items():
        layer = name.removesuffix(".weight")
        if not layer.endswith("_proj"):
            tensors[name] = value
            continue
        shape = value.shape[0], value.shape[1] // 64
        state = {"weight": value}
        state["weight_scale"] = (torch.rand(shape, generator=rng) / 64 + 1e-3).half()
        if not is_symmetric:
            points = torch.randint(-8, 8, shape, generator=rng)
            state["weight_zero_point"] = points.to(torch.int8)
        made = compressor.compress(state, scheme)
        tensors |= {f"{layer}.{role}": each.contiguous() for role, each in made.items()}
    safetensors.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    section = QuantizationConfig(
        config_groups={"g": scheme},
        format="pack-quantized",
        ignore=["lm_head", "re:.*mlp[.]gate$"],
    )
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = json.loads(section.model_dump_json())
    (folder / "config.json").write_text(json.dumps(config))
    reorder.convert(folder, tmp_path / "f16", (), _VERIFIED, to="f16")
    theirs = _decompressed(folder, tmp_path / "theirs", torch.float16)
    assert _all_same(theirs, _tensors(tmp_path / "f16"))
    logits = {}
    for to in ("gptq", "awq"):
        reorder.convert(folder, tmp_path / to, (), _VERIFIED, to=to)
        logits[to] = _logits(tmp_path / to, torch.float16)
    assert _same(logits["gptq"], logits["awq"])
    assert torch.allclose(logits["gptq"], _logits(tmp_path / "f16", torch.float16), atol=1e-2)
    reorder.convert(folder, tmp_path / "mlx", (), _VERIFIED, to="mlx")
    found = _mlx_logits(_mlx_model(tmp_path / "mlx")[0])
    assert torch.allclose(found, _logits(tmp_path / "f16", torch.float32), atol=1e-2)
