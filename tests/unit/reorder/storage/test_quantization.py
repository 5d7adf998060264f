"""What the files of a model declare of its quantised weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from memdesc import MemdescError
from reorder.storage.quantization import declared_record
from tests.work import hangs_fail

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("method", "options"),
    [("marlin", {"bits": 8}), ("ocp_mxfp4", {}), ("torch_int4_cpu", {})],
)
def test_a_record_is_declared_with_the_options_that_it_has(
    tmp_path: Path, method: str, options: dict[str, Any]
) -> None:
    section = {"quant_method": method, "bits": 8}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": section}))
    found = declared_record(tmp_path)
    assert found is not None
    assert (found.name, found.options) == (method, options)


def test_files_that_disagree_are_named_with_what_each_says(tmp_path: Path) -> None:
    section = {"quant_method": "gptq", "bits": 4}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": section}))
    old = {"bits": 4, "checkpoint_format": "mine"}
    (tmp_path / "quantize_config.json").write_text(json.dumps(old))
    with pytest.raises(
        MemdescError,
        match=(
            r"config\.json in '.*' declares gptq\(zeros=v1, bits=4\), and quantize_config\.json "
            r"something else \(quantize_config\.json: there is no record for quant_method 'gptq': "
            r"checkpoint_format is 'mine', not marlin or gptq or gptq_v2\); correct the one "
            r"that is wrong"
        ),
    ):
        declared_record(tmp_path)


@pytest.mark.parametrize(
    ("section", "ignored"),
    [
        ({"quant_method": "fp8"}, "modules_to_not_convert"),
        ({"quant_method": "awq", "bits": 4}, "modules_to_not_convert"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "llm_int8_skip_modules"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "ignore"),
    ],
)
def test_layers_that_a_file_leaves_plain_have_no_record(
    tmp_path: Path, section: dict[str, Any], ignored: str
) -> None:
    section |= {ignored: ["lm_head", "model.layers.*.mlp.gate", "visual", 7]}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": section}))
    found = declared_record(tmp_path)
    assert found is not None
    for layer in ("lm_head", "model.lm_head", "model.layers.3.mlp.gate", "visual.blocks.0.fc"):
        (one,) = found.at(layer)
        assert one.is_ignored
        assert one.name is None
        assert found.named(layer) is None
    for layer in ("model.layers.3.mlp.gate_proj", "model.layers.3", "head", "a.visual.b"):
        assert found.at(layer) == (found,)


@pytest.mark.parametrize("key", ["ignore", "targets"])
def test_hostile_patterns_of_a_config_do_not_hang(tmp_path: Path, key: str) -> None:
    hostile = ["re:(.*.*)*x", "re:(a|aa)+$"]
    group = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}
    section: dict[str, Any] = {"quant_method": "compressed-tensors", "config_groups": {"g": group}}
    (group if key == "targets" else section)[key] = hostile
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": section}))
    found = declared_record(tmp_path)
    assert found is not None
    with hangs_fail():
        assert found.named("a" * 100 + "b") is None
