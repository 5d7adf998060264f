"""Checkpoints of Marlin: zero points that go and come, what config.json and warnings say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from tests.checkpoints import awq_layer, model_folder, write_safetensors
from tests.unit.reorder.checkpoints.convert.results import SMALL, converted, refused

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_TO_MARLIN = "model.layers.*: awq -> marlin"
_PREFIX = "model.layers.1.mlp"


def section(folder: Path) -> dict[str, Any]:
    """Return what config.json says of the weights."""
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())["quantization_config"]
    return found


def warnings_of(source: Path, target: Path, rule: str) -> tuple[str, ...]:
    """Return the warnings of a conversion that is not run."""
    return reorder.convert(
        source, target, map=[rule], options=SMALL._replace(dry_run=True)
    ).warnings


def numbers(folder: Path, *named: str, **options: Any) -> NDArray[np.float32]:
    """Return the numbers of a layer."""
    with reorder.open_checkpoint(folder) as checkpoint:
        return reorder.dequantize(checkpoint.record(_PREFIX, *named, **options)).numpy()


@pytest.mark.parametrize("max_bytes", [1 << 20, 20000])
def test_asymmetric_models_of_awq_become_marlin_and_come_back(
    tmp_path: Path, max_bytes: int
) -> None:
    words = model_folder(tmp_path / "model", zeros=(0, 16))
    small = SMALL._replace(max_bytes=max_bytes)
    found = converted(tmp_path / "model", tmp_path / "marlin", _TO_MARLIN, settings=small)
    assert found[f"{_PREFIX}.qzeros"].dtype == np.int32
    assert found[f"{_PREFIX}.qzeros"].shape == (2, 32)
    assert found[f"{_PREFIX}.qweight"].shape == (8, 512)
    assert section(tmp_path / "marlin") == {
        "quant_method": "gptq",
        "checkpoint_format": "marlin",
        "is_marlin_format": True,
        "desc_act": False,
        "sym": False,
        "bits": 4,
        "group_size": 64,
    }
    wanted = numbers(tmp_path / "model")
    assert np.array_equal(numbers(tmp_path / "marlin"), wanted)
    assert np.array_equal(numbers(tmp_path / "marlin", "marlin"), wanted)
    with reorder.open_checkpoint(tmp_path / "marlin") as stored:
        zeros = stored[f"{_PREFIX}.qzeros"].desc
    assert zeros == memory_desc((2, 256), "u4", "marlin_zeros")
    # of another program, without descriptors
    (tmp_path / "plain").mkdir()
    write_safetensors(tmp_path / "plain" / "model.safetensors", found)
    for name in ("marlin", "plain"):
        back = converted(
            tmp_path / name, tmp_path / f"{name}_back", "model.layers.*: marlin -> awq"
        )
        assert all(np.array_equal(back[key], array) for key, array in words.items())


def test_zero_points_beside_marlin_are_never_left_out(tmp_path: Path) -> None:
    model_folder(tmp_path / "model", zeros=(0, 16))
    converted(tmp_path / "model", tmp_path / "marlin", _TO_MARLIN)
    message = "qzeros belong to .*, and record_desc.* does not use them.*; leave zeros= out"
    with pytest.raises(MemdescError, match=message):
        numbers(tmp_path / "marlin", "marlin", zeros=False)
    for target in ("ba, f32", "awq", "marlin"):
        rule = f"model.layers.*: marlin(zeros=false) -> {target}"
        assert "leave zeros= out" in refused(tmp_path / "marlin", tmp_path / "out", rule)
    found = converted(tmp_path / "marlin", tmp_path / "out", "model.layers.*: marlin -> ba, f32")
    assert np.array_equal(found[f"{_PREFIX}.weight"].T, numbers(tmp_path / "model"))


def test_config_json_says_symmetric_where_one_code_is_zero_in_all_groups(tmp_path: Path) -> None:
    model_folder(tmp_path / "model", zeros=(8, 9))
    for source, target, rule, is_symmetric in (
        ("model", "marlin", "awq -> marlin(zeros=false)", True),
        ("model", "points", "awq -> marlin", False),
        ("model", "gptq", "awq -> gptq", False),
        ("marlin", "gptq2", "marlin -> gptq", True),
        ("points", "gptq3", "marlin -> gptq", False),
        ("gptq2", "gptq4", "gptq -> gptq(zeros=v2)", True),
        ("gptq", "marlin2", "gptq -> marlin", True),
    ):
        converted(tmp_path / source, tmp_path / target, f"model.layers.*: {rule}")
        found = section(tmp_path / target)
        assert (found["quant_method"], found["sym"]) == ("gptq", is_symmetric), rule


def test_a_target_that_no_loader_reads_is_a_warning(tmp_path: Path) -> None:
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    layer = awq_layer(zeros=(8, 9)) | {"scales": np.ones((2, 256), np.float16)}
    write_safetensors(source, {f"a.{name}": array for name, array in layer.items()})

    def about_loaders(rule: str) -> list[str]:
        return [said for said in warnings_of(source, out, rule) if said.startswith("neither vLLM")]

    (warning,) = about_loaders("a: awq -> marlin")
    assert warning.startswith("neither vLLM nor transformers loads marlin from a checkpoint; vLLM ")
    assert warning.endswith("reads tensors called B and s")
    (warning,) = about_loaders("a: awq -> torch_int4_cpu")
    assert warning == "neither vLLM nor transformers loads torch_int4_cpu from a checkpoint"
    for target in ("gptq", "gptq(zeros=v2)", "awq", "q4_0", "ba, f16"):
        assert not about_loaders(f"a: awq -> {target}")
