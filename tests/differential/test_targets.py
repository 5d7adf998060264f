"""Whole models that became another format, loaded by the library that the format is for.

Models are tiny, with random weights, saved by transformers, compressed-tensors or in the layout of
GPTQModel. transformers loads what was converted, and asks the library of the format: its logits,
or the weights that this library decodes, are equal in all bits. Sources of the formulas:
DeepSeek-V3, `inference/fp8_cast_bf16.py` and `kernel.py`, `weight_dequant_kernel`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from tests.checkpoints import awq_layer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.judges, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")

_SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 64,
    "max_position_embeddings": 64,
}
_EXPERTS = {"moe_intermediate_size": 128, "num_experts_per_tok": 2}


def _llama(**more: Any) -> Any:
    config = transformers.LlamaConfig(num_key_value_heads=2, **_SIZES | more)
    return transformers.LlamaForCausalLM(config)


def _qwen() -> Any:
    sizes = {"num_key_value_heads": 2, "head_dim": 64, "num_experts": 4}
    config = transformers.Qwen3MoeConfig(**_SIZES, **_EXPERTS, **sizes)
    return transformers.Qwen3MoeForCausalLM(config)


def _deepseek() -> Any:
    heads = {"qk_rope_head_dim": 32, "qk_nope_head_dim": 32, "v_head_dim": 32}
    ranks = {"q_lora_rank": 64, "kv_lora_rank": 64, "num_key_value_heads": 4}
    groups = {"n_routed_experts": 4, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
    config = transformers.DeepseekV3Config(**_SIZES, **_EXPERTS, **heads, **ranks, **groups)
    return transformers.DeepseekV3ForCausalLM(config)


_MODELS = {"Llama": _llama, "Qwen3 MoE": _qwen, "DeepSeek-V3": _deepseek}


def _saved(folder: Path, make: Any, dtype: Any) -> dict[str, Any]:
    """Save a model; return its tensors by the names that they have in the file."""
    torch.manual_seed(0)
    make().to(dtype).save_pretrained(folder)
    found: dict[str, Any] = safetensors.load_file(folder / "model.safetensors")
    return found


def _write(folder: Path, tensors: dict[str, Any], section: dict[str, Any]) -> Path:
    """Write other tensors into the folder of a model, and what declares them."""
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    safetensors.save_file(contiguous, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": section}))
    return folder


def _is_layer(name: str) -> bool:
    return name.endswith(("_proj.weight", "_mqa.weight"))


def _padded(scale: Any, shape: tuple[int, int]) -> Any:
    each = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
    return each[: shape[0], : shape[1]]


def _fp8(folder: Path, make: Any) -> dict[str, Any]:
    """Save a model of FP8 in blocks; return the tensors that DeepSeek's script makes of it."""
    tensors, casted = {}, {}
    for name, weight in _saved(folder, make, torch.bfloat16).items():
        tensors[name] = casted[name] = weight
        if not _is_layer(name):
            continue
        rows, columns = weight.shape
        padded = torch.nn.functional.pad(weight.float(), (0, -columns % 128, 0, -rows % 128))
        blocks = padded.unflatten(0, (-1, 128)).unflatten(2, (-1, 128))
        scale = blocks.abs().amax((1, 3)).clamp(min=1e-12) / 448
        each = _padded(scale, weight.shape)
        tensors[name] = (weight.float() / each).to(torch.float8_e4m3fn)
        tensors[f"{name}_scale_inv"] = scale
        casted[name] = (tensors[name].float() * each).to(torch.bfloat16)
    _write(
        folder,
        tensors,
        {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
        },
    )
    return casted


def _load(folder: Path, dtype: Any, **options: Any) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **options).eval()


def _logits(folder: Path, dtype: Any, **options: Any) -> Any:
    model = _load(folder, dtype, **options)
    with torch.no_grad():
        return model(torch.arange(48)[None]).logits


def _same(one: Any, other: Any) -> bool:
    return bool(one.dtype == other.dtype and torch.equal(one, other))


@pytest.mark.parametrize("kind", _MODELS)
def test_fp8_becomes_what_deepseek_casts_it_to(tmp_path: Path, kind: str) -> None:
    casted = _fp8(tmp_path / "in", _MODELS[kind])
    report = reorder.convert(tmp_path / "in", tmp_path / "out", to="bf16")
    found = safetensors.load_file(tmp_path / "out/model.safetensors")
    assert found.keys() == casted.keys()
    assert all(_same(found[name], casted[name]) for name in casted)
    assert report.rounding is not None
    # transformers decodes FP8 itself where there is no GPU
    logits = _logits(tmp_path / "out", torch.bfloat16)
    assert _same(logits, _logits(tmp_path / "in", torch.bfloat16))
    assert logits.isfinite().all()


def test_fp8_of_compressed_tensors_is_loaded_as_that_of_transformers(tmp_path: Path) -> None:
    pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
    _fp8(tmp_path / "in", _llama)
    reorder.convert(tmp_path / "in", tmp_path / "ct", to="compressed-tensors")
    reorder.convert(tmp_path / "ct", tmp_path / "back", to="fp8-block")
    one, other = (
        safetensors.load_file(tmp_path / f"{n}/model.safetensors") for n in ("in", "back")
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(one[n].view(torch.uint8), other[n].view(torch.uint8)) for n in one)
    # in f32 compressed-tensors decodes them as DeepSeek does
    rule = "*: fp8_block(scale_inv=true) -> plain, f32"
    reorder.convert(tmp_path / "in", tmp_path / "plain", [rule])
    logits = _logits(tmp_path / "plain", torch.float32)
    assert _same(_logits(tmp_path / "ct", torch.float32), logits)


def _awq(folder: Path, *, zeros: tuple[int, int] = (0, 16)) -> Path:
    """Save a Llama with random codes in AutoAWQ's layout, with a group of 128 inputs."""
    tensors = {}
    for k, (name, weight) in enumerate(_saved(folder, _llama, torch.float16).items()):
        if not _is_layer(name):
            tensors[name] = weight
            continue
        layer = awq_layer(k, (weight.shape[1], weight.shape[0]), 128, zeros)
        layer["scales"] = (layer["scales"].astype(np.float32) / 256).astype(np.float16)
        prefix = name.removesuffix(".weight")
        tensors |= {f"{prefix}.{each}": torch.from_numpy(x) for each, x in layer.items()}
    section = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}
    return _write(folder, tensors, section | {"zero_point": True})


def _decoded(folder: Path) -> dict[str, Any]:
    """Return the weights of a model of GPTQ as GPTQModel's own kernel in torch decodes them."""
    section = json.loads((folder / "config.json").read_text())["quantization_config"]
    wanted = {key: section[key] for key in ("bits", "group_size", "checkpoint_format", "sym")}
    config = transformers.GPTQConfig(backend="torch", **wanted)
    model = _load(folder, torch.float16, quantization_config=config)
    return {
        f"{name}.weight": module.dequantize_weight().T
        for name, module in model.named_modules()
        if hasattr(module, "dequantize_weight")
    }


def test_awq_and_gptq_are_loaded_by_gptqmodel(tmp_path: Path) -> None:
    pytest.importorskip("gptqmodel", reason="gptqmodel is not installed")
    source = _awq(tmp_path / "in")
    reorder.convert(source, tmp_path / "gptq", to="gptq")
    reorder.convert(tmp_path / "gptq", tmp_path / "awq", to="awq")
    logits = _logits(source, torch.float16)
    assert logits.isfinite().all()
    assert _same(_logits(tmp_path / "gptq", torch.float16), logits)
    assert _same(_logits(tmp_path / "awq", torch.float16), logits)
    for each in ("in", "gptq"):
        reorder.convert(tmp_path / each, tmp_path / f"{each}_f16", to="f16")
        found = safetensors.load_file(tmp_path / f"{each}_f16/model.safetensors")
        decoded = _decoded(tmp_path / "gptq")
        assert len(decoded) == 14
        assert all(_same(found[name], decoded[name]) for name in decoded)
        assert _logits(tmp_path / f"{each}_f16", torch.float16).allclose(logits, 1e-2, 1e-2)


@pytest.mark.parametrize("symmetric", [True, False])
def test_integers_of_compressed_tensors_move(tmp_path: Path, *, symmetric: bool) -> None:
    pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
    pytest.importorskip("gptqmodel", reason="gptqmodel is not installed")
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config

    torch.manual_seed(0)
    model = _llama().to(torch.float16)
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
    group = {"targets": ["Linear"], "weights": weights | {"symmetric": symmetric}}
    config = QuantizationConfig(
        config_groups={"g": group}, quantization_status="frozen", ignore=["lm_head"]
    )
    apply_quantization_config(model, config, show_progress=False)
    for module in model.modules():
        if getattr(module, "quantization_scheme", None) is not None:
            shape = module.weight_scale.shape
            module.weight_scale.data = (torch.rand(shape) / 64 + 1e-3).half()
            if not symmetric:
                module.weight_zero_point.data = torch.randint(-8, 8, shape).to(torch.int8)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(tmp_path / "in")
    compressor.update_config(str(tmp_path / "in"))
    compressor.decompress_model(model)
    plain = {name: each for name, each in model.state_dict().items() if _is_layer(name)}
    assert len(plain) == 14
    # its own tensors, decoded
    reorder.convert(tmp_path / "in", tmp_path / "f16", to="f16")
    found = safetensors.load_file(tmp_path / "f16/model.safetensors")
    assert all(_same(found[name], plain[name]) for name in plain)
    # moved to GPTQ, decoded by GPTQModel
    reorder.convert(tmp_path / "in", tmp_path / "gptq", to="gptq")
    decoded = _decoded(tmp_path / "gptq")
    assert all(_same(decoded[name], plain[name]) for name in plain)
    reorder.convert(tmp_path / "gptq", tmp_path / "awq", to="awq")
    assert _same(
        _logits(tmp_path / "awq", torch.float16), _logits(tmp_path / "gptq", torch.float16)
    )
    if symmetric:
        logits = _logits(tmp_path / "f16", torch.float16)
        assert _same(_logits(tmp_path / "in", torch.float16), logits)
        # Marlin's record says that there are no zero points, which GPTQ's does not
        reorder.convert(tmp_path / "gptq", tmp_path / "marlin", ["*: gptq -> marlin"])
        reorder.convert(tmp_path / "marlin", tmp_path / "ct", to="compressed-tensors")
        assert _same(_logits(tmp_path / "ct", torch.float16), logits)
        return
    # transformers 5.23 does not load zero points of this format, not even its own: these are equal
    reorder.convert(tmp_path / "awq", tmp_path / "back", to="compressed-tensors")
    one, other = (
        safetensors.load_file(tmp_path / f"{n}/model.safetensors") for n in ("in", "back")
    )
    assert one.keys() == other.keys()
    assert all(_same(one[name], other[name]) for name in one)


def test_mlx_computes_with_integers_of_awq(tmp_path: Path) -> None:
    core = pytest.importorskip("mlx.core", reason="mlx is not installed")
    lm = pytest.importorskip("mlx_lm.utils", reason="mlx-lm is not installed")
    source = _awq(tmp_path / "in")
    reorder.convert(source, tmp_path / "mlx", to="mlx")
    reorder.convert(source, tmp_path / "plain", ["*: awq -> plain(axes=oi), f32"])
    plain = safetensors.load_file(tmp_path / "plain/model.safetensors")
    model, _ = lm.load_model(tmp_path / "mlx")
    found = dict(model.named_modules())
    names = [name for name, each in found.items() if hasattr(each, "biases")]
    assert len(names) == 14
    for name in names:
        each = found[name]
        parts = (each.weight, each.scales, each.biases, each.group_size, each.bits)
        made = np.array(core.dequantize(*parts))
        assert np.array_equal(made.view(np.uint32), plain[f"{name}.weight"].numpy().view(np.uint32))
    logits = np.array(model(core.arange(48)[None]).astype(core.float32))
    assert np.allclose(logits, _logits(tmp_path / "plain", torch.float32).numpy(), atol=1e-2)


def _converters() -> Any:
    """Return the module in which compressed-tensors converts checkpoints of others."""
    name = "compressed_tensors.entrypoints.convert"
    return pytest.importorskip(name, reason="compressed-tensors is not installed")


def test_compressed_tensors_decodes_fp8_likewise(tmp_path: Path) -> None:
    convert = _converters()
    _fp8(tmp_path / "in", _llama)
    reorder.convert(tmp_path / "in", tmp_path / "ours", to="bf16")
    converter = convert.FP8BlockDequantizer(targets=[r"re:.*_proj$"])
    convert.convert_checkpoint(tmp_path / "in", tmp_path / "theirs", converter, 1, "cpu")
    one, other = (
        safetensors.load_file(next((tmp_path / n).glob("*.safetensors")))
        for n in ("ours", "theirs")
    )
    assert one.keys() == other.keys()
    assert all(_same(one[name], other[name]) for name in one)


def test_compressed_tensors_packs_awq_likewise(tmp_path: Path) -> None:
    convert = _converters()
    source = _awq(tmp_path / "in")
    reorder.convert(source, tmp_path / "ours", to="compressed-tensors")
    converter = convert.AutoAWQConverter(bits=4, group_size=128)
    convert.convert_checkpoint(source, tmp_path / "theirs", converter, 1, "cpu")
    one, other = (
        safetensors.load_file(next((tmp_path / n).glob("*.safetensors")))
        for n in ("ours", "theirs")
    )
    assert one.keys() == other.keys()
    assert all(_same(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("bits", "group"), [(4, 64), (3, 32), (8, 128)])
def test_models_of_mlx_become_what_it_decodes(tmp_path: Path, bits: int, group: int) -> None:
    core = pytest.importorskip("mlx.core", reason="mlx is not installed")
    lm = pytest.importorskip("mlx_lm.utils", reason="mlx-lm is not installed")
    _saved(tmp_path / "plain", _llama, torch.bfloat16)
    model, config = lm.load_model(tmp_path / "plain")
    model, config = lm.quantize_model(model, config, group, bits)
    (tmp_path / "in").mkdir()
    lm.save_model(tmp_path / "in", model)
    lm.save_config(config, tmp_path / "in/config.json")
    report = reorder.convert(tmp_path / "in", tmp_path / "out", to="bf16")
    assert report.rounding is None  # MLX computes in the type of its scales
    found = _load(tmp_path / "out", torch.bfloat16).state_dict()
    layers = {n: each for n, each in model.named_modules() if hasattr(each, "biases")}
    assert len(layers) == 16  # with embeddings and the head
    for name, each in layers.items():
        parts = (each.weight, each.scales, each.biases, group, bits)
        wanted = np.array(core.dequantize(*parts).astype(core.float32))
        assert torch.equal(found[f"{name}.weight"].float(), torch.from_numpy(wanted))
