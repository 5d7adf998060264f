"""config.json: where it says what weights are, and rules that say something else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from memdesc import MemdescError
from reorder.storage.convert.convert import Settings, convert, plan
from reorder.storage.convert.rules import parse_rule
from tests.checkpoints import model_folder

if TYPE_CHECKING:
    from pathlib import Path

_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "modules_to_not_convert": ["lm_head"]}
_RULE = parse_rule("model.*: awq -> gptq")


def moved(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Convert a model with a config.json; returns that of the output."""
    model_folder(folder / "model")
    (folder / "model" / "config.json").write_text(json.dumps(config))
    convert(plan(folder / "model", folder / "out", [_RULE], Settings()))
    found: dict[str, Any] = json.loads((folder / "out" / "config.json").read_text())
    return found


def test_a_section_moves_where_it_is(tmp_path: Path) -> None:
    found = moved(tmp_path, {"a": 1, "text_config": {"quantization_config": _AWQ}})
    assert found.keys() == {"a", "text_config"}
    section = found["text_config"]["quantization_config"]
    assert (section["quant_method"], section["group_size"]) == ("gptq", 64)
    assert section["modules_to_not_convert"] == ["lm_head"]


def test_a_config_without_a_section_gets_one(tmp_path: Path) -> None:
    found = moved(tmp_path, {"a": 1, "text_config": {}})
    assert found["text_config"] == {}
    assert found["quantization_config"]["quant_method"] == "gptq"


def test_files_of_old_programs_do_not_stay_where_they_are_wrong(tmp_path: Path) -> None:
    model_folder(tmp_path / "model")
    (tmp_path / "model" / "quant_config.json").write_text('{"w_bit": 4, "q_group_size": 64}')
    made = plan(tmp_path / "model", tmp_path / "out", [_RULE], Settings())
    (warning,) = made.warnings
    assert warning == "quant_config.json is left out: it says what was true of the input"
    convert(made)
    assert not (tmp_path / "out" / "quant_config.json").exists()
    some = parse_rule("model.layers.0.*: awq -> gptq")
    made = plan(tmp_path / "model", tmp_path / "some", [some], Settings())
    assert "quant_config.json is copied, and says what was true of the input" in made.warnings


def test_a_rule_takes_no_record_for_another_version_than_the_model_says(tmp_path: Path) -> None:
    model_folder(tmp_path / "model", zeros=(1, 3))
    to_v2 = parse_rule("model.*: awq -> gptq(zeros=v2)")
    convert(plan(tmp_path / "model", tmp_path / "v2", [to_v2], Settings()))
    for rule in ("model.*: gptq -> awq", "model.*.mlp: gptq -> ba, f16"):
        with pytest.raises(MemdescError, match=r"config\.json declares zeros=v2") as caught:
            plan(tmp_path / "v2", tmp_path / "back", [parse_rule(rule)], Settings())
        assert f"rule {rule!r}: model.layers.0.mlp: " in str(caught.value)
        assert "say gptq(zeros=v2), or gptq(zeros=v1) if config.json is wrong" in str(caught.value)
    back = parse_rule("model.*: gptq(zeros=v2) -> awq")
    convert(plan(tmp_path / "v2", tmp_path / "back", [back], Settings()))
    insisted = parse_rule("model.*: gptq(zeros=v1) -> awq")  # who says it means it
    plan(tmp_path / "v2", tmp_path / "other", [insisted], Settings())
