"""config.json: where it says what weights are, and rules that say something else."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError
from reorder.checkpoints.config import Configs
from tests.checkpoints import model_folder
from tests.files import write_metadata
from tests.unit.reorder.checkpoints.convert.results import words_of

if TYPE_CHECKING:
    from pathlib import Path

_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "modules_to_not_convert": ["lm_head"]}
_RULE = "model.*: awq -> gptq"


def moved(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Convert a model with a config.json; returns that of the output."""
    model_folder(folder / "model")
    (folder / "model" / "config.json").write_text(json.dumps(config))
    reorder.convert(folder / "model", folder / "out", map=[_RULE])
    found: dict[str, Any] = json.loads((folder / "out" / "config.json").read_text())
    return found


def test_a_section_moves_where_it_is(tmp_path: Path) -> None:
    found = moved(tmp_path, {"a": 1, "text_config": {"quantization_config": _AWQ}})
    assert found.keys() == {"a", "text_config"}
    section = found["text_config"]["quantization_config"]
    assert (section["quant_method"], section["group_size"]) == ("gptq", 64)


def test_files_of_old_programs_do_not_stay_where_they_are_wrong(tmp_path: Path) -> None:
    model_folder(tmp_path / "model")
    (tmp_path / "model" / "quant_config.json").write_text('{"w_bit": 4, "q_group_size": 64}')
    made = reorder.convert(tmp_path / "model", tmp_path / "out", map=[_RULE])
    (warning,) = made.warnings
    assert warning == "left out, because they describe the input: quant_config.json"
    assert not (tmp_path / "out" / "quant_config.json").exists()
    (tmp_path / "model" / "config.json").write_text("{}")
    some = "model.layers.0.*: awq -> plain(axes=oi), f16"
    with pytest.raises(MemdescError, match=r"does not declare model\.layers\.1\.mlp\.qweight"):
        reorder.convert(tmp_path / "model", tmp_path / "some", map=[some])


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


@pytest.mark.parametrize(
    ("section", "rule", "problem"),
    [
        ({"quant_method": "awq"}, "model.*: gptq -> awq", "config.json declares awq, not gptq"),
        ({"quant_method": "gptq"}, "model.*: awq -> gptq", "config.json declares gptq, not awq"),
        ({"quant_method": "awq", "group_size": 32}, "model.*: awq -> gptq", "group_size 32, but"),
        ({"quant_method": ["awq"]}, "model.*: awq -> gptq", "quant_method must be a string"),
        (
            _AWQ | {"modules_to_not_convert": "lm_head"},
            _RULE,
            "convert must be a list of strings, not 'lm",
        ),
    ],
)
def test_a_rule_that_the_model_contradicts_is_refused(
    tmp_path: Path, section: dict[str, Any], rule: str, problem: str
) -> None:
    model_folder(tmp_path / "model")
    for place in ({"quantization_config": section}, {"a": {"b": {"quantization_config": section}}}):
        (tmp_path / "model" / "config.json").write_text(json.dumps(place))
        for source in (tmp_path / "model", tmp_path / "model" / "model.safetensors"):
            with pytest.raises(MemdescError, match=problem):
                reorder.convert(source, tmp_path / "out", map=[rule])


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


def test_what_no_config_can_say_is_refused(tmp_path: Path) -> None:
    model_folder(tmp_path / "model", zeros=(8, 9))
    cases = (
        (["model.layers.0.*: awq -> gptq"], "are gptq while model.layers.1.mlp.qweight stays"),
        (
            ["model.layers.0.*: awq -> pack_quantized", "model.layers.1.*: awq -> gptq"],
            "are gptq and others pack_quantized: its readers would take all",
        ),
        (
            ["model.layers.0.*: awq -> q4_0", "model.layers.1.*: awq -> gptq"],
            "would declare q4_0, which no loader of checkpoints reads from it",
        ),
    )
    for k, (rules, problem) in enumerate(cases):
        with pytest.raises(MemdescError, match=problem) as caught:
            reorder.convert(tmp_path / "model", tmp_path / "out", map=rules)
        assert "such as OUT.safetensors, which has no config.json" in str(caught.value)
        reorder.convert(tmp_path / "model", tmp_path / f"{k}.safetensors", map=rules)


def test_layers_that_stay_what_config_says_may_change_alone(tmp_path: Path) -> None:
    model_folder(tmp_path / "model", layers=3, zeros=(8, 9))
    held = json.loads((tmp_path / "model" / "config.json").read_text())["quantization_config"]
    rules = ["model.layers.0.*: awq -> awq(scales=f32)", "*.1.*: awq -> plain(axes=oi), f16"]
    assert _converted(tmp_path / "model", tmp_path / "wider", rules[0]) == (held, [])
    section, warnings = _converted(tmp_path / "model", tmp_path / "decoded", *rules)
    listed = {"modules_to_not_convert": ["model.layers.1.mlp", "lm_head"]}
    assert (section, warnings) == (held | listed, [])


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


def test_decoded_layers_are_listed_beside_another_record(tmp_path: Path) -> None:
    model_folder(tmp_path / "model", zeros=(8, 9))
    decoded = "model.layers.0.*: awq -> plain(axes=oi), f16"
    rules = decoded, "model.layers.1.*: awq -> gptq"
    section, _ = _converted(tmp_path / "model", tmp_path / "out", *rules)
    assert (section["quant_method"], section["dynamic"]) == ("gptq", _EXCLUDED)


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
