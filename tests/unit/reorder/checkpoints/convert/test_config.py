"""config.json and other facts about weights: what rules overrule, and what stays."""

import json
from pathlib import Path

import numpy as np
import pytest

import reorder
from memdesc.dtypes import DATA_TYPES
from tests.checkpoints import fp8_layer, model_folder, write_config, write_safetensors
from tests.unit.reorder.checkpoints.convert.results import convert, converted, refused
from tests.unit.reorder.checkpoints.schemes import BESIDE, declared, fp8, write_model


def test_a_config_does_not_outlive_what_it_declares(tmp_path: Path) -> None:
    model_folder(tmp_path / "awq", zeros=(8, 9))
    (tmp_path / "q4").mkdir()
    convert(tmp_path / "awq", tmp_path / "q4" / "model.safetensors", "model.*: awq -> q4_0")
    write_config(tmp_path / "q4", quant_method="q4_0")
    assert convert(tmp_path / "q4", tmp_path / "plain", "*.mlp.weight: bf16").warnings == ()
    assert json.loads((tmp_path / "plain" / "config.json").read_text()) == {}
    said = refused(tmp_path / "q4", tmp_path / "some", "*.0.mlp.weight: bf16")
    assert "are floats while model.layers.1.mlp.weight stays as it was" in said


@pytest.mark.parametrize("text", ["1.2", "{}", '{"a": 1}', "[", "null"])
def test_metadata_that_is_not_a_descriptor_makes_no_file_unreadable(
    tmp_path: Path, text: str
) -> None:
    path, made = tmp_path / "x.safetensors", tmp_path / "y.safetensors"
    write_safetensors(path, {"a": np.ones(4, np.float32)}, {"memdesc.version": text})
    assert converted(path, made, "a: f16").keys() == {"a"}
    for each in (path, made):
        with reorder.open_checkpoint(each) as found:
            assert found.metadata["memdesc.version"] == text


def test_codes_that_are_nan_stay_nan(tmp_path: Path) -> None:
    layer = fp8_layer()
    layer["weight"].view(np.uint8)[3, 5] = 0x7F
    layers = {"fc": {f".{name}": x for name, x in layer.items()}}
    source = write_model(tmp_path / "in", layers, declared("fp8", weight_block_size=[128, 128]))
    found = converted(source, tmp_path / "out", to="bf16")["fc.weight"].astype(np.float32)
    assert np.argwhere(~np.isfinite(found)).tolist() == [[3, 5]]


def test_a_model_that_is_one_layer_keeps_its_other_tensors(tmp_path: Path) -> None:
    config = declared("fp8", weight_block_size=[128, 128])
    layer = fp8_layer() | {"input_scale": np.ones(1, np.float32)}
    source = write_model(tmp_path / "in", {"": layer}, config)
    assert converted(source, tmp_path / "out", to="bf16").keys() == {"weight", *BESIDE}


def test_bytes_without_a_type_are_codes_and_scales_where_the_rule_says_so(tmp_path: Path) -> None:
    layer, wanted = fp8("weight_scale", (3, 2), kind="e8m0")
    words = {end: array.view(np.uint8) for end, array in layer.items()}
    folder = write_model(tmp_path / "in", {"fc": words}, {})
    said = refused(folder, tmp_path / "out", "*: fp8_block(block=128) -> plain, f32")
    assert "codes must be f8_e4m3 or f8_e5m2, not 'u8'; give codes= if the words hold one" in said
    rule = "*: fp8_block(block=128, codes=f8_e4m3, scales=e8m0) -> plain, f32"
    assert np.array_equal(converted(folder, tmp_path / "out", rule)["fc.weight"], wanted)


@pytest.mark.parametrize("to", ["bf16", "f16"])
@pytest.mark.parametrize("key", ["torch_dtype", "dtype", ""])
def test_a_model_of_floats_takes_another_type(tmp_path: Path, to: str, key: str) -> None:
    kind = DATA_TYPES[to].numpy
    floats = {"a.weight": np.linspace(0, 1, 32, dtype=np.float32).reshape(8, 4)}
    same = {"b": np.ones(3, kind), "ids": np.arange(3, dtype=np.int64)}
    source = write_model(tmp_path / "in", {"": floats | same}, {key: "float32"} if key else {}, {})
    report = convert(source, tmp_path / "out", to=to)
    said = f"weights of f32 are rounded to {to}, which does not hold all their numbers"
    assert report.warnings == (said,)
    found = converted(tmp_path / "out", tmp_path / "copy")
    for name, x in (same | {"a.weight": floats["a.weight"].astype(kind)}).items():
        assert found[name].tobytes() == x.tobytes()
    made = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert made == {key or "torch_dtype": {"bf16": "bfloat16", "f16": "float16"}[to]}


def test_a_type_is_declared_beside_a_record_that_nothing_declares(tmp_path: Path) -> None:
    floats = {f"{name}.weight": np.ones((8, 4), np.float32) for name in "ab"}
    source = write_model(tmp_path / "in", {"": floats}, {"dtype": "float32"}, {})
    rule = "a.weight: fp8_channel(codes=f8_e5m2)"
    (*_, said) = convert(source, tmp_path / "out", rule, to="bf16").warnings
    assert said.startswith("no config.json is written to declare fp8_channel: ")
    made = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert made == {"dtype": "bfloat16"}
