"""The table of docs/checkpoints.md: each command runs on a small model of the kind it converts."""

import json
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc.record import record_desc
from reorder.checkpoints.convert.targets import TARGETS
from reorder.cli import main
from tests.checkpoints import awq_layer, fp8_layer, gptq_layer

_PAGE = Path(__file__).parents[2] / "docs" / "checkpoints.md"
_ROWS = [
    (command, numbers.strip())
    for command, numbers in re.findall(
        r"^\|[^|]*\|[^|]*\| `(memdesc [^`]*)` \|([^|]*)\|$", _PAGE.read_text("utf-8"), re.MULTILINE
    )
]
_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64}


def _compressed(kind: str, form: str, **more: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": {"type": kind, **more}}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}


def _fp8() -> dict[str, Any]:
    weight, scale = fp8_layer().values()
    return {"fc.weight": weight, "fc.weight_scale": scale}


def _record(name: str, **options: Any) -> dict[str, Any]:
    made = reorder.records.Record(
        record_desc((128, 256), "awq", group=64),
        {n: x.view(np.uint8).reshape(-1) for n, x in awq_layer(zeros=(8, 9)).items()},
    )
    return {"fc": reorder.records.repack(made, name, **options)}


_INT4 = {"num_bits": 4, "strategy": "group", "group_size": 64, "symmetric": True}


@cache
def _models() -> dict[str, tuple[dict[str, Any], dict[str, Any] | None]]:
    """Return what the commands start from: its tensors, and what declares them."""
    return {
        "DeepSeek-V3": (
            {f"fc.{name}": x for name, x in fp8_layer().items()},
            {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
        ),
        "Llama-FP8": (
            _fp8(),
            _compressed(
                "float", "float-quantized", num_bits=8, strategy="block", block_structure=[128, 128]
            ),
        ),
        "Llama-AWQ": ({f"fc.{name}": x for name, x in awq_layer().items()}, _AWQ),
        "Llama-GPTQ": (
            {f"fc.{name}": x for name, x in gptq_layer()[0].items()},
            _AWQ | {"quant_method": "gptq"},
        ),
        "Llama-W4A16": (
            _record("pack_quantized", zeros=False),
            _compressed("int", "pack-quantized", **_INT4),
        ),
        "Llama-MLX": (_record("mlx", scales="f32"), None),
        "gpt-oss": (
            {
                "down_proj_blocks": np.full((2, 8, 2, 16), 0x35, np.uint8),
                "down_proj_scales": np.full((2, 8, 2), 127, np.uint8),
            },
            {"quant_method": "mxfp4"},
        ),
        "Llama-NVFP4": (
            {
                "fc.weight": np.full((8, 16), 0x35, np.uint8),
                "fc.weight_scale": np.full((8, 2), 0.5, ml_dtypes.float8_e4m3fn),
                "fc.weight_scale_2": np.array(0.1, np.float32),
            },
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16},
        ),
        "Llama-bf16": ({"layers.0.fc.weight": np.full((128, 256), 0.3, ml_dtypes.bfloat16)}, None),
        "Llama-f32": ({"fc.weight": np.ones((4, 4), np.float32)}, None),
    }


def test_every_target_is_in_the_table() -> None:
    named = {word for command, _ in _ROWS for word in re.findall("--to ([^ ]+)", command)}
    assert named == {*TARGETS}


@pytest.mark.parametrize(("command", "numbers"), _ROWS)
def test_a_command_of_the_table_does_what_it_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    numbers: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    _, _, source, target, *flags = words = shlex.split(command)
    tensors, section = _models()[source]
    Path(source).mkdir()
    beside = {"norm.weight": np.ones(4, ml_dtypes.bfloat16)}
    reorder.save(Path(source, "model.safetensors"), tensors | beside)
    config = {} if section is None else {"quantization_config": section}
    Path(source, "config.json").write_text(json.dumps(config))
    assert main([*words[1:], "--verify", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["converted"] >= 1
    if "--to" in flags:
        is_rounded = any("are rounded to" in each for each in facts["warnings"])
        assert is_rounded == numbers.startswith("rounded")
        assert Path(target, "config.json").exists()
