"""config.json: where it says what weights are, and rules that say something else."""

import json
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import MemdescError
from reorder.checkpoints.config import Configs
from tests.checkpoints import model_folder
from tests.files import write_metadata
from tests.unit.reorder.checkpoints.convert.results import words_of
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


def test_null_is_said_where_loaders_have_another_default(tmp_path: Path) -> None:
    # transformers 5.24 takes blocks of 128 x 128 if `weight_block_size` is missing
    weight = np.ones((128, 128), ml_dtypes.float8_e4m3fn)
    layer = {".weight": weight, ".weight_scale_inv": np.ones((1, 1), np.float32)}
    write_model(tmp_path / "in", {"fc": layer}, declared("fp8", weight_block_size=[128, 128]))
    rule = "*: fp8_block(scale_inv=true) -> fp8_tensor(scale_inv=true)"
    said, _ = _converted(tmp_path / "in", tmp_path / "out", rule)
    assert said["weight_block_size"] is None


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
