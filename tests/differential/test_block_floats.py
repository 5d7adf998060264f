"""NVFP4, MXFP4 and MXFP8 of the libraries that make them: decoded and repacked, and read back.

Sources: compressed-tensors 0.20 (`compressors/nvfp4/base.py`, `quantization/lifecycle/forward.py`),
ModelOpt 0.47 (`quantization/qtensor`), transformers 5.24 (`integrations/mxfp4.py`,
`integrations/finegrained_fp8.py`).
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc.dtypes import DATA_TYPES
from memdesc.record import record_desc
from reorder.checkpoints.config import Configs

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = [
    pytest.mark.judges,
    pytest.mark.filterwarnings("ignore"),  # of the libraries that are asked
]

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
compressed = pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")

_BITS = {"f32": "int32", "bf16": "int16", "f16": "int16"}
_TYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
_TOKENS = [list(range(12))]


@pytest.fixture(name="modelopt", scope="module")
def _modelopt() -> Any:
    return pytest.importorskip(
        "modelopt.torch.quantization", reason="nvidia-modelopt is not installed"
    )


def _record(name: str, dims: tuple[int, ...]) -> reorder.records.Record:
    """Return a record of random bits; exponents are those of finite numbers."""
    rng = np.random.default_rng(0)
    desc = record_desc(dims, name)
    record = reorder.records.Record(desc)
    for part in desc.fields:
        shape = part.layout.dims
        words = rng.integers(0, 255, shape, np.uint8)
        if part.kind == "f32":
            record.set_field(part.name, rng.lognormal(0, 9, shape).astype(np.float32))
        elif part.kind == "f4_e2m1":
            record.set_field(part.name, (words & 15).view(DATA_TYPES[part.kind].numpy))
        else:
            record.set_field(part.name, words.view(DATA_TYPES[part.kind].numpy))
    return record


def _tensor(record: reorder.records.Record, name: str, kind: str, *shape: int) -> Any:
    """Return a tensor of a record in torch."""
    return torch.from_numpy(record.tensors[name]).view(getattr(torch, kind)).reshape(shape)


def _decoded(record: reorder.records.Record, kind: str) -> Any:
    """Return what a record becomes here, in torch."""
    found = reorder.dequantize(record, dtype=kind).numpy()
    bits = torch.from_numpy(found.view(np.uint32 if kind == "f32" else np.uint16).copy())
    return bits.view(getattr(torch, _TYPES[kind]))


def _same(found: Any, wanted: Any, *, is_signed: bool = True) -> bool:
    """Whether all bits are equal; NaNs are equal, and zeros of either sign if they have none."""
    assert found.dtype == wanted.dtype
    zero = torch.zeros((), dtype=found.dtype)
    one, other = (each if is_signed else each + zero for each in (found, wanted))
    nans = torch.isnan(other)
    kind = torch.int32 if found.dtype == torch.float32 else torch.int16
    bits = torch.equal(one.contiguous().view(kind)[~nans], other.contiguous().view(kind)[~nans])
    return bits and bool(torch.equal(torch.isnan(one), nans))


_DIMS = (72, 256)


def _compressed(record: reorder.records.Record, preset: str, compressor: str, **types: Any) -> Any:
    """Return what compressed-tensors makes of a record."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization.quant_scheme import preset_name_to_scheme

    scheme = preset_name_to_scheme(preset, ["Linear"])
    tensors = {
        name: _tensor(record, name, *spec) if name in record.tensors else None
        for name, spec in types.items()
    }
    chosen = BaseCompressor.get_value_from_registry(compressor)
    return chosen.decompress(tensors, scheme)["weight"]


@pytest.mark.parametrize(
    ("name", "preset", "compressor", "types"),
    [
        (
            "compressed_nvfp4",
            "NVFP4A16",
            "nvfp4-pack-quantized",
            {
                "weight_packed": ("uint8", 72, 128),
                "weight_scale": ("float8_e4m3fn", 72, 16),
                "weight_global_scale": ("float32", 1),
            },
        ),
        (
            "compressed_mxfp4",
            "MXFP4A16",
            "mxfp4-pack-quantized",
            {"weight_packed": ("uint8", 72, 128), "weight_scale": ("uint8", 72, 8)},
        ),
        (
            "mxfp8",
            "MXFP8A16",
            "mxfp8-quantized",
            {"weight": ("float8_e4m3fn", 72, 256), "weight_scale": ("uint8", 72, 8)},
        ),
    ],
)
def test_bits_are_those_of_compressed_tensors(
    name: str, preset: str, compressor: str, types: dict[str, Any]
) -> None:
    record = _record(name, _DIMS)
    theirs = _compressed(record, preset, compressor, **types)
    assert theirs.dtype == torch.bfloat16
    assert _same(_decoded(record, "bf16"), theirs)


def test_nvfp4_of_compressed_tensors_is_divided_in_f32() -> None:
    from compressed_tensors.compressors.nvfp4 import unpack_fp4_from_uint8
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    from compressed_tensors.quantization.quant_scheme import NVFP4A16

    record = _record("compressed_nvfp4", _DIMS)
    codes = unpack_fp4_from_uint8(_tensor(record, "weight_packed", "uint8", 72, 128), *_DIMS)
    theirs = dequantize(
        codes,
        _tensor(record, "weight_scale", "float8_e4m3fn", 72, 16).to(torch.bfloat16),
        args=NVFP4A16["weights"],
        dtype=torch.float32,
        global_scale=_tensor(record, "weight_global_scale", "float32", 1),
    )
    assert _same(_decoded(record, "f32"), theirs)


def _of_modelopt(tensors: dict[str, Any], dtype: Any) -> Any:
    """Return what ModelOpt makes of the tensors of a weight."""
    from modelopt.torch.quantization.qtensor import FP8QTensor, MXFP4QTensor, MXFP8QTensor
    from modelopt.torch.quantization.qtensor import NVFP4QTensor as Nvfp4

    weight, scale, *rest = tensors.values()
    sizes = *weight.shape[:-1], 2 * weight.shape[-1]
    if rest:
        made = Nvfp4(sizes, dtype, weight)
        return made.dequantize(dtype, scale=scale, double_scale=rest[0], block_sizes={-1: 16})
    if weight.dtype == torch.uint8:
        made = MXFP4QTensor(sizes, dtype, weight)
        return made.dequantize(dtype, scale=scale, block_sizes={-1: 32})
    if scale.dtype == torch.uint8:
        return MXFP8QTensor(weight.shape, dtype, weight).dequantize(dtype, scale=scale)
    blocks = scale.reshape(-(-weight.shape[0] // 128), -1)
    made = FP8QTensor(weight.shape, dtype, weight)
    return made.dequantize(dtype, scale=blocks, block_sizes={-1: 128, -2: 128})


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
@pytest.mark.parametrize(
    ("name", "types"),
    [
        (
            "modelopt_nvfp4",
            {
                "weight": ("uint8", 72, 128),
                "weight_scale": ("float8_e4m3fn", 72, 16),
                "weight_scale_2": ("float32",),
            },
        ),
        ("modelopt_mxfp4", {"weight": ("uint8", 72, 128), "weight_scale": ("uint8", 72, 8)}),
        ("mxfp8", {"weight": ("float8_e4m3fn", 72, 256), "weight_scale": ("uint8", 72, 8)}),
    ],
)
def test_bits_are_those_of_modelopt(
    modelopt: Any, name: str, types: dict[str, Any], kind: str
) -> None:
    assert modelopt
    record = _record(name, _DIMS)
    tensors = {each: _tensor(record, each, *spec) for each, spec in types.items()}
    theirs = _of_modelopt(tensors, getattr(torch, _TYPES[kind]))
    # its table of NVFP4 has 0 for the code of -0
    assert _same(_decoded(record, kind), theirs, is_signed=name != "modelopt_nvfp4")


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_bits_of_experts_are_those_of_gpt_oss(kind: str) -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    record = _record("gpt_oss_mxfp4", (3, 40, 96))
    blocks = _tensor(record, "blocks", "uint8", 3, 40, 3, 16)
    scales = _tensor(record, "scales", "uint8", 3, 40, 3)
    theirs = convert_moe_packed_tensors(blocks, scales, dtype=getattr(torch, _TYPES[kind]))
    assert _same(_decoded(record, kind).transpose(1, 2), theirs)


def test_an_exponent_of_255_is_not_a_number_by_ocp_and_a_power_of_two_in_transformers() -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    record = reorder.records.Record(record_desc((1, 1, 32), "gpt_oss_mxfp4"))
    record.tensors["blocks"][:] = 0x11  # codes of 0.5
    record.tensors["scales"][:] = 255
    blocks = _tensor(record, "blocks", "uint8", 1, 1, 1, 16)
    theirs = convert_moe_packed_tensors(blocks, _tensor(record, "scales", "uint8", 1, 1, 1))
    assert (theirs == 2.0**127).all()
    assert torch.isnan(_decoded(record, "f32")).all()


@pytest.mark.parametrize(
    ("name", "shape", "scales"),
    [
        ("fp8_block", (3, 256, 128), (3, 2, 1)),
        ("fp8_tensor", (3, 40, 72), (3, 1, 1)),
        ("fp8_channel", (3, 40, 72), (3, 40, 1)),
        ("mxfp8", (3, 40, 96), (3, 40, 3)),
    ],
)
def test_bits_of_experts_in_one_tensor_are_those_of_transformers(
    name: str, shape: tuple[int, ...], scales: tuple[int, ...]
) -> None:
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    record = _record(name, shape)
    # it rounds to the type of scales, and to bf16 if these are exponents
    stored, kind = ("uint8", "bf16") if name == "mxfp8" else ("float32", "f32")
    tensors = {
        "weight": _tensor(record, "weight", "float8_e4m3fn", *shape),
        "weight_scale_inv": _tensor(record, "weight_scale", stored, *scales),
    }
    assert _same(_decoded(record, kind), Fp8Dequantize(None).convert(tensors)["weight"])


def _llama() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=96,
        tie_word_embeddings=False,
        architectures=["LlamaForCausalLM"],
    )
    return transformers.LlamaForCausalLM(config).to(torch.bfloat16)


def _saved_compressed(path: Path, preset: str) -> None:
    """Save a tiny model that compressed-tensors has quantised."""
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
    from compressed_tensors.quantization.quant_scheme import preset_name_to_scheme
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    model = _llama()
    groups = {"group_0": preset_name_to_scheme(preset, ["Linear"])}
    apply_quantization_config(model, QuantizationConfig(config_groups=groups, ignore=["lm_head"]))
    for module in model.modules():
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is None:
            continue
        weight, size = module.weight.data, scheme.weights.group_size
        parts = weight.reshape(len(weight), -1, size)
        whole = None
        if hasattr(module, "weight_global_scale"):
            whole = generate_gparam(weight.amin(), weight.amax())
            module.weight_global_scale.data.copy_(whole)
        low, high = parts.amin(-1), parts.amax(-1)
        scale, _ = calculate_qparams(low, high, scheme.weights, global_scale=whole)
        module.weight_scale.data.copy_(scale)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(path)
    compressor.update_config(path)


def _saved_modelopt(model: Any, path: Path, config: str | dict[str, Any]) -> None:
    """Save a tiny model that ModelOpt has quantised."""
    from modelopt.torch import quantization
    from modelopt.torch.export import export_hf_checkpoint

    def calibrate(each: Any) -> None:
        each(torch.tensor(_TOKENS))

    chosen = getattr(quantization, config) if isinstance(config, str) else config
    quantization.quantize(model, copy.deepcopy(chosen), calibrate)
    export_hf_checkpoint(model, export_dir=path)


def _loaded(path: Path) -> tuple[dict[str, Any], Any]:
    """Return the parameters and the logits of a model that transformers loads."""
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
    with torch.no_grad():
        logits = model(torch.tensor(_TOKENS)).logits
    return dict(model.named_parameters()), logits


@pytest.mark.parametrize(
    ("preset", "name"),
    [("NVFP4A16", "compressed_nvfp4"), ("MXFP4A16", "compressed_mxfp4"), ("MXFP8A16", "mxfp8")],
)
def test_a_model_of_compressed_tensors_gives_its_logits_as_bf16(
    tmp_path: Path, preset: str, name: str
) -> None:
    _saved_compressed(tmp_path / "in", preset)
    theirs, logits = _loaded(tmp_path / "in")
    with reorder.open_checkpoint(tmp_path / "in") as checkpoint:
        record = checkpoint.record("model.layers.0.mlp.down_proj")
        assert record.desc == record_desc((64, 128), name)
        found = _decoded(record, "bf16")
    assert _same(found, theirs["model.layers.0.mlp.down_proj.weight"].detach())
    report = reorder.convert(tmp_path / "in", tmp_path / "out", map=[f"*: {name} -> plain, bf16"])
    assert report.converted == 7
    assert Configs(tmp_path / "out").declared is None
    assert torch.equal(_loaded(tmp_path / "out")[1], logits)


_CONFIGS = {
    "NVFP4_DEFAULT_CFG": "modelopt_nvfp4",
    "MXFP4_DEFAULT_CFG": "modelopt_mxfp4",
    "MXFP8_DEFAULT_CFG": "mxfp8",
}


def _tensors_of(path: Path, prefix: str) -> dict[str, Any]:
    """Return the tensors of a weight, in torch."""
    from safetensors.torch import load_file

    held = load_file(path / "model.safetensors")
    roles = ("weight", "weight_scale", "weight_scale_2")
    return {f"{prefix}.{r}": held[f"{prefix}.{r}"] for r in roles if f"{prefix}.{r}" in held}


@pytest.mark.parametrize(("config", "name"), _CONFIGS.items())
def test_a_model_of_modelopt_is_read_as_its_files_say(
    tmp_path: Path, modelopt: Any, config: str, name: str
) -> None:
    assert modelopt
    prefix = "model.layers.0.mlp.down_proj"
    _saved_modelopt(_llama(), tmp_path / "in", config)
    with reorder.open_checkpoint(tmp_path / "in") as checkpoint:
        record = checkpoint.record(prefix)
    assert record.desc == record_desc((64, 128), name)
    theirs = _of_modelopt(_tensors_of(tmp_path / "in", prefix), torch.float32)
    assert _same(_decoded(record, "f32"), theirs, is_signed=name != "modelopt_nvfp4")


def test_layers_of_modelopt_may_have_algorithms_of_their_own(tmp_path: Path, modelopt: Any) -> None:
    config = copy.deepcopy(modelopt.NVFP4_DEFAULT_CFG)
    for end in ("weight_quantizer", "input_quantizer"):
        chosen = {"num_bits": (4, 3), "axis": None}
        config["quant_cfg"].append({"quantizer_name": f"*self_attn*{end}", "cfg": chosen})
    _saved_modelopt(_llama(), tmp_path / "in", config)
    rules = ["*.self_attn.*: fp8_tensor -> plain, bf16", "*.mlp.*: modelopt_nvfp4 -> plain, bf16"]
    report = reorder.convert(tmp_path / "in", tmp_path / "out", map=rules)
    assert report.converted == 7
    with reorder.open_checkpoint(tmp_path / "in") as checkpoint:
        records = [checkpoint.record(f"model.layers.0.{each}") for each in _MIXED]
    assert [record.desc.name for record in records] == [*_MIXED.values()]
    theirs = _of_modelopt(_tensors_of(tmp_path / "in", "model.layers.0.mlp.up_proj"), torch.float32)
    assert _same(_decoded(records[1], "f32"), theirs, is_signed=False)


_MIXED = {"self_attn.q_proj": "fp8_tensor", "mlp.up_proj": "modelopt_nvfp4"}


def test_scales_of_blocks_have_four_dims_in_modelopt(tmp_path: Path, modelopt: Any) -> None:
    assert modelopt
    config = transformers.LlamaConfig(
        hidden_size=256,
        intermediate_size=384,
        num_hidden_layers=1,
        num_attention_heads=2,
        vocab_size=32,
        architectures=["LlamaForCausalLM"],
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    _saved_modelopt(model, tmp_path / "in", "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG")
    prefix = "model.layers.0.mlp.down_proj"
    tensors = _tensors_of(tmp_path / "in", prefix)
    assert tensors[f"{prefix}.weight_scale"].shape == (2, 1, 3, 1)
    with reorder.open_checkpoint(tmp_path / "in") as checkpoint:
        record = checkpoint.record(prefix)
    assert record.desc == record_desc((256, 384), "fp8_block")
    assert _same(_decoded(record, "f32"), _of_modelopt(tensors, torch.float32))


def test_nvfp4_of_modelopt_is_loaded_by_compressed_tensors(tmp_path: Path, modelopt: Any) -> None:
    assert modelopt
    from compressed_tensors.entrypoints.convert import ModelOptNvfp4Converter
    from safetensors.torch import load_file

    _saved_modelopt(_llama(), tmp_path / "in", "NVFP4_DEFAULT_CFG")
    rule = "*: modelopt_nvfp4 -> compressed_nvfp4"
    report = reorder.convert(tmp_path / "in", tmp_path / "out", map=[rule])
    said = "weight_scale * weight_scale_2 becomes weight_scale / weight_global_scale, with the"
    assert any(said in warning for warning in report.warnings)
    theirs, _ = _loaded(tmp_path / "out")
    for name in [each for each in theirs if each.endswith("proj.weight")]:
        tensors = _tensors_of(tmp_path / "in", name.removesuffix(".weight"))
        # a change of one part in 2**23 decides few roundings to bf16
        assert torch.equal(theirs[name].detach(), _of_modelopt(tensors, torch.bfloat16))
    # their own converter writes the same bytes
    held = load_file(tmp_path / "in/model.safetensors")
    wanted = ModelOptNvfp4Converter(targets=["re:.*proj$"]).process(held)
    found = load_file(tmp_path / "out/model.safetensors")
    parts = ("weight_packed", "weight_scale", "weight_global_scale")
    names = [each for each in wanted if each.endswith(parts)]
    assert len(names) == 3 * 7
    for name in names:
        words = (each[name].reshape(-1).view(torch.uint8) for each in (found, wanted))
        assert torch.equal(*words)


def test_nvfp4_of_compressed_tensors_is_decoded_by_modelopt(tmp_path: Path, modelopt: Any) -> None:
    assert modelopt
    _saved_compressed(tmp_path / "in", "NVFP4A16")
    theirs, _ = _loaded(tmp_path / "in")
    rule = "*: compressed_nvfp4 -> modelopt_nvfp4"
    reorder.convert(tmp_path / "in", tmp_path / "out", map=[rule])
    section = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert section["quant_algo"] == "NVFP4"
    prefix = "model.layers.0.self_attn.q_proj"
    found = _of_modelopt(_tensors_of(tmp_path / "out", prefix), torch.bfloat16)
    assert _same(found, theirs[f"{prefix}.weight"].detach(), is_signed=False)


def _gpt_oss(path: Path) -> dict[str, Any]:
    """Save a tiny mixture of experts with random blocks and scales, as gpt-oss is stored."""
    from safetensors.torch import save_file

    torch.manual_seed(0)
    config = _gpt_oss_config()
    tensors = {}
    for name, value in transformers.GptOssForCausalLM(config).state_dict().items():
        if not name.endswith(("gate_up_proj", "down_proj")):
            tensors[name] = value.to(torch.bfloat16).contiguous()
            continue
        experts, inputs, outputs = value.shape
        shape = experts, outputs, inputs // 32
        tensors[f"{name}_blocks"] = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8)
        tensors[f"{name}_scales"] = torch.randint(117, 123, shape, dtype=torch.uint8)
    path.mkdir()
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"]
    section = {"quant_method": "mxfp4", "modules_to_not_convert": kept}
    text = json.dumps(config.to_dict() | {"quantization_config": section})
    (path / "config.json").write_text(text)
    return tensors


def _gpt_oss_config() -> Any:
    return transformers.GptOssConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_local_experts=4,
        num_experts_per_tok=2,
        vocab_size=96,
        sliding_window=16,
        architectures=["GptOssForCausalLM"],
        dtype="bfloat16",
    )


def test_a_mixture_of_experts_of_gpt_oss_gives_its_logits_as_bf16(tmp_path: Path) -> None:
    tensors = _gpt_oss(tmp_path / "in")
    theirs, logits = _loaded(tmp_path / "in")
    names = [each.removesuffix("_blocks") for each in tensors if each.endswith("_blocks")]
    with reorder.open_checkpoint(tmp_path / "in") as checkpoint:
        for name in names:
            found = _decoded(checkpoint.record(name), "bf16").transpose(1, 2)
            assert _same(found, theirs[name].detach())
    # transformers has inputs before outputs
    reorder.convert(tmp_path / "in", tmp_path / "out", map=["*: gpt_oss_mxfp4 -> acb, bf16"])
    assert torch.equal(_loaded(tmp_path / "out")[1], logits)
    reorder.convert(tmp_path / "in", tmp_path / "whole", to="bf16")
    assert torch.equal(_loaded(tmp_path / "whole")[1], logits)


def test_a_mixture_of_experts_is_moved_into_the_format_of_gpt_oss_and_back(tmp_path: Path) -> None:
    _gpt_oss(tmp_path / "in")
    logits = _loaded(tmp_path / "in")[1]
    first, second = "*: gpt_oss_mxfp4 -> modelopt_mxfp4", "*: modelopt_mxfp4 -> gpt_oss_mxfp4"
    reorder.convert(tmp_path / "in", tmp_path / "a", map=[first])
    reorder.convert(tmp_path / "a", tmp_path / "b", map=[second])
    assert torch.equal(_loaded(tmp_path / "b")[1], logits)


def test_nvfp4_experts_of_modelopt_have_inputs_first(tmp_path: Path, modelopt: Any) -> None:
    assert modelopt
    from safetensors.torch import load_file

    torch.manual_seed(0)
    model = transformers.GptOssForCausalLM(_gpt_oss_config()).to(torch.bfloat16)
    _saved_modelopt(model, tmp_path / "in", "NVFP4_DEFAULT_CFG")
    held = load_file(tmp_path / "in/model.safetensors")
    name = "model.layers.0.mlp.experts.gate_up_proj"
    codes, scales = (held[f"{name}{end}"].transpose(1, 2) for end in ("", "_weight_scale"))
    tensors = {"weight": codes, "scale": scales, "scale_2": held[f"{name}_weight_scale_2"]}
    theirs = _of_modelopt(tensors, torch.float32)
    with reorder.open_checkpoint(tmp_path / "in") as checkpoint:
        record = checkpoint.record(name)
    assert record.desc == record_desc((4, 64, 192), "modelopt_nvfp4")
    assert _same(_decoded(record, "f32").transpose(1, 2), theirs, is_signed=False)
    made = reorder.records.repack(record, "compressed_nvfp4", exact=False)
    assert made.desc == record_desc((4, 192, 64), "compressed_nvfp4")
    found = _decoded(made, "f32")
    assert torch.allclose(found, theirs, rtol=2**-22, atol=0)
