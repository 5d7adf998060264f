"""config.json and other facts about weights: rules that say something else, and what stays."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError
from memdesc.dtypes import DATA_TYPES
from memdesc.record import record_desc
from reorder.checkpoints.config import Configs
from tests.checkpoints import fp8_layer, model_folder, write_safetensors
from tests.files import write_metadata
from tests.unit.reorder.checkpoints.convert.results import SMALL, words_of
from tests.unit.reorder.checkpoints.schemes import declared, fp8, write_model


def test_a_rule_takes_the_version_that_the_model_says_unless_it_says_another(
    tmp_path: Path,
) -> None:
    model_folder(tmp_path / "model", zeros=(1, 3))
    to_v2 = "model.*: awq -> gptq(zeros=v2)"
    reorder.convert(tmp_path / "model", tmp_path / "v2", map=[to_v2])
    for path in (tmp_path / "v2").glob("*.safetensors"):
        write_metadata(path, {})  # as other programs write it
    numbers = {}
    for name in ("gptq", "gptq(zeros=v2)", "gptq(zeros=v1)"):  # who says it means it
        reorder.convert(tmp_path / "v2", tmp_path / name, map=[f"model.*.mlp: {name} -> ba, f32"])
        numbers[name] = words_of(tmp_path / name)["model.layers.0.mlp.weight"]
    assert np.array_equal(numbers["gptq"], numbers["gptq(zeros=v2)"])
    assert not np.array_equal(numbers["gptq"], numbers["gptq(zeros=v1)"])


def _converted(source: Path, target: Path, *rules: str) -> tuple[dict[str, Any], list[str]]:
    """Convert; returns the section of the config.json of the output, and the warnings."""
    made = reorder.convert(source, target, map=rules)
    path = target / "config.json"
    config = json.loads(path.read_text()) if path.exists() else {}
    return config.get("quantization_config", {}), [*made.warnings]


def test_what_no_config_says_of_the_output_is_a_warning(tmp_path: Path) -> None:
    model_folder(tmp_path / "model")
    _, (kept, warning) = _converted(
        tmp_path / "model", tmp_path / "one.safetensors", "model.*: awq -> gptq"
    )
    assert kept.startswith("the output is one file, without config.json")
    assert warning.startswith("no config.json is written to declare gptq: programs that")
    (tmp_path / "model" / "config.json").unlink()
    _, (warning,) = _converted(tmp_path / "model", tmp_path / "none", "model.*: awq -> gptq")
    assert warning.startswith("no config.json is written to declare gptq")


_DECODED = "model.layers.0.mlp"
_EXCLUDED: dict[str, object] = {f"-:^{re.escape(_DECODED)}$": {}}


@pytest.mark.parametrize(
    ("made", "key", "wanted"),
    [
        ("awq", "modules_to_not_convert", [_DECODED, "lm_head"]),
        ("gptq", "dynamic", _EXCLUDED),
        ("pack_quantized(zeros=true)", "ignore", ["lm_head", _DECODED]),
        ("mlx(scales=f32)", _DECODED, False),
    ],
)
def test_decoded_layers_are_listed_as_not_quantised(
    tmp_path: Path, made: str, key: str, wanted: Any
) -> None:
    model_folder(tmp_path / "awq", zeros=(8, 9))
    folder, name = tmp_path / "awq", made.partition("(")[0]
    if made != "awq":
        folder = tmp_path / "in"
        _converted(tmp_path / "awq", folder, f"model.*: awq -> {made}")
    if name == "mlx":  # it finds quantised layers by their tensors, and first by their names
        config = json.loads((folder / "config.json").read_text())
        own = config["quantization"] | {_DECODED: {"bits": 4, "group_size": 64}}
        config |= {"quantization": own, "quantization_config": own}
        (folder / "config.json").write_text(json.dumps(config))
    rule = f"model.layers.0.*: {name} -> plain(axes=oi), f16"
    section, warnings = _converted(folder, tmp_path / "out", rule)
    assert (section[key], warnings) == (wanted, [])
    found = Configs(tmp_path / "out").declared
    assert found is not None
    assert found.at(_DECODED)[0].is_ignored
    assert found.at("model.layers.1.mlp")[0].name == name
    _converted(tmp_path / "out", tmp_path / "all", f"model.*: {name} -> plain(axes=oi), f16")


def test_a_config_does_not_outlive_what_it_declares(tmp_path: Path) -> None:
    model_folder(tmp_path / "awq", zeros=(8, 9))
    (tmp_path / "q4").mkdir()
    _converted(tmp_path / "awq", tmp_path / "q4" / "model.safetensors", "model.*: awq -> q4_0")
    held = {"quantization_config": {"quant_method": "q4_0"}}
    (tmp_path / "q4" / "config.json").write_text(json.dumps(held))
    section, warnings = _converted(tmp_path / "q4", tmp_path / "plain", "*.mlp.weight: bf16")
    assert (section, warnings) == ({}, [])
    with pytest.raises(MemdescError, match=r"are floats while .* stays as it was"):
        _converted(tmp_path / "q4", tmp_path / "some", "*.0.mlp.weight: bf16")


def test_a_rule_says_what_an_unknown_word_of_a_config_may_mean(tmp_path: Path) -> None:
    layer, wanted = fp8("weight_scale_inv", (3, 2))
    config = declared("fp8", fmt="e4m3fn", weight_block_size=[128, 128])
    folder = write_model(tmp_path / "in", {"fc": layer}, config)
    with pytest.raises(MemdescError, match="fmt is 'e4m3fn', not e4m3 or e5m2"):
        reorder.convert(folder, tmp_path / "out", "bf16")
    rule = ["*: fp8_block(scale_inv=true, block=128) -> plain, f32"]
    reorder.convert(folder, tmp_path / "out", map=rule)
    found = words_of(tmp_path / "out")["fc.weight"]
    assert np.array_equal(found.view(np.float32), wanted)
    config = declared("fp8", fmt=4, weight_block_size=[128, 128])
    write_model(tmp_path / "in", {"fc": layer}, config)
    with pytest.raises(MemdescError, match="fmt is 4, not e4m3 or e5m2"):
        reorder.convert(folder, tmp_path / "other", map=rule)


@pytest.mark.parametrize("text", ["1.2", "{}", '{"a": 1}', "[", "null"])
def test_metadata_that_is_not_a_descriptor_makes_no_file_unreadable(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"a": np.ones(4, np.float32)}, {"memdesc.version": text})
    with reorder.open_checkpoint(path) as found:
        assert [*found] == ["a"]
        assert found.metadata["memdesc.version"] == text
    reorder.convert(path, tmp_path / "y.safetensors", map=["a: f16"])
    with reorder.open_checkpoint(tmp_path / "y.safetensors") as made:
        assert made.metadata["memdesc.version"] == text


def test_codes_that_are_nan_stay_nan(tmp_path: Path) -> None:
    layer = fp8_layer()
    layer["weight"].view(np.uint8)[3, 5] = 0x7F
    layers = {"fc": {f".{name}": x for name, x in layer.items()}}
    source = write_model(tmp_path / "in", layers, declared("fp8", weight_block_size=[128, 128]))
    reorder.convert(source, tmp_path / "out", options=SMALL, to="bf16")
    found = words_of(tmp_path / "out")["fc.weight"].astype(np.float32)
    assert np.isnan(found[3, 5])
    assert np.isfinite(np.delete(found.reshape(-1), 3 * 128 + 5)).all()


@pytest.mark.parametrize("block", ["125", "0x4", "4x", "axb", "4x4x4", True])
def test_blocks_that_are_no_sizes_are_refused(block: Any) -> None:
    with pytest.raises(MemdescError, match="fp8_block: block"):
        record_desc((256, 128), "fp8_block", block=block)


@pytest.mark.parametrize("to", ["bf16", "f16"])
@pytest.mark.parametrize("key", ["torch_dtype", "dtype", ""])
def test_a_model_of_floats_takes_another_type(tmp_path: Path, to: str, key: str) -> None:
    source = tmp_path / "in"
    source.mkdir()
    rng = np.random.default_rng(0)
    floats = {"a.weight": rng.random((8, 4), np.float32), "norm": np.ones(4, np.float32)}
    same = {"b": np.ones(3, DATA_TYPES[to].numpy), "ids": np.arange(3, dtype=np.int64)}
    write_safetensors(source / "model.safetensors", floats | same)
    config = {"model_type": "some"} | ({key: "float32"} if key else {})
    (source / "config.json").write_text(json.dumps(config), encoding="utf-8")
    report = reorder.convert(source, tmp_path / "out", options=SMALL, to=to)
    said = f"weights of f32 are rounded to {to}, which does not hold all their numbers"
    assert report.warnings == (said,)
    found = words_of(tmp_path / "out")
    for name, x in (floats | same).items():
        wanted = x.astype(DATA_TYPES[to].numpy) if name in floats else x
        assert found[name].tobytes() == wanted.tobytes()
    made = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    long = {"bf16": "bfloat16", "f16": "float16"}[to]
    assert made == {"model_type": "some", key or "torch_dtype": long}
    with pytest.raises(MemdescError, match=f"all its floats are {to} already; copy it"):
        reorder.convert(tmp_path / "out", tmp_path / "again", options=SMALL, to=to)
