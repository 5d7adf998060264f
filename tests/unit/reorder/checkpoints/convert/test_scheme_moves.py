"""What weights of quantisation schemes become: other records, and how these are declared."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc.record import record_desc
from tests.unit.reorder.checkpoints.convert.results import (
    SMALL,
    convert,
    converted,
    refused,
    words_of,
)
from tests.unit.reorder.checkpoints.schemes import (
    BESIDE,
    DIMS,
    SCHEMES,
    Layer,
    Weight,
    declared,
    deepseek_fp4,
    fp8,
    mlx,
    modelopt,
    numbers_in,
    nvfp4,
    record_in,
    refusal,
    write_model,
)

_SIZES = {
    "fp8_tensor": ((1, 1), (300, 130)),
    "fp8_channel": ((300, 1), (1, 130)),
    "fp8_block": ((3, 2), (128, 128)),
}
_DEEPSEEK = declared("fp8", fmt="e4m3", weight_block_size=[128, 128])
_STACKED = "mlp.experts.gate_up_proj"
_EXPERTS = {each.record: each.make for each in SCHEMES.values() if each.prefix == _STACKED}


def _fp8(name: str, scale: str = "weight_scale", **more: Any) -> Weight:
    shape, block = _SIZES[name]
    return fp8(scale, shape, block=block, **more)


# FP8


@pytest.mark.parametrize(
    ("name", "target", "method"),
    [
        ("fp8_block(scale_inv=true, block=128)", "fp8_block", "compressed-tensors"),
        ("fp8_block(block=128)", "fp8_block(scale_inv=true)", "fp8"),
        ("fp8_tensor", "fp8_channel", "fbgemm_fp8"),
        ("fp8_tensor", "fp8_block(scale_inv=true, block=64)", "fp8"),
        ("fp8_tensor(scale_inv=true)", "fp8_tensor", "fp8"),
        ("fp8_tensor", "fp8_tensor(scale_inv=true, scales=bf16)", "fp8"),
    ],
)
def test_a_record_is_moved_and_declared_as_its_readers_expect(
    tmp_path: Path, name: str, target: str, method: str
) -> None:
    layer, wanted = _fp8(
        name.partition("(")[0], "weight_scale_inv" if "inv" in name else "weight_scale"
    )
    folder = write_model(tmp_path / "in", {"fc": layer}, {})
    made = converted(folder, tmp_path / "out", f"fc: {name} -> {target}")
    assert made["fc.weight"].tobytes() == layer[".weight"].tobytes()
    section = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert section["quant_method"] == method
    key = "ignore" if method == "compressed-tensors" else "modules_to_not_convert"
    # what no other program reads is declared by its own name
    assert section.get(key) == (None if method == "fp8_channel" else ["lm_head"])
    assert section.get("bits", 8) == 8
    assert record_in(tmp_path / "out", "fc").desc.name == target.partition("(")[0]
    assert np.array_equal(numbers_in(tmp_path / "out"), wanted)


def test_bytes_without_a_type_are_codes_and_scales_where_the_rule_says_so(tmp_path: Path) -> None:
    layer, wanted = _fp8("fp8_block", kind="e8m0")
    words: Layer = {end: array.view(np.uint8) for end, array in layer.items()}
    folder = write_model(tmp_path / "in", {"fc": words}, {})
    said = refused(folder, tmp_path / "out", "*: fp8_block(block=128) -> plain, f32")
    assert "codes are f8_e4m3, f8_e5m2, not u8; give codes= if the words hold one" in said
    rule = "*: fp8_block(block=128, codes=f8_e4m3, scales=e8m0) -> plain, f32"
    assert np.array_equal(converted(folder, tmp_path / "out", rule)["fc.weight"], wanted)


# Experts


def test_a_model_of_deepseek_v4_becomes_floats(tmp_path: Path) -> None:
    (dense, attention), (expert, routed) = fp8("scale", (3, 2), kind="e8m0"), deepseek_fp4()
    layers = {"layers.0.attn.wq_a": dense, "layers.0.ffn.experts.0.w1": expert}
    folder = write_model(tmp_path / "in", layers, {**_DEEPSEEK, "expert_dtype": "fp4"})
    reorder.convert(folder, tmp_path / "out", to="bf16")
    made = words_of(tmp_path / "out")
    for name, wanted in zip(layers, (attention, routed), strict=True):
        assert np.array_equal(made[f"{name}.weight"], wanted.astype(ml_dtypes.bfloat16))
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert not config.keys() & {"quantization_config", "expert_dtype"}


@pytest.mark.parametrize(
    ("name", "target", "ends"),
    [
        ("gpt_oss_mxfp4", "modelopt_mxfp4", ("", "_weight_scale")),
        ("fp8_block(block=128)", "fp8_block(scale_inv=true, block=64)", ("", "_scale_inv")),
        ("fp8_block(block=128)", "fp8_block(scale_inv=false)", ("", "_weight_scale")),
    ],
)
def test_experts_keep_their_names(
    tmp_path: Path, name: str, target: str, ends: tuple[str, ...]
) -> None:
    layer, wanted = _EXPERTS[name.partition("(")[0]]()
    folder = write_model(tmp_path / "in", {_STACKED: layer}, {})
    made = converted(folder, tmp_path / "out", f"mlp*: {name} -> {target}")
    assert made.keys() == {f"{_STACKED}{end}" for end in ends} | {*BESIDE}
    assert record_in(tmp_path / "out", _STACKED).desc.name == target.partition("(")[0]
    assert np.array_equal(numbers_in(tmp_path / "out", _STACKED), wanted)
    loaded = reorder.load_all(tmp_path / "out/model.safetensors", reorder.records.Record)
    assert [*loaded] == [_STACKED]
    # once more, from what was written
    again = converted(tmp_path / "out", tmp_path / "b", f"mlp*: {target} -> plain, f32")
    assert np.array_equal(again[_STACKED], wanted)


# ModelOpt, and blocks of 4 bits


def test_layers_of_modelopt_may_have_algorithms_of_their_own(tmp_path: Path) -> None:
    weights = {"a.fc": nvfp4(), "b.fc": fp8("weight_scale", (), block=(300, 130))}
    own: dict[str, Any] = {"a.fc": {"quant_algo": "NVFP4"}, "b.fc": {"quant_algo": "FP8"}}
    layers = {name: layer for name, (layer, _) in weights.items()}
    config = modelopt("MIXED_PRECISION", quantized_layers=own)
    folder = write_model(tmp_path / "in", layers, config)
    old = {"quantization": config["quantization_config"]}
    (folder / "hf_quant_config.json").write_text(json.dumps(old))
    for name, record in (("a.fc", "modelopt_nvfp4"), ("b.fc", "fp8_tensor")):
        assert record_in(folder, name).desc.name == record
        assert np.array_equal(numbers_in(folder, name), weights[name][1])
    own["b.fc"]["quant_algo"] = "NVFP4"
    (folder / "config.json").write_text(json.dumps(config))
    said = refusal(folder, "b.fc")
    assert "hf_quant_config.json" in said
    assert "correct the one that is wrong" in said


@pytest.mark.parametrize("divides", [True, False])
def test_a_reciprocal_is_rounded_after_a_warning(tmp_path: Path, *, divides: bool) -> None:
    layer, wanted = nvfp4(divides=divides)
    old, new = ("compressed_nvfp4", "modelopt_nvfp4")[:: 1 if divides else -1]
    folder = write_model(tmp_path / "in", {"fc": layer}, {})
    said = " ".join(convert(folder, tmp_path / "out", f"fc: {old} -> {new}").warnings)
    assert "reciprocal" in said
    assert "scales change by at most 1.2e-07 of their value" in said
    made = words_of(tmp_path / "out")
    ends = ("", "_scale", "_scale_2") if divides else ("_packed", "_scale", "_global_scale")
    codes, scales, whole = (made[f"fc.weight{end}"] for end in ends)
    first, second, third = layer.values()
    assert np.array_equal(whole, (1 / third).astype(np.float32).reshape(1))
    assert (codes.tobytes(), scales.tobytes()) == (first.tobytes(), second.tobytes())
    assert record_in(tmp_path / "out", "fc").desc.name == new
    found = numbers_in(tmp_path / "out")
    assert not np.array_equal(found, wanted)
    assert np.allclose(found, wanted, rtol=2.0**-22, atol=0)


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (2.0**-140, "change by more than a rounding"),
        (0, "a factor of scales is 0, which has no reciprocal"),
    ],
)
def test_a_reciprocal_that_f32_does_not_hold_is_refused(
    tmp_path: Path, factor: float, said: str
) -> None:
    layer = nvfp4()[0] | {".weight_scale_2": np.array(factor, np.float32)}
    folder = write_model(tmp_path / "in", {"fc": layer}, {})
    rule = "fc: modelopt_nvfp4 -> compressed_nvfp4"
    assert said in refused(folder, tmp_path / "out", rule)


# MLX


@pytest.mark.parametrize(("bits", "wide"), [(1, 2), (3, 4), (3, 5), (5, 6), (4, 8), (6, 8)])
def test_wider_codes_hold_the_same_numbers(tmp_path: Path, bits: int, wide: int) -> None:
    layer, wanted = mlx(bits)
    config = {"quantization": {"bits": bits, "group_size": 64}}
    folder = write_model(tmp_path / "in", {"fc": layer}, config)
    # bits that a rule leaves out are those of the model
    rule, small = f"fc: mlx -> mlx(bits={wide}, group=32)", SMALL._replace(max_bytes=1 << 14)
    converted(folder, tmp_path / "out", rule, settings=small)
    section = {"bits": wide, "group_size": 32, "mode": "affine"}
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config == {"quantization": section, "quantization_config": section}
    assert np.array_equal(numbers_in(tmp_path / "out", dtype="bf16"), wanted)
    assert "'fc." in refused(folder, tmp_path / "no", f"*: mlx(bits={wide}) -> plain, bf16")


def test_words_of_mlx_may_be_signed(tmp_path: Path) -> None:
    layer, _ = mlx(kind="f16")
    layer[".weight"] = layer[".weight"].view(np.int32)
    config = {"quantization": {"bits": 4, "group_size": 64}}
    folder = write_model(tmp_path / "in", {"fc": layer}, config)
    assert record_in(folder, "fc").desc == record_desc(DIMS, "mlx", scales="f16")
