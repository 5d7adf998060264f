"""Checkpoints of compressed-tensors: config.json and the tensors must agree, layer by layer."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc import MemdescError
from memdesc.record import record_desc
from reorder.cli import main
from tests.checkpoints import write_config, write_safetensors
from tests.unit.reorder.checkpoints.convert.results import converted
from tests.unit.reorder.checkpoints.schemes import (
    STRATEGIES,
    numbers_in,
    record_in,
    recorded,
    write_model,
)


def _group(
    bits: int, kind: str, /, *targets: str, form: str | None = None, **weights: Any
) -> dict[str, Any]:
    weights = {"type": "int", "num_bits": bits, **STRATEGIES[kind][0], **weights}
    return {"targets": [*targets] or ["Linear"], "weights": weights, "format": form}


def _section(form: str, *groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    named = {f"group_{k}": group for k, group in enumerate(groups)}
    base = {"quant_method": "compressed-tensors", "format": form, "config_groups": named}
    return {**base, "ignore": ["lm_head"], **more}


def _layer(name: str, prefix: str = "fc", **options: Any) -> dict[str, NDArray[Any]]:
    """Return a layer of 30 outputs and 48 inputs."""
    return {f"{prefix}{end}": array for end, array in recorded(name, **options)[0].items()}


def _folder(path: Path, tensors: dict[str, NDArray[Any]], section: dict[str, Any]) -> Path:
    return write_model(path, {"": tensors}, {"quantization_config": section}, {})


def test_classes_of_layers_are_decided_by_their_tensors(tmp_path: Path) -> None:
    groups = _group(4, "group", "Linear"), _group(8, "channel", "Embedding")
    section = _section("pack-quantized", *groups)
    tensors = _layer("pack_quantized", "fc", group=16)
    tensors |= _layer("pack_quantized", "embed", bits=8, group=-1)
    folder = _folder(tmp_path / "in", tensors, section)
    assert record_in(folder, "fc").desc.field("weight_packed").bits == 4
    assert record_in(folder, "embed").desc.field("weight_packed").bits == 8


_W4 = _group(4, "group")


def test_dims_of_32_bits_as_in_kimi_k2_are_read(tmp_path: Path) -> None:
    layer, section = _layer("pack_quantized", group=16), _section("pack-quantized", _W4)
    wanted = numbers_in(_folder(tmp_path / "in", layer, section))
    layer["fc.weight_shape"] = layer["fc.weight_shape"].astype(np.int32)
    folder = _folder(tmp_path / "in", layer, section)
    assert dict(record_in(folder, "fc").desc.options)["shape"] == "s32"
    assert np.array_equal(numbers_in(folder), wanted)
    # a rule writes what compressed-tensors does
    found = converted(folder, tmp_path / "again", "fc: pack_quantized -> pack_quantized")
    assert found["fc.weight_shape"].tolist() == [30, 48]
    assert found["fc.weight_shape"].dtype == np.int64


def _inspected(folder: Path, capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    assert main(["inspect", str(folder), "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_inspect_says_which_layers_are_quantised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    section = _section(
        "mixed-precision",
        _group(4, "group", "re:.*[.]up$", form="pack-quantized"),
        _group(8, "channel", form="int-quantized"),
        ignore=["lm_head"],
    )
    tensors: dict[str, NDArray[Any]] = {
        "lm_head.weight": np.ones((8, 30), np.float16),
        "norm.weight": np.ones(30, np.float16),
        "m.2.up.weight": np.ones((30, 48), np.float16),
    }
    for k in range(2):
        tensors |= _layer("pack_quantized", f"m.{k}.up", group=16)
        tensors |= _layer("int_quantized", f"m.{k}.down")
    folder = _folder(tmp_path / "in", tensors, section)
    facts = _inspected(folder, capsys)
    plain, whole = facts["not_quantised"], [[*each.values()] for each in facts["quantised"]]
    assert whole == [
        ["int_quantized", 8, "a scale for each output", ["m.0.down", "m.1.down"], 3000, 2880],
        ["pack_quantized", 4, "groups of 16 inputs", ["m.0.up", "m.1.up"], 1832, 2880],
    ]
    assert plain == {"layers": ["lm_head", "m.2.up"], "bytes": 480 + 2880}
    assert facts["notes"] == []
    assert main(["inspect", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "int_quantized, 8 bits, a scale for each output, 8.333 bits per weight: m.*.down (2)",
        "pack_quantized, 4 bits, groups of 16 inputs, 5.089 bits per weight: m.*.up (2)",
        "not quantised, 3360 bytes: lm_head, m.*.up (1)",
    ]


@pytest.mark.parametrize("key", ["ignore", "targets"])
def test_inspect_shows_tensors_beside_an_invalid_expression(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    names = {"ignore": ["lm_head"], "targets": ["Linear"], key: ["re:("]}
    section = _section("pack-quantized", _group(4, "group", *names["targets"]))
    tensors = _layer("pack_quantized", group=16) | {"lm_head.weight": np.ones((8, 30), np.float16)}
    facts = _inspected(
        _folder(tmp_path / "in", tensors, {**section, "ignore": names["ignore"]}), capsys
    )
    assert {row["name"] for row in facts["tensors"]} == {*tensors}
    assert "config.json: '(' is not a regular expression" in "".join(facts["notes"])


def test_codes_without_scales_beside_an_invalid_expression_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    section = _section("pack-quantized", _group(4, "group"), ignore=["re:("])
    codes = {"fc.weight_packed": _layer("pack_quantized", group=16)["fc.weight_packed"]}
    folder = _folder(tmp_path / "in", codes, section)
    facts = _inspected(folder, capsys, code=1)
    assert facts["misfits"] == ["fc.weight_packed"]
    assert [note.partition(": ")[0] for note in facts["notes"]] == ["fc.weight_packed"]


def test_parts_of_a_model_may_list_layers_in_another_order(tmp_path: Path) -> None:
    ignored, layer = ["re:.*norm", "re:.*head"], _layer("pack_quantized", group=16)
    one, other = (
        _section("pack-quantized", _group(4, "group", "Linear"), ignore=names)
        for names in (ignored, ignored[::-1])
    )
    whole = {"quantization_config": one, "text_config": {"quantization_config": other}}
    folder = write_model(tmp_path / "in", {"": layer}, whole, {})
    assert record_in(folder, "fc").desc.name == "pack_quantized"


def _shards(folder: Path, *, is_indexed: bool) -> None:
    folder.mkdir()
    one, other = (_layer("pack_quantized", f"m.{k}", group=16) for k in range(2))
    moved = one.pop("m.0.weight_scale")
    parts = {1: one, 2: {"m.0.weight_scale": moved}, 3: other}
    names = {k: f"model-{k:05}-of-00003.safetensors" for k in parts}
    for k, part in parts.items():
        write_safetensors(folder / names[k], part)
    homes = {tensor: names[k] for k, part in parts.items() for tensor in part}
    if is_indexed:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": homes}))
    write_config(folder, **_section("pack-quantized", _W4))


@pytest.mark.parametrize("is_damaged", [False, True])
@pytest.mark.parametrize("is_indexed", [False, True])
def test_inspect_shows_what_shards_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_indexed: bool, is_damaged: bool
) -> None:
    folder = tmp_path / "m"
    _shards(folder, is_indexed=is_indexed)
    assert [each["layers"] for each in _inspected(folder, capsys)["quantised"]] == [["m.0", "m.1"]]
    lost = folder / "model-00002-of-00003.safetensors"
    lost.write_bytes(lost.read_bytes()[:30]) if is_damaged else lost.unlink()
    facts = _inspected(folder, capsys, code=1)
    assert facts["quantised"][0]["layers"] == ["m.1"]
    assert facts["unread"] == {lost.name: ["m.0.weight_scale"] if is_indexed else []}
    notes = "\n".join(facts["notes"])
    assert f"{lost.name} is not shown" in notes
    if is_indexed:
        with pytest.raises(MemdescError, match=lost.name):
            reorder.open_checkpoint(folder)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    assert main(["inspect", str(folder)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_scale_of_all_and_one_block_have_the_shapes_that_readers_allocate(tmp_path: Path) -> None:
    wanted = {"fp8_block": (1, 1), "fp8_tensor": (1,), "fp8_channel": (64, 1)}
    made = {name: reorder.records.Record(record_desc((64, 64), name)) for name in wanted}
    reorder.save(tmp_path / "x.safetensors", made)
    with reorder.open_checkpoint(tmp_path / "x.safetensors") as found:
        assert {name: found[f"{name}.weight_scale"].shape for name in wanted} == wanted
