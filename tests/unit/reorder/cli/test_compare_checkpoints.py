"""`memdesc compare` of checkpoints, and what commands say of codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import memory_desc
from reorder.cli import main
from tests.checkpoints import fp8_layer, gptq_layer, model_folder, write_config, write_safetensors

if TYPE_CHECKING:
    from pathlib import Path

    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture

_LAYERS = [f"model.layers.{k}.mlp.weight" for k in range(2)]


def compared(capsys: CaptureFixture[str], a: Path, b: Path, code: int, *more: str) -> Any:
    capsys.readouterr()
    assert main(["compare", str(a), str(b), "--json", *more]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "rule", ["awq -> gptq", "awq -> ba, f32", "awq -> torch_int4_cpu(scales=f32)"]
)
def test_records_are_compared_by_their_numbers(
    tmp_path: Path, capsys: CaptureFixture[str], rule: str
) -> None:
    model_folder(tmp_path / "a", zeros=(1, 9))
    out = tmp_path / "b"
    assert main(["convert", str(tmp_path / "a"), str(out), "--map", f"model.*.mlp: {rule}"]) == 0
    found = compared(capsys, tmp_path / "a", out, 0)
    assert (found["compared"], found["differing"], found["raw_codes"]) == (5, [], [])
    assert main(["compare", str(tmp_path / "a"), str(out)]) == 0
    assert "differing  none" in capsys.readouterr().out


def test_a_code_that_differs_is_found_in_another_packing(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    model_folder(tmp_path / "a")
    tensors = model_folder(tmp_path / "b")
    tensors["model.layers.1.mlp.qweight"][5, 1] ^= 1
    write_safetensors(tmp_path / "b" / "model.safetensors", tensors)
    rule = "model.*.mlp: awq -> gptq"
    assert main(["convert", str(tmp_path / "b"), str(tmp_path / "c"), "--map", rule]) == 0
    (row,) = compared(capsys, tmp_path / "a", tmp_path / "c", 1)["differing"]
    assert (row["name"], row["differing"], row["worst"][0]) == (_LAYERS[1], 1, [5, 8])
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "c")]) == 1
    assert f"{_LAYERS[1]}: record_desc((128, 256), 'awq'" in capsys.readouterr().out


def test_raw_codes_and_what_one_side_lacks_are_told(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    layer = {f"fc.{name}": array for name, array in fp8_layer().items()}
    for name, more in (("a", {"x": np.ones(3, np.float32)}), ("b", {"y": np.ones(3, np.float32)})):
        (tmp_path / name).mkdir()
        write_config(tmp_path / name, quant_method="fp8")
        write_safetensors(tmp_path / name / "model.safetensors", layer | more)
    found = compared(capsys, tmp_path / "a", tmp_path / "b", 1)
    assert found["raw_codes"] == ["fc.weight", "fc.weight_scale_inv"]
    assert (found["only_in_a"], found["only_in_b"], found["differing"]) == (["x"], ["y"], [])


def test_a_copy_without_its_config_is_compared_by_its_codes(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    model_folder(tmp_path / "a")
    out = tmp_path / "b.safetensors"
    assert main(["convert", str(tmp_path / "a"), str(out)]) == 0
    for pair in ((tmp_path / "a", out), (out, tmp_path / "a")):
        found = compared(capsys, *pair, 0)
        assert (found["only_in_a"], found["only_in_b"], found["differing"]) == ([], [], [])
        names = {
            f"model.layers.{k}.mlp.{x}" for k in (0, 1) for x in ("qweight", "qzeros", "scales")
        }
        assert {*found["raw_codes"]} == names


def test_the_side_that_is_not_a_checkpoint_is_named(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    model_folder(tmp_path / "a")
    (tmp_path / "raw.bin").write_bytes(bytes(4))
    for name in ("missing", "raw.bin"):
        for pair in (("a", name), (name, "a")):
            assert main(["compare", *(str(tmp_path / each) for each in pair)]) == 2
            said = capsys.readouterr().err
            assert f"'{tmp_path / name}'" in said
            assert f"'{tmp_path / 'a'}'" not in said


def test_commands_on_one_tensor_say_that_codes_are_codes(
    tmp_path: Path, capsys: CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    layer, _ = gptq_layer()
    reorder.save("x.npz", {f"fc.{name}": array for name, array in layer.items()})
    assert main(["compare", "x.npz:fc.qweight", "x.npz:fc.qweight"]) == 0
    said = (
        "fc.qweight holds codes: fc.scales, fc.qzeros turn them into numbers, and are not applied"
    )
    assert said in capsys.readouterr().out
    assert main(["reorder", "x.npz:fc.qweight", "y.npz", "--to", "ba"]) == 0
    assert said in capsys.readouterr().out
    assert main(["reorder", "x.npz:fc.scales", "y.npz", "--to", "ba"]) == 0
    assert "holds codes" not in capsys.readouterr().out
    layer["qweight"].tofile("dump.bin")
    what = ["--dims", "128x256", "--dtype", "u4"]
    assert main(["reorder", "dump.bin", "z.npz", "--from", "gptq", *what]) == 0
    assert "gptq packs codes: scales and zero points turn them" in capsys.readouterr().out
    assert main(["reorder", "dump.bin", "z.npz", "--from", "ab", *what]) == 0
    assert "packs codes" not in capsys.readouterr().out


def test_a_tensor_says_what_scales_it(tmp_path: Path) -> None:
    layer = {f"fc.{name}": array for name, array in fp8_layer().items()}
    write_safetensors(tmp_path / "x.safetensors", layer)
    with reorder.open_checkpoint(tmp_path / "x.safetensors") as checkpoint:
        assert checkpoint["fc.weight"].scaled_by == ("fc.weight_scale_inv",)
        assert "codes scaled by fc.weight_scale_inv" in repr(checkpoint["fc.weight"])
        assert checkpoint["fc.weight_scale_inv"].scaled_by == ()
        assert checkpoint["fc.weight"].desc == memory_desc((256, 128), "f8_e4m3", "ab")
