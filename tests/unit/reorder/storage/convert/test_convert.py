"""Checkpoints converted: files next to the tensors, shards, outputs that are refused, rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.checkpoints import write_safetensors
from tests.unit.reorder.storage.convert.results import SMALL, converted, refused

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


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
