from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import memory_desc, record_desc
from reorder.cli import main
from reorder.storage.containers.entry import Tensor
from reorder.storage.containers.shards import plan_shards
from reorder.storage.containers.table import plan_file
from reorder.storage.containers.writer import Writer
from tests.checkpoints import fp8_layer, write_safetensors

if TYPE_CHECKING:
    from pathlib import Path

    from pytest import CaptureFixture  # noqa: PT013 - the type of a fixture


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder of two shards, with AWQ weights as config.json declares."""
    blocked = memory_desc((20, 3, 3, 3), "f32", "OIhw16o4i")
    marlin = memory_desc((64, 64), "u4", "marlin")
    tensors = [
        Tensor("conv", "u8", (blocked.nbytes,), blocked.nbytes, blocked),
        Tensor("norm", "bf16", (7,), 14),
        Tensor("scale", "f32", (), 4),
        Tensor("fc.qweight", "s32", (128, 2), 1024),
        Tensor("fc.qzeros", "s32", (1, 2), 8),
        Tensor("fc.scales", "f16", (1, 16), 32),
        Tensor("packed", "s32", (4, 128), marlin.nbytes, marlin),
        Tensor("q4", "u8", (36,), 36, record_desc((2, 32), "q4_0")),
        Tensor("odd", "F6_E2M3", (4,), 3),
        Tensor("view", "f32", (32,), 128, memory_desc((4, 4), "f32", strides=(8, 1))),
    ]
    with Writer(tmp_path / "m", plan_shards(tensors, {}, 4700), is_folder=True) as writer:
        writer.finish()
    config = {"quantization_config": {"quant_method": "awq", "bits": 4}}
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    return tmp_path / "m"


def _facts(capsys: CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main(["inspect", *arguments, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_tensors_are_listed_by_what_they_hold(model: Path, capsys: CaptureFixture[str]) -> None:
    facts = _facts(capsys, str(model))
    rows = {row["name"]: row for row in facts["tensors"]}
    assert {
        name: ("x".join(map(str, row["dims"])), row["dtype"], row["layout"], row["padding"])
        for name, row in rows.items()
    } == {
        "conv": ("20x3x3x3", "f32", "ABcd16a4b", 2448),
        "norm": ("7", "bf16", "plain", 0),
        "scale": ("", "f32", "plain", 0),
        "fc.qweight": ("128x16", "u4", "awq qweight", 0),
        "fc.qzeros": ("1x16", "u4", "awq qzeros", 0),
        "fc.scales": ("1x16", "f16", "awq scales", 0),
        "packed": ("64x64", "u4", "marlin", 0),
        "q4": ("2x32", "q4_0", "record", 0),
        "odd": ("4", "F6_E2M3", "unknown", 0),
        "view": ("4x4", "f32", "strides=(8, 1)", 64),
    }
    assert rows["fc.qweight"]["stored_as"] == {"dtype": "s32", "shape": [128, 2]}
    assert "no data type" in rows["odd"]["why_unknown"]
    assert facts["bytes"] == sum(row["bytes"] for row in rows.values())
    assert facts["padding"] == 2448 + 64
    assert sum(kind["bytes"] for kind in facts["kinds"]) == facts["bytes"]
    assert len(facts["files"]) == 2
    for row in rows.values():
        assert row["file"] in facts["files"]


def test_tensors_are_filtered_and_sorted(model: Path, capsys: CaptureFixture[str]) -> None:
    names = [row["name"] for row in _facts(capsys, str(model), "--filter", "fc")["tensors"]]
    assert names == ["fc.qweight", "fc.qzeros", "fc.scales"]
    found = _facts(capsys, str(model), "--filter", "fc.*s", "--sort", "padding")
    assert [row["name"] for row in found["tensors"]] == ["fc.qzeros", "fc.scales"]
    found = _facts(capsys, str(model), "--sort", "bytes")
    sizes = [row["bytes"] for row in found["tensors"]]
    assert sizes == sorted(sizes, reverse=True)
    found = _facts(capsys, str(model), "--sort", "name")
    listed = [row["name"] for row in found["tensors"]]
    assert listed == sorted(listed)
    assert _facts(capsys, str(model), "--filter", "nothing", code=1)["count"] == 0


def test_several_files_are_one_table(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 3)))
    reorder.save(tmp_path / "b.npz", {"b": np.zeros(3)})
    assert main(["inspect", str(tmp_path / "a.npy"), str(tmp_path / "b.npz")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "name  dims  dtype  layout  bytes  padding",
        "a     2x3   f64    plain      48        0",
        "b     3     f64    plain      24        0",
        "",
        "2 tensors of f64, plain: 72 bytes",
        "all: 2 tensors in 2 files, 72 bytes",
    ]
    assert main(["inspect", str(tmp_path / "b.npz"), "--filter", "x"]) == 1
    assert capsys.readouterr().out == "all: 0 of 1 tensors in 1 file, 0 bytes\n"


def test_what_config_declares_and_tensors_do_not_hold_is_noted(
    model: Path, capsys: CaptureFixture[str]
) -> None:
    for config, note in (
        ({"quant_method": "quark"}, "no record for quant_method 'quark'"),
        (
            {"quant_method": "gptq", "bits": 8},
            "config.json declares gptq: 'fc.qweight' of s32 has the shape",
        ),
    ):
        (model / "config.json").write_text(json.dumps({"quantization_config": config}))
        facts = _facts(capsys, str(model))
        assert note in facts["notes"][0]
        layouts = {row["name"]: row["layout"] for row in facts["tensors"]}
        assert layouts["fc.qweight"] == "plain"


def test_what_is_no_checkpoint_is_one_line(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"")
    for path in (tmp_path, tmp_path / "x.safetensors", tmp_path / "missing"):
        assert main(["inspect", str(path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_only_headers_are_read(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    path = tmp_path / "x.safetensors"
    (planned,) = plan_file(path, [Tensor("a", "u8", (2**42,), 2**42)], {})
    ((_, head),) = planned.headers
    path.write_bytes(head)
    try:
        with path.open("r+b") as file:
            file.truncate(planned.nbytes)
    except OSError:
        pytest.skip("the file system has no files of 4 TiB")
    assert _facts(capsys, str(path))["bytes"] == 2**42


def test_names_send_no_commands_to_the_terminal(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    path = tmp_path / "x.safetensors"
    with Writer(path, plan_file(path, [Tensor("\x1b[2J", "u8", (1,), 1)], {})) as writer:
        writer.finish()
    assert main(["inspect", str(path)]) == 0
    assert "\x1b" not in (shown := capsys.readouterr().out)
    assert "'\\x1b[2J'" in shown


def test_tensors_that_were_changed_without_their_scales_are_noted(
    tmp_path: Path, capsys: CaptureFixture[str]
) -> None:
    layer = {f"fc.{name}": array for name, array in fp8_layer(dims=(256, 256)).items()}
    write_safetensors(tmp_path / "x.safetensors", layer)
    out = str(tmp_path / "y.safetensors")
    command = ["convert", str(tmp_path / "x.safetensors"), out, "--allow-partial"]
    assert main([*command, "--map", "fc.weight: bf16"]) == 0
    capsys.readouterr()
    assert main(["inspect", out]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "fc.weight: an earlier conversion changed it alone, by the rule 'fc.weight: bf16'; it and "
        "what belongs to it no longer mean the same numbers"
    )


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("marlin", "vLLM"),
        ("q4_0_4x4", "llama.cpp"),
        ("q2_0", "llama.cpp"),
        ("awq", ""),
        ("q4_0", ""),
    ],
)
def test_records_that_no_test_compares_are_told(
    tmp_path: Path, capsys: CaptureFixture[str], name: str, library: str
) -> None:
    path = tmp_path / "x.safetensors"
    reorder.save(path, {"fc": reorder.Record(record_desc((256, 256), name))})
    assert main(["inspect", str(path), "--json"]) == 0
    (kind,) = json.loads(capsys.readouterr().out)["quantised"]
    assert kind.get("not_compared_with", "") == library
    assert main(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out.splitlines()[-1]
    told = f" bits per weight, not compared with {library}: fc" if library else " bits per weight: "
    assert told in shown
