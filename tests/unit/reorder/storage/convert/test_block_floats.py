"""Checkpoints of NVFP4, MXFP4 and MXFP8, and experts in one tensor: read, decoded, and moved."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import MemdescError, record_desc
from reorder.cli import main
from reorder.storage.quantization import declared_record
from tests.checkpoints import write_config, write_safetensors
from tests.unit.reorder.storage.convert.results import SMALL, converted, refused

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture

Layer = dict[str, "NDArray[Any]"]

_DIMS = (48, 64)
_EXPERTS = (3, 48, 64)
_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_E2M1 = np.concatenate([_VALUES, -_VALUES])
_RNG = np.random.default_rng(0)


def _compressed(form: str, bits: int, group: int, **more: Any) -> dict[str, Any]:
    strategy = "tensor_group" if form.startswith("nvfp4") else "group"
    weights = {"type": "float", "num_bits": bits, "strategy": strategy, "group_size": group, **more}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}


def _modelopt(algorithm: str, **more: Any) -> dict[str, Any]:
    return {"quant_method": "modelopt", "quant_algo": algorithm, **more}


def _packed(dims: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return random codes of 4 bits as words, and their values."""
    words = _RNG.integers(0, 256, (*dims[:-1], dims[-1] // 2), np.uint8)
    codes = np.stack([words & 15, words >> 4], -1).reshape(dims)
    return words, _E2M1[codes]


def _of_each(scales: NDArray[Any], group: int) -> NDArray[np.float32]:
    return scales.astype(np.float32).repeat(group, -1)


def _nvfp4(
    dims: tuple[int, ...] = _DIMS, *, divides: bool = False
) -> tuple[Layer, NDArray[np.float32]]:
    """Return the tensors of a weight, and its numbers by the definition."""
    words, values = _packed(dims)
    scales = _RNG.lognormal(0, 1, (*dims[:-1], dims[-1] // 16)).astype(ml_dtypes.float8_e4m3fn)
    whole = np.array([1234.5 if divides else 0.0123], np.float32)
    each = _of_each(scales, 16)
    factor = each / whole if divides else each * whole
    names = (
        ("weight_packed", "weight_scale", "weight_global_scale")
        if divides
        else ("weight", "weight_scale", "weight_scale_2")
    )
    whole = whole if divides else whole.reshape(())
    return dict(zip(names, (words, scales, whole), strict=True)), values * factor


def _mxfp4(
    dims: tuple[int, ...], names: tuple[str, str] = ("weight", "weight_scale")
) -> tuple[Layer, NDArray[np.float32]]:
    words, values = _packed(dims)
    exponents = _RNG.integers(117, 130, (*dims[:-1], dims[-1] // 32), np.uint8)
    scales = np.exp2(exponents.astype(np.float32) - 127)
    if names[0] == "blocks":
        words = words.reshape(*exponents.shape, 16)
    return dict(zip(names, (words, exponents), strict=True)), values * _of_each(scales, 32)


def _mxfp8(dims: tuple[int, ...] = _DIMS) -> tuple[Layer, NDArray[np.float32]]:
    codes = _RNG.standard_normal(dims).astype(ml_dtypes.float8_e4m3fn)
    exponents = _RNG.integers(117, 130, (*dims[:-1], dims[-1] // 32), np.uint8)
    scales = np.exp2(exponents.astype(np.float32) - 127)
    layer = {"weight": codes, "weight_scale": exponents}
    return layer, codes.astype(np.float32) * _of_each(scales, 32)


def _fp8_block(dims: tuple[int, ...], scale: str) -> tuple[Layer, NDArray[np.float32]]:
    codes = _RNG.standard_normal(dims).astype(ml_dtypes.float8_e4m3fn)
    scales = _RNG.random((*dims[:-2], -(-dims[-2] // 128), -(-dims[-1] // 128))).astype(np.float32)
    each = scales.repeat(128, -2).repeat(128, -1)[..., : dims[-2], : dims[-1]]
    return {"weight": codes, scale: scales}, codes.astype(np.float32) * each


_BESIDE: Layer = {
    "norm.weight": np.ones(64, ml_dtypes.bfloat16),
    "lm_head.weight": np.ones((8, 64), ml_dtypes.bfloat16),
}


def _folder(
    path: Path, layer: Layer, section: dict[str, Any] | None, stem: str = "fc.", **beside: Any
) -> Path:
    path.mkdir(exist_ok=True)
    tensors = {f"{stem}{role}": array for role, array in layer.items()}
    write_safetensors(path / "model.safetensors", tensors | _BESIDE | beside)
    if section is None:
        (path / "config.json").write_text("{}")
    else:
        write_config(path, **section)
    return path


_NVFP4 = _compressed("nvfp4-pack-quantized", 4, 16)
# how producers declare formats -> the record, and what makes a layer of it
_PRODUCERS: list[tuple[dict[str, Any], str, Any]] = [
    (_NVFP4, "compressed_nvfp4", lambda: _nvfp4(divides=True)),
    (
        _compressed("mxfp4-pack-quantized", 4, 32, scale_dtype="torch.uint8"),
        "compressed_mxfp4",
        lambda: _mxfp4(_DIMS, ("weight_packed", "weight_scale")),
    ),
    (_compressed("mxfp8-quantized", 8, 32), "mxfp8", _mxfp8),
    (_modelopt("NVFP4", group_size=16), "modelopt_nvfp4", _nvfp4),
    (_modelopt("W4A16_NVFP4"), "modelopt_nvfp4", _nvfp4),
    (_modelopt("mxfp4"), "modelopt_mxfp4", lambda: _mxfp4(_DIMS)),
    (_modelopt("W4A8_MXFP4_FP8", group_size=32), "modelopt_mxfp4", lambda: _mxfp4(_DIMS)),
    (_modelopt("MXFP8"), "mxfp8", _mxfp8),
    (_modelopt("fp8_pb_wo"), "fp8_block", lambda: _fp8_block((257, 129), "weight_scale")),
]


@pytest.mark.parametrize(("section", "name", "make"), _PRODUCERS)
def test_what_producers_declare_is_read_decoded_and_inspected(
    tmp_path: Path, capsys: CaptureFixture[str], section: dict[str, Any], name: str, make: Any
) -> None:
    layer, wanted = make()
    folder = _folder(tmp_path / "in", layer, section)
    with reorder.open_checkpoint(folder) as checkpoint:
        record = checkpoint.record("fc")
    assert record.desc == record_desc(wanted.shape, name)
    assert np.array_equal(reorder.dequantize(record).numpy(), wanted)
    assert main(["inspect", str(folder), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    layouts = {row["name"]: row["layout"] for row in facts["tensors"]}
    assert layouts == {f"fc.{role}": f"{name} {role}" for role in layer} | dict.fromkeys(
        _BESIDE, "plain"
    )
    found = converted(folder, tmp_path / "out.safetensors", f"*: {name} -> plain, bf16")
    assert {*found} == {"fc.weight", *_BESIDE}
    assert np.array_equal(found["fc.weight"], wanted.astype(ml_dtypes.bfloat16))
    converted(folder, tmp_path / "out", f"*: {name} -> plain, bf16")
    assert declared_record(tmp_path / "out") is None


def test_scales_of_blocks_may_have_four_dims(tmp_path: Path) -> None:
    layer, wanted = _fp8_block((257, 129), "weight_scale")
    section = _modelopt("FP8_PB_WO")
    layer["weight_scale"] = layer["weight_scale"].reshape(3, 1, 2, 1)
    found = converted(
        _folder(tmp_path / "in", layer, section), tmp_path / "out", "*: fp8_block -> plain, f32"
    )
    assert np.array_equal(found["fc.weight"], wanted)
    layer["weight_scale"] = layer["weight_scale"].reshape(1, 3, 1, 2)
    said = refused(
        _folder(tmp_path / "in", layer, section), tmp_path / "b", "*: fp8_block -> plain, f32"
    )
    assert "has the shape (1, 3, 1, 2)" in said


_PREFIX = "mlp.experts.gate_up_proj"


def _experts(name: str) -> tuple[Layer, NDArray[np.float32]]:
    """Return experts in one tensor, by the ends of the names of its tensors, and its numbers."""
    if name == "gpt_oss_mxfp4":
        layer, wanted = _mxfp4(_EXPERTS, ("blocks", "scales"))
        return {f"_{role}": array for role, array in layer.items()}, wanted
    if name == "fp8_block":
        layer, wanted = _fp8_block((3, 257, 129), "weight_scale_inv")
        return {"": layer["weight"], "_scale_inv": layer["weight_scale_inv"]}, wanted
    if name == "mxfp8":
        layer, wanted = _mxfp8(_EXPERTS)
        return {"": layer["weight"], "_weight_scale": layer["weight_scale"]}, wanted
    layer, wanted = _nvfp4(_EXPERTS)
    # inputs before outputs
    turned = {role: each.swapaxes(1, 2) if each.ndim else each for role, each in layer.items()}
    ends = {"weight": "", "weight_scale": "_weight_scale", "weight_scale_2": "_weight_scale_2"}
    return {ends[role]: np.ascontiguousarray(x) for role, x in turned.items()}, wanted.swapaxes(
        1, 2
    )


_EXPERT_SECTIONS: dict[str, dict[str, Any]] = {
    "gpt_oss_mxfp4": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    "fp8_block": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "mxfp8": _modelopt("MXFP8"),
    "modelopt_nvfp4": _modelopt("NVFP4"),
}


@pytest.mark.parametrize("name", _EXPERT_SECTIONS)
def test_experts_in_one_tensor_are_a_record(
    tmp_path: Path, capsys: CaptureFixture[str], name: str
) -> None:
    layer, wanted = _experts(name)
    bias = {f"{_PREFIX}_bias": np.ones((3, 48), ml_dtypes.bfloat16)}
    folder = _folder(tmp_path / "in", layer, _EXPERT_SECTIONS[name], _PREFIX, **bias)
    options = {"scale_inv": True} if name == "fp8_block" else {}
    for given in ((), (name,)):
        with reorder.open_checkpoint(folder) as checkpoint:
            record = checkpoint.record(_PREFIX, *given)
        assert record.desc == record_desc(wanted.shape, name, **options)
        assert np.array_equal(reorder.dequantize(record).numpy(), wanted)
    assert main(["inspect", str(folder), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    layouts = {row["name"]: row["layout"] for row in facts["tensors"]}
    assert [layouts[f"{_PREFIX}{end}"] for end in layer] == [
        f"{name} {role}" for role in record.desc.tensors
    ]
    # experts have no `.weight`
    found = converted(folder, tmp_path / "out.safetensors", f"*: {name} -> plain, bf16")
    assert {*found} == {_PREFIX, *bias, *_BESIDE}
    assert np.array_equal(found[_PREFIX], wanted.astype(ml_dtypes.bfloat16))
    turned = converted(folder, tmp_path / "t.safetensors", f"*: {name} -> acb, f32")
    assert np.array_equal(turned[_PREFIX], wanted.swapaxes(1, 2))


@pytest.mark.parametrize(
    ("name", "target", "ends"),
    [
        ("gpt_oss_mxfp4", "modelopt_mxfp4", ("", "_weight_scale")),
        ("gpt_oss_mxfp4", "gpt_oss_mxfp4", ("_blocks", "_scales")),
        ("fp8_block", "fp8_block(scale_inv=true, block=64)", ("", "_scale_inv")),
        ("fp8_block", "fp8_block(scale_inv=false)", ("", "_weight_scale")),
    ],
)
def test_experts_keep_their_names(
    tmp_path: Path, name: str, target: str, ends: tuple[str, ...]
) -> None:
    layer, wanted = _experts(name)
    folder = _folder(tmp_path / "in", layer, None, _PREFIX)
    made = converted(folder, tmp_path / "out", f"mlp*: {name}{_options(name)} -> {target}")
    assert {*made} == {f"{_PREFIX}{end}" for end in ends} | {*_BESIDE}
    with reorder.open_checkpoint(tmp_path / "out") as checkpoint:
        record = checkpoint.record(_PREFIX)
    assert record.desc.name == target.partition("(")[0]
    assert np.array_equal(reorder.dequantize(record).numpy(), wanted)
    loaded = reorder.load_all(tmp_path / "out/model.safetensors", reorder.Record)
    assert [*loaded] == [_PREFIX]
    # once more, from what was written
    again = converted(tmp_path / "out", tmp_path / "b", f"mlp*: {target} -> plain, f32")
    assert np.array_equal(again[_PREFIX], wanted)


def _options(name: str) -> str:
    return "(scale_inv=true)" if name == "fp8_block" else ""


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("gpt_oss_mxfp4", "acb, bf16"),
        ("gpt_oss_mxfp4", "compressed_mxfp4"),
        ("fp8_block(scale_inv=true)", "cab, f16"),
        ("modelopt_nvfp4", "plain, f32"),
        ("modelopt_nvfp4", "compressed_nvfp4"),
    ],
)
def test_experts_are_converted_in_pieces_as_a_whole(tmp_path: Path, name: str, target: str) -> None:
    plain = name.partition("(")[0]
    layer, _ = _experts(plain)
    # many experts, one like the other
    tall = {end: np.concatenate([x] * 8) if x.ndim > 1 else x for end, x in layer.items()}
    folder = _folder(tmp_path / "in", tall, None, _PREFIX)
    rule = f"mlp*: {name} -> {target}"
    small = SMALL._replace(max_bytes=1 << 16)
    made = converted(folder, tmp_path / "a", rule, settings=small)
    whole = converted(folder, tmp_path / "b", rule)
    for each, array in whole.items():
        assert made[each].tobytes() == array.tobytes()


def test_layers_of_modelopt_may_have_algorithms_of_their_own(tmp_path: Path) -> None:
    layer, wanted = _nvfp4()
    other, values = _fp8_block((64, 48), "weight_scale")
    other["weight_scale"] = other["weight_scale"].reshape(())
    layers: dict[str, dict[str, Any]] = {
        "a.fc": {"quant_algo": "NVFP4", "group_size": 16},
        "b.fc": {"quant_algo": "FP8"},
    }
    mixed = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    beside = {f"b.fc.{role}": array for role, array in other.items()}
    folder = _folder(tmp_path / "in", layer, _modelopt(**_renamed(mixed)), "a.fc.", **beside)
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": mixed}))
    with reorder.open_checkpoint(folder) as checkpoint:
        found = {name: checkpoint.record(name) for name in layers}
    assert [record.desc.name for record in found.values()] == ["modelopt_nvfp4", "fp8_tensor"]
    for record, numbers in zip(found.values(), (wanted, values), strict=True):
        assert np.array_equal(reorder.dequantize(record).numpy(), numbers)
    layers["b.fc"]["quant_algo"] = "NVFP4"
    write_config(folder, **_modelopt(**_renamed(mixed)))
    with (
        reorder.open_checkpoint(folder) as checkpoint,
        pytest.raises(MemdescError, match=r"config.json .* hf_quant_config.json .* correct the on"),
    ):
        checkpoint.record("b.fc")


def _renamed(section: dict[str, Any]) -> dict[str, Any]:
    return {{"quant_algo": "algorithm"}.get(key, key): value for key, value in section.items()}


def test_exponents_are_stored_as_bytes_with_a_descriptor(tmp_path: Path) -> None:
    # torch would read a type of exponents as numbers
    layer, wanted = _mxfp4(_DIMS)
    folder = _folder(tmp_path / "in", layer, None)
    made = converted(folder, tmp_path / "out", "fc: modelopt_mxfp4 -> compressed_mxfp4")
    assert made["fc.weight_scale"].dtype == np.uint8
    assert np.array_equal(made["fc.weight_scale"], layer["weight_scale"])
    assert np.array_equal(made["fc.weight_packed"], layer["weight"])
    with reorder.open_checkpoint(tmp_path / "out") as checkpoint:
        assert np.array_equal(reorder.dequantize(checkpoint.record("fc")).numpy(), wanted)
    section = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert section["format"] == "mxfp4-pack-quantized"
    assert section["ignore"] == ["lm_head"]
    weights = section["config_groups"]["group_0"]["weights"]
    assert weights == {
        "dynamic": False,
        "group_size": 32,
        "num_bits": 4,
        "scale_dtype": "torch.uint8",
        "strategy": "group",
        "symmetric": True,
        "type": "float",
    }


@pytest.mark.parametrize("divides", [True, False])
def test_a_reciprocal_is_rounded_after_a_warning(tmp_path: Path, *, divides: bool) -> None:
    layer, wanted = _nvfp4(divides=divides)
    old, new = ("compressed_nvfp4", "modelopt_nvfp4")[:: 1 if divides else -1]
    folder = _folder(tmp_path / "in", layer, None)
    options = SMALL._replace(dry_run=True)
    report = reorder.convert(folder, tmp_path / "no", [f"fc: {old} -> {new}"], options)
    (said,) = [each for each in report.warnings if "reciprocal" in each]
    assert "scales change in 1 of 1 weights, by at most " in said
    error = float(said.partition("at most ")[2].partition(" ")[0])
    assert 0 < error <= 2.0**-23
    made = converted(folder, tmp_path / "out", f"fc: {old} -> {new}")
    whole = "weight_scale_2" if divides else "weight_global_scale"
    first, second, third = layer.values()
    assert np.array_equal(made[f"fc.{whole}"], (1 / third).astype(np.float32).reshape(1))
    assert made["fc.weight_scale"].tobytes() == second.tobytes()
    assert made["fc.weight" if divides else "fc.weight_packed"].tobytes() == first.tobytes()
    with reorder.open_checkpoint(tmp_path / "out") as checkpoint:
        record = checkpoint.record("fc")
    assert record.desc.name == new
    found = reorder.dequantize(record).numpy()
    assert not np.array_equal(found, wanted)
    assert np.allclose(found, wanted, rtol=2.0**-22, atol=0)


def test_a_power_of_two_has_an_exact_reciprocal(tmp_path: Path) -> None:
    layer, _ = _nvfp4()
    layer["weight_scale_2"] = np.array(2**-9, np.float32)
    folder = _folder(tmp_path / "in", layer, None)
    rule = "fc: modelopt_nvfp4 -> compressed_nvfp4"
    report = reorder.convert(folder, tmp_path / "out", [rule], SMALL)
    (said,) = [each for each in report.warnings if "reciprocal" in each]
    assert "scales change in 0 of 1 weights, by at most 0 of themselves" in said
    with reorder.open_checkpoint(folder) as a, reorder.open_checkpoint(tmp_path / "out") as b:
        ours = reorder.repack(a.record("fc", "modelopt_nvfp4"), "compressed_nvfp4")
        assert ours.tensors["weight_global_scale"].view(np.float32) == 2**9
        one, other = (reorder.dequantize(each).numpy() for each in (ours, b.record("fc")))
    assert np.array_equal(one, other)


def test_a_reciprocal_that_f32_does_not_hold_is_refused(tmp_path: Path) -> None:
    layer, _ = _nvfp4()
    layer["weight_scale_2"] = np.array(2.0**-140, np.float32)
    folder = _folder(tmp_path / "in", layer, None)
    said = refused(folder, tmp_path / "out", "fc: modelopt_nvfp4 -> compressed_nvfp4")
    assert "a factor becomes its reciprocal, and " in said
    assert "change beyond a rounding" in said


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        (_compressed("nvfp4-pack-quantized", 4, 32), "group_size is 32, not 16"),
        (_compressed("nvfp4-pack-quantized", 8, 16), "num_bits is 8, not 4"),
        (
            _compressed("nvfp4-pack-quantized", 4, 16, scale_dtype="torch.bfloat16"),
            "scale_dtype is 'torch.bfloat16', not torch.float8_e4m3fn or null",
        ),
        (_compressed("mxfp6-pack-quantized", 6, 32), "'mxfp6-pack-quantized', not "),
        (_compressed("mxfp4-pack-quantized", 4, 32), "declares compressed_mxfp4: 'fc.weight_sca"),
        (_modelopt("NVFP4"), "declares modelopt_nvfp4: 'fc' has no tensor 'weight'"),
        (_modelopt("NVFP4", group_size=32), "group_size is 32, not 16 or null"),
        (_modelopt("NVFP4_AWQ"), "quant_algo is 'NVFP4_AWQ', not FP8"),
        ({"quant_method": "mxfp4"}, "declares gpt_oss_mxfp4: 'fc' has no tensor 'blocks'"),
    ],
)
def test_what_files_and_tensors_contradict_is_refused(
    tmp_path: Path, section: dict[str, Any], problem: str
) -> None:
    layer, _ = _nvfp4(divides=True)
    folder = _folder(tmp_path / "in", layer, section)
    with (
        reorder.open_checkpoint(folder) as checkpoint,
        pytest.raises(MemdescError) as caught,
    ):
        checkpoint.record("fc")
    assert problem in str(caught.value)


@pytest.mark.parametrize("other", ["pre_quant_scale", "svdquant_lora_a", "weight_zero_point"])
def test_a_tensor_that_changes_the_layer_is_not_left_behind(tmp_path: Path, other: str) -> None:
    is_packed = other == "weight_zero_point"
    layer, _ = _nvfp4(divides=is_packed)
    name = "compressed_nvfp4" if is_packed else "modelopt_nvfp4"
    folder = _folder(tmp_path / "in", layer | {other: np.ones(64, ml_dtypes.bfloat16)}, None)
    said = refused(folder, tmp_path / "out", f"fc: {name} -> plain, bf16")
    assert f"fc.{other} belong to fc.weight" in said
    assert "its numbers would be different" in said


def test_an_exponent_that_is_not_a_number_is_refused(tmp_path: Path) -> None:
    layer, _ = _experts("gpt_oss_mxfp4")
    layer["_scales"][1, 2, 1] = 255
    folder = _folder(tmp_path / "in", layer, _EXPERT_SECTIONS["gpt_oss_mxfp4"], _PREFIX)
    said = refused(folder, tmp_path / "out", "*: gpt_oss_mxfp4 -> acb, bf16")
    assert f"{_PREFIX}: scales of e8m0 is NaN at (1, 2, 1)" in said


def _damaged(layer: Layer) -> list[tuple[str, Layer]]:
    """Return a layer with each of its tensors missing, cut, turned, or of another type."""
    made = []
    for role, array in layer.items():
        rest = {each: other for each, other in layer.items() if each != role}
        made.append((f"no {role}", rest))
        if array.size > 1:
            made.append((f"{role} cut", layer | {role: array[..., :-1]}))
            made.append((f"{role} without a row", layer | {role: array[:-1]}))
            made.append((f"{role} turned", layer | {role: array.swapaxes(0, -1)}))
            made.append((f"{role} with a dim", layer | {role: array[None, None]}))
        made.append((f"{role} wide", layer | {role: array.astype(np.float64).astype(np.int32)}))
    return made


_LAYERS: list[tuple[str, dict[str, Any], str, Any]] = [
    *(("fc.", section, name, make) for section, name, make in _PRODUCERS),
    *(
        (_PREFIX, section, name, partial(_experts, name))
        for name, section in _EXPERT_SECTIONS.items()
    ),
]


@pytest.mark.parametrize(("stem", "section", "name", "make"), _LAYERS)
def test_a_damaged_weight_is_refused_before_anything_is_written(
    tmp_path: Path, stem: str, section: dict[str, Any], name: str, make: Any
) -> None:
    """*Law*: a weight is read as a whole, or refused in one line that names it."""
    layer, _ = make()
    for damage, damaged in _damaged(layer):
        folder = _folder(tmp_path / "in", damaged, section, stem)
        with reorder.open_checkpoint(folder) as checkpoint:
            for given in ((), (name,)):
                with pytest.raises(MemdescError) as caught:
                    checkpoint.record(stem.removesuffix("."), *given)
                assert stem.removesuffix(".") in str(caught.value), damage
        said = refused(folder, tmp_path / "out", f"*: {name} -> plain, bf16")
        assert stem.removesuffix(".") in said or name in said, damage
