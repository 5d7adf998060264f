"""Checkpoints of FP8: read as config.json and the tensors say, decoded, and moved."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import DATA_TYPES, MemdescError, MemoryDesc, memory_desc, record_desc
from reorder.cli import main
from reorder.storage.quantization import declared_record
from tests.checkpoints import write_config, write_safetensors
from tests.unit.reorder.storage.convert.results import SMALL, converted, refused

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture

_DIMS = (300, 130)
_SHAPES = {"fp8_tensor": (1, 1), "fp8_channel": (300, 1), "fp8_block": (3, 2)}
_GROUPS = {"fp8_tensor": _DIMS, "fp8_channel": (1, 130), "fp8_block": (128, 128)}
_DEEPSEEK = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}


def _compressed(strategy: str, form: str = "float-quantized", **more: Any) -> dict[str, Any]:
    weights = {"type": "float", "num_bits": 8, "strategy": strategy, **more}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}


# how producers declare FP8 -> the record, the name of its scales, and their shape
_PRODUCERS: list[tuple[dict[str, Any], str, str, tuple[int, ...]]] = [
    (_DEEPSEEK, "fp8_block", "weight_scale_inv", (3, 2)),
    (_DEEPSEEK | {"fmt": None}, "fp8_block", "weight_scale_inv", (3, 2)),
    (_compressed("block", block_structure=[128, 128]), "fp8_block", "weight_scale", (3, 2)),
    (_compressed("channel"), "fp8_channel", "weight_scale", (300, 1)),
    (_compressed("channel", "naive-quantized"), "fp8_channel", "weight_scale", (300, 1)),
    (_compressed("tensor"), "fp8_tensor", "weight_scale", (1,)),
    ({"quant_method": "fbgemm_fp8"}, "fp8_channel", "weight_scale", (300, 1)),
    ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8_tensor", "weight_scale", ()),
    ({"quant_method": "fp8", "weight_block_size": None}, "fp8_tensor", "weight_scale_inv", ()),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8_tensor", "weight_scale", ()),
    (
        {"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"},
        "fp8_channel",
        "weight_scale",
        (300,),
    ),
]


def _layer(
    shape: tuple[int, ...], scale: str = "weight_scale", kind: str = "f32", codes: str = "f8_e4m3"
) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    values = 2.0 ** rng.integers(-9, -3, shape) * (rng.integers(1, 9, shape) / 8)
    return {
        "fc.weight": rng.standard_normal(_DIMS).astype(DATA_TYPES[codes].numpy),
        f"fc.{scale}": values.astype(DATA_TYPES[kind].numpy),
    }


def _numbers(layer: dict[str, NDArray[Any]], name: str) -> NDArray[np.float32]:
    """Return the numbers of a layer by the definition."""
    weight, scale = (array.astype(np.float32) for array in layer.values())
    each = scale.reshape(_SHAPES[name])
    for dim, group in enumerate(_GROUPS[name]):
        each = each.repeat(group, dim).take(range(_DIMS[dim]), dim)
    found: NDArray[np.float32] = weight * each
    return found


def _folder(path: Path, tensors: dict[str, NDArray[Any]], **section: Any) -> Path:
    path.mkdir(exist_ok=True)
    write_safetensors(path / "model.safetensors", tensors)
    if section:
        write_config(path, **section)
    return path


_BESIDE: dict[str, NDArray[Any]] = {
    "norm.weight": np.ones(130, ml_dtypes.bfloat16),
    "lm_head.weight": np.ones((8, 130), ml_dtypes.bfloat16),
}


@pytest.mark.parametrize(("section", "name", "scale", "shape"), _PRODUCERS)
def test_what_producers_declare_is_read_decoded_and_inspected(
    tmp_path: Path,
    capsys: CaptureFixture[str],
    section: dict[str, Any],
    name: str,
    scale: str,
    shape: tuple[int, ...],
) -> None:
    layer = _layer(shape, scale)
    wanted = _numbers(layer, name)
    folder = _folder(tmp_path / "in", layer | _BESIDE, **section)
    with reorder.open_checkpoint(folder) as checkpoint:
        record = checkpoint.record("fc")
    assert record.desc == record_desc(_DIMS, name, scale_inv=scale.endswith("inv"))
    assert np.array_equal(reorder.dequantize(record).numpy(), wanted)
    assert main(["inspect", str(folder), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    layouts = {row["name"]: row["layout"] for row in facts["tensors"]}
    assert layouts == {
        f"fc.{each}": f"{name} {each}" for each in ("weight", scale)
    } | dict.fromkeys(_BESIDE, "plain")
    assert not facts["notes"]
    found = converted(folder, tmp_path / "out.safetensors", f"*: {name} -> plain, bf16")
    assert {*found} == {"fc.weight", *_BESIDE}
    assert np.array_equal(found["fc.weight"], wanted.astype(ml_dtypes.bfloat16))
    converted(folder, tmp_path / "out", f"*: {name} -> plain, bf16")
    assert declared_record(tmp_path / "out") is None


@pytest.mark.parametrize("codes", ["f8_e4m3", "f8_e5m2"])
@pytest.mark.parametrize("kind", ["f32", "bf16", "f16", "e8m0"])
@pytest.mark.parametrize("name", _SHAPES)
def test_names_read_what_no_file_declares(tmp_path: Path, name: str, kind: str, codes: str) -> None:
    layer = _layer(_SHAPES[name], kind=kind, codes=codes)
    wanted = _numbers(layer, name)
    reorder.save(tmp_path / "x.safetensors", layer | _BESIDE)
    with reorder.open_checkpoint(tmp_path / "x.safetensors") as checkpoint:
        with pytest.raises(MemdescError, match=f"its tensors fit .*{name}: give the name"):
            checkpoint.record("fc")
        record = checkpoint.record("fc", name)
    assert record.desc == record_desc(_DIMS, name, codes=codes, scales=kind)
    found = converted(
        tmp_path / "x.safetensors", tmp_path / "y.safetensors", f"*: {name} -> ba, f32"
    )
    assert np.array_equal(found["fc.weight"].reshape(130, 300).T, wanted)


@pytest.mark.parametrize(
    ("name", "target", "method"),
    [
        ("fp8_block(scale_inv=true)", "fp8_block", "compressed-tensors"),
        ("fp8_block", "fp8_block(scale_inv=true)", "fp8"),
        ("fp8_tensor", "fp8_channel", "fbgemm_fp8"),
        ("fp8_tensor", "fp8_block(scale_inv=true, block=64)", "fp8"),
        ("fp8_tensor(scale_inv=true)", "fp8_tensor", "fp8"),
        ("fp8_tensor", "fp8_tensor(scale_inv=true, scales=bf16)", "fp8"),
        ("fp8_channel", "fp8_channel(scale_inv=true)", "fp8_channel"),
    ],
)
def test_a_record_is_moved_and_declared_as_its_readers_expect(
    tmp_path: Path, name: str, target: str, method: str
) -> None:
    plain = name.partition("(")[0]
    layer = _layer(_SHAPES[plain], "weight_scale_inv" if "inv" in name else "weight_scale")
    folder = _folder(tmp_path / "in", layer | _BESIDE)
    (folder / "config.json").write_text("{}")
    made = converted(folder, tmp_path / "out", f"fc: {name} -> {target}")
    assert made["fc.weight"].tobytes() == layer["fc.weight"].tobytes()
    section = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert section["quant_method"] == method
    key = "ignore" if method == "compressed-tensors" else "modules_to_not_convert"
    # what no other program reads is declared by its own name
    assert section.get(key) == (None if method == "fp8_channel" else ["lm_head"])
    assert section.get("bits", 8) == 8
    with reorder.open_checkpoint(tmp_path / "out") as checkpoint:
        record = checkpoint.record("fc")
    assert record.desc.name == target.partition("(")[0]
    assert np.array_equal(reorder.dequantize(record).numpy(), _numbers(layer, plain))


@pytest.mark.parametrize(("kind", "form"), [("e8m0", "ue8m0"), ("bf16", "float")])
def test_the_type_of_scales_is_declared(tmp_path: Path, kind: str, form: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    reorder.save(folder / "model.safetensors", _layer((3, 2), kind="e8m0"))
    (folder / "config.json").write_text("{}")
    rule = f"*: fp8_block -> fp8_block(scale_inv=true, scales={kind})"
    converted(folder, tmp_path / "out", rule)
    section = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert section == {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "scale_fmt": form,
        "weight_block_size": [128, 128],
        "modules_to_not_convert": [],
    }


@pytest.mark.parametrize(
    ("algorithm", "problem"),
    [
        ("FP8", ""),
        ("NVFP4", "hf_quant_config.json modelopt_nvfp4"),
        ("W4A16_AWQ", "quant_algo is 'W4A16_AWQ', not FP8"),
    ],
)
def test_two_files_of_modelopt_must_agree(tmp_path: Path, algorithm: str, problem: str) -> None:
    layer = _layer(())
    folder = _folder(tmp_path / "in", layer, quant_method="modelopt", quant_algo="FP8")
    old = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": algorithm}}
    (folder / "hf_quant_config.json").write_text(json.dumps(old))
    if not problem:
        with reorder.open_checkpoint(folder) as checkpoint:
            assert checkpoint.record("fc").desc.name == "fp8_tensor"
    else:
        said = _said(folder)
        assert "declares fp8_tensor" in said
        assert problem in said


def _said(folder: Path) -> str:
    with reorder.open_checkpoint(folder) as checkpoint, pytest.raises(MemdescError) as caught:
        checkpoint.record("fc")
    return str(caught.value)


@pytest.mark.parametrize(
    ("section", "shape", "problem"),
    [
        (
            _DEEPSEEK,
            (2, 2),
            "declares fp8_block: 'fc.weight_scale_inv' of f32 has",
        ),
        (_DEEPSEEK, (2, 3), "has the shape (2, 3) and 24 bytes, not (3, 2) of f32"),
        (_DEEPSEEK, (300, 1), "has the shape (300, 1)"),
        (_DEEPSEEK, (), "has the shape ()"),
        (_DEEPSEEK | {"weight_block_size": [64, 64]}, (3, 2), "not (5, 3) of f32"),
        (
            _DEEPSEEK | {"weight_block_size": [64, 128]},
            (5, 2),
            "size is 128, not the 64 given before",
        ),
        (_DEEPSEEK | {"weight_block_size": [128]}, (3, 2), "is [128], not a list of 2"),
        (_DEEPSEEK | {"weight_block_size": [0, 0]}, (3, 2), "is 0, not a positive integer"),
        (_DEEPSEEK | {"weight_block_size": [True, True]}, (3, 2), "is True, not a positive"),
        (_DEEPSEEK | {"fmt": "e5m2"}, (3, 2), "'fc.weight' of f8_e4m3 has the shape"),
        (_DEEPSEEK | {"fmt": "e3m4"}, (3, 2), "fmt is 'e3m4', not e4m3 or e5m2"),
        (_compressed("block", block_structure=[128, 128]), (3, 2), "no tensor 'weight_scale'"),
        (_compressed("group", group_size=128), (300, 2), "strategy is 'group', not tensor"),
        (_compressed("channel", "pack-quantized"), (3, 2), "format is 'pack-quantized', not float"),
        ({"quant_method": "compressed-tensors"}, (3, 2), "format is missing, not float-quantized"),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "float-quantized",
                "config_groups": {},
            },
            (3, 2),
            "config_groups is {}, not an object",
        ),
    ],
)
def test_what_files_and_tensors_contradict_is_refused(
    tmp_path: Path, section: dict[str, Any], shape: tuple[int, ...], problem: str
) -> None:
    folder = _folder(tmp_path / "in", _layer(shape, "weight_scale_inv"), **section)
    assert problem in _said(folder)
    rule = "*: fp8_block -> plain, bf16"
    if "there is no record for" not in _said(folder):  # else the rule says what it is
        assert f"rule {rule!r}: fc: " in refused(folder, tmp_path / "out", rule)


def test_scales_along_the_inputs_are_not_those_of_channels(tmp_path: Path) -> None:
    layer = _layer((1, 300))
    assert "(1, 300) and 1200 bytes, not (300, 1)" in _said(
        _folder(tmp_path / "in", layer, **_compressed("channel"))
    )


def test_a_weight_without_scales_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    layer = _layer((3, 2), "weight_scale_inv")
    other = {"b.weight": layer["fc.weight"]}
    folder = _folder(tmp_path / "in", layer | other | _BESIDE, **_DEEPSEEK)
    said = refused(folder, tmp_path / "out", "*: fp8_block -> plain, bf16")
    assert "b has weight, but no weight_scale_inv: a record of fp8_block has weight" in said
    folder = _folder(tmp_path / "in", other | _BESIDE, **_DEEPSEEK)
    said = refused(folder, tmp_path / "out", "*: fp8_block -> plain, bf16")
    assert "b.weight of f8_e4m3" in said
    assert "has all tensors of the record fp8_block, weight, weight_scale" in said


def test_bytes_without_a_type_are_codes_and_scales_where_the_rule_says_so(tmp_path: Path) -> None:
    layer = _layer((3, 2), kind="e8m0")
    words: dict[str, NDArray[Any]] = {name: x.view(np.uint8) for name, x in layer.items()}
    folder = _folder(tmp_path / "in", words)
    said = refused(folder, tmp_path / "out", "*: fp8_block -> plain, f32")
    assert "codes are f8_e4m3, f8_e5m2, not u8; give codes= if the words hold one" in said
    rule = "*: fp8_block(codes=f8_e4m3, scales=e8m0) -> plain, f32"
    found = converted(folder, tmp_path / "out", rule)
    assert np.array_equal(found["fc.weight"], _numbers(layer, "fp8_block"))


@pytest.mark.parametrize("target", ["plain, bf16", "ba, f32", "AB16b8a, f16"])
def test_blocks_are_decoded_in_pieces_as_a_whole(tmp_path: Path, target: str) -> None:
    rng = np.random.default_rng(0)
    layer = {
        "fc.weight": rng.standard_normal((700, 900)).astype(DATA_TYPES["f8_e4m3"].numpy),
        "fc.weight_scale_inv": rng.random((6, 8)).astype(np.float32),
    }
    folder = _folder(tmp_path / "in", layer, **_DEEPSEEK)
    layout, kind = target.split(", ")
    with reorder.open_checkpoint(folder) as checkpoint:
        wanted = reorder.dequantize(checkpoint.record("fc"), dtype=kind)
    settings = SMALL._replace(max_bytes=1 << 18)
    rule = f"*: fp8_block -> {target}"
    converted(folder, tmp_path / "out.safetensors", rule, settings=settings)
    with reorder.open_checkpoint(tmp_path / "out.safetensors") as checkpoint:
        found = checkpoint["fc.weight"]
        assert isinstance(found.desc, MemoryDesc)
        assert found.desc == memory_desc((700, 900), kind, "ab" if layout == "plain" else layout)
        assert np.array_equal(found.numpy(), wanted.numpy())


def test_two_tensors_of_scales_are_refused(tmp_path: Path) -> None:
    layer = _layer((3, 2), "weight_scale_inv")
    twice = layer | {"fc.weight_scale": layer["fc.weight_scale_inv"]}
    folder = _folder(tmp_path / "in", twice, **_DEEPSEEK)
    assert "fc.weight_scale belong to fc.weight" in _said(folder)


@pytest.mark.parametrize("target", ["plain, bf16", "fp8_block(scale_inv=true)"])
def test_a_scale_that_is_not_a_number_is_refused_before_anything_is_written(
    tmp_path: Path, target: str
) -> None:
    layer = _layer((3, 2), kind="e8m0")
    layer["fc.weight_scale"].view(np.uint8)[2, 1] = 255
    reorder.save(tmp_path / "x.safetensors", layer)
    said = refused(
        tmp_path / "x.safetensors", tmp_path / "y.safetensors", f"*: fp8_block -> {target}"
    )
    assert "fc: weight_scale of e8m0 is NaN at (2, 1)" in said
