"""Checkpoints converted: records, layouts and the files around them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

import reorder
from memdesc import memory_desc, record_desc
from reorder.storage.containers.table import read_container
from tests.checkpoints import write_safetensors
from tests.unit.reorder.storage.convert.results import SMALL, converted, refused

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def values_of(tensors: dict[str, NDArray[Any]], prefix: str, name: str) -> NDArray[np.float32]:
    """Return the numbers of a quantised layer, over (in, out)."""
    held = {
        each.rpartition(".")[2]: array for each, array in tensors.items() if each.startswith(prefix)
    }
    desc = record_desc((128, 256), name, group=64)
    return reorder.dequantize(reorder.Record(desc, held)).numpy()


def test_a_rule_over_a_prefix_moves_records_and_what_the_model_says_of_them(
    model: Path, tmp_path: Path
) -> None:
    before = {name: entry.read() for name, entry in read_container(model).entries.items()}
    old = converted(model, tmp_path / "same")
    new = converted(model, tmp_path / "out", "model.layers.*: awq -> gptq")
    for k in range(2):
        prefix = f"model.layers.{k}.mlp."
        assert np.array_equal(values_of(new, prefix, "gptq"), values_of(old, prefix, "awq"))
    assert new["model.layers.0.mlp.qweight"].shape == (16, 256)
    assert new["model.layers.0.mlp.qzeros"].shape == (2, 32)
    scales = new["model.layers.0.mlp.scales"]
    assert scales.dtype == np.float16
    assert scales.shape == (2, 256)
    assert np.array_equal(new["lm_head.weight"], old["lm_head.weight"])
    found = json.loads((tmp_path / "out" / "config.json").read_text())
    assert found["architectures"] == ["Some"]
    assert found["quantization_config"]["quant_method"] == "gptq"
    assert found["quantization_config"]["group_size"] == 64
    assert (tmp_path / "out" / "tokenizer.json").read_text() == "{}"
    back = tmp_path / "back"
    converted(tmp_path / "out", back, "*.mlp: gptq -> awq")
    after = {name: entry.read() for name, entry in read_container(back).entries.items()}
    assert all(np.array_equal(after[name], data) for name, data in before.items())


def test_all_other_files_of_a_model_are_copied_but_hidden_ones(model: Path, tmp_path: Path) -> None:
    for name in ("a/b/large.bin", "a/c.txt", ".cache/x", "README.md"):
        path = model / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 5000)
    converted(model, tmp_path / "out", "conv.*: f16")
    found = {
        path.relative_to(tmp_path / "out").as_posix()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    named = {"config.json", "tokenizer.json", "model.safetensors"}
    assert found == named | {"a/b/large.bin", "a/c.txt", "README.md"}
    for name in ("a/b/large.bin", "config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (model / name).read_bytes()


def test_layouts_keep_their_descriptor_and_are_stored_by_their_physical_shape(
    model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.safetensors"
    found = converted(model, out, "conv.weight: OIhw16i16o", "lm_head.weight: ba, f32")
    assert found["conv.weight"].shape == (2, 1, 3, 3, 16, 16)
    checkpoint = reorder.open_checkpoint(out)
    assert checkpoint["conv.weight"].desc == memory_desc((20, 6, 3, 3), "f32", "OIhw16i16o")
    source = reorder.open_checkpoint(model)
    assert np.array_equal(checkpoint["conv.weight"].numpy(), source["conv.weight"].numpy())
    assert np.array_equal(
        checkpoint["lm_head.weight"].numpy(), source["lm_head.weight"].numpy().astype(np.float32)
    )
    assert found["lm_head.weight"].shape == (128, 40)
    # and back, by what the file says
    again = converted(out, tmp_path / "again.safetensors", "conv.weight: oihw")
    assert np.array_equal(again["conv.weight"], source["conv.weight"].numpy())


def test_inputs_are_never_the_output(model: Path, tmp_path: Path) -> None:
    for target in (model, model / "out", model / "model.safetensors", tmp_path):
        assert "which is never changed" in refused(model, target, "conv.*: f16")
    assert "there is no folder" in refused(model, tmp_path / "no" / "out", "conv.*: f16")
    (tmp_path / "out").mkdir()
    assert "exists" in refused(model, tmp_path / "out", "conv.*: f16")
    converted(model, tmp_path / "out", "conv.*: f16", settings=SMALL._replace(overwrite=True))
    assert "names no format" in refused(model, tmp_path / "out.bin", "conv.*: f16")


def test_shards_go_in_and_out(model: Path, tmp_path: Path) -> None:
    small = SMALL._replace(shard_bytes=20000)
    first = converted(model, tmp_path / "many", "*.mlp: awq -> gptq", settings=small)
    assert len([*(tmp_path / "many").glob("*.safetensors")]) > 2
    found = converted(tmp_path / "many", tmp_path / "again", "*.mlp: gptq -> awq")
    assert len([*(tmp_path / "again").glob("*.safetensors")]) > 1
    whole = converted(tmp_path / "again", tmp_path / "one.safetensors")
    assert all(np.array_equal(whole[name], array) for name, array in found.items())
    assert first.keys() == found.keys()
    assert "name a folder for shards" in refused(
        model, tmp_path / "x.safetensors", "conv.*: f16", settings=small
    )


def test_a_rule_without_a_layout_or_a_type_does_all_it_says(tmp_path: Path) -> None:
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    write_safetensors(tmp_path / "x.safetensors", {"w": x})
    wanted: dict[str, NDArray[Any]] = {
        "w: src_scale=2": 2 * x,
        "w: scale=2": x / 2,
        "w: dims=8x4": x.reshape(8, 4),
        "w: src_scale=2, dims=8x4": 2 * x.reshape(8, 4),
    }
    for k, (rule, array) in enumerate(wanted.items()):
        found = converted(tmp_path / "x.safetensors", tmp_path / f"{k}.safetensors", rule)
        assert np.array_equal(found["w"], array)
    said = refused(tmp_path / "x.safetensors", tmp_path / "y.safetensors", "w: holds=u4")
    assert "is stored in words of integers, not of f32" in said
