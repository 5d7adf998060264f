"""A `Quantized` and a `Record` stay what they are when a checkpoint is converted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder
from reorder import Memory, Quantized

if TYPE_CHECKING:
    from pathlib import Path


_WEIGHTS = np.random.default_rng(0).random((16, 256), np.float32)


@pytest.mark.parametrize("name", ["x.safetensors", "x.npz", "x.gguf", "x"])
@pytest.mark.parametrize(
    ("rule", "axis", "groups"),
    [
        ("w: s8, scales=a", (0,), ()),
        ("w: BA16a16b, u8, scales=all", (), ()),
        ("w: s4, scales=ab, groups=1x32", (0, 1), (1, 32)),
    ],
)
def test_what_is_quantised_is_read_as_one(
    tmp_path: Path, name: str, rule: str, axis: tuple[int, ...], groups: tuple[int, ...]
) -> None:
    reorder.save(tmp_path / "in.safetensors", {"w": _WEIGHTS})
    reorder.convert(
        tmp_path / "in.safetensors", tmp_path / name, [rule], reorder.ConvertOptions(verify=True)
    )
    (path,) = (tmp_path / name).iterdir() if name == "x" else [tmp_path / name]
    found = reorder.load(path, Quantized)
    dtype = found.memory.dtype
    wanted = reorder.quantize(_WEIGHTS, dtype, axis or None, found.memory.desc, groups=groups)
    assert (found.axis, found.groups) == (axis, groups)
    for one, other in zip(found, wanted, strict=True):
        assert np.array_equal(np.asarray(one), np.asarray(other))
    assert np.array_equal(reorder.dequantize(found).numpy(), reorder.dequantize(wanted).numpy())


def _shards(folder: Path) -> tuple[Path, Path]:
    """Write a Quantized whose codes are in one shard, and whose scales are in another."""
    whole, folder = folder / "whole.safetensors", folder / "model"
    codes = reorder.quantize(_WEIGHTS, "s8", axis=0)
    reorder.save(whole, {"w": codes, "bias": np.ones(3, np.float32)})
    reorder.convert(whole, folder, [], reorder.ConvertOptions(shard_bytes=_WEIGHTS.size))
    return folder, folder / "model-00002-of-00003.safetensors"


@pytest.mark.parametrize("name", ["w", "v"])
def test_a_shard_keeps_what_its_tensors_are_with_those_of_another(
    tmp_path: Path, name: str
) -> None:
    folder, shard = _shards(tmp_path)
    wanted = reorder.dequantize(reorder.load_all(tmp_path / "whole.safetensors", Quantized)["w"])
    made, index = tmp_path / "shard.safetensors", folder / "model.safetensors.index.json"
    reorder.convert(shard, made, [f"w: rename={name}"])
    shard.write_bytes(made.read_bytes())
    index.write_text(index.read_text().replace('"w":', f'"{name}":'))
    reorder.convert(folder, tmp_path / "again.safetensors", [])
    found = reorder.load_all(tmp_path / "again.safetensors", Quantized)[name]
    assert np.array_equal(reorder.dequantize(found).numpy(), wanted.numpy())


@pytest.mark.parametrize("rule", ["w: s4", "w: ba"])
def test_a_shard_is_not_said_to_be_part_of_what_it_was(tmp_path: Path, rule: str) -> None:
    _, shard = _shards(tmp_path)
    made, options = tmp_path / "shard.safetensors", reorder.ConvertOptions(allow_partial=True)
    reorder.convert(shard, made, [rule], options)
    with reorder.open_checkpoint(made) as found:
        assert "bias" not in found
        assert found["w"].scaled_by == ()
    assert [*reorder.load_all(made, Memory)] == ["w"]
