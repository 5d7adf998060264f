"""A `Quantized` and a `Record` stay what they are when a checkpoint is converted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import record_desc
from reorder import Memory, Quantized, Record

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_NAMES = ("x.safetensors", "x.npz", "x.gguf")
_WEIGHTS = np.random.default_rng(0).random((16, 256), np.float32)


def _record(zeros: str) -> Record:
    """Return a layer of GPTQ, whose tensors do not show the version of its zero points."""
    desc = record_desc((256, 16), "gptq", group=128, zeros=zeros)
    tensors = {name: np.full(nbytes, 0x35, np.uint8) for name, nbytes in desc.tensors.items()}
    return Record(desc, tensors)


def _saved(folder: Path) -> Path:
    path = folder / "saved.safetensors"
    codes = reorder.quantize(_WEIGHTS, "s4", axis=(0, 1), groups=(1, 32))
    reorder.save(path, {"fc": _record("v2"), "proj": codes, "bias": np.ones(3, np.float32)})
    return path


def _values(path: Path) -> dict[str, NDArray[Any]]:
    """Return the numbers of what is quantised in a file."""
    codes = reorder.load_all(path, Quantized).items()
    records = reorder.load_all(path, Record).items()
    numbers = {name: reorder.dequantize(each).numpy() for name, each in codes}
    return numbers | {name: reorder.dequantize(each).numpy() for name, each in records}


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("rules", [[], ["bias: f16"], ["*: rename=model.*"]])
def test_copies_are_what_they_were(tmp_path: Path, name: str, rules: list[str]) -> None:
    path = _saved(tmp_path)
    reorder.convert(path, tmp_path / name, rules, reorder.ConvertOptions(verify=True))
    start = "model." if "rename" in "".join(rules) else ""
    held, found = _values(path), _values(tmp_path / name)
    assert [*found] == [f"{start}{each}" for each in held]
    for one, other in zip(found.values(), held.values(), strict=True):
        assert np.array_equal(one, other)
    assert [*reorder.load_all(tmp_path / name, Memory)] == [f"{start}bias"]


@pytest.mark.parametrize("name", [*_NAMES, "x"])
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
