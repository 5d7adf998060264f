"""A `Quantized` and a `Record` stay what they are when a checkpoint is converted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, record_desc
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


def test_copies_of_a_part_are_tensors(tmp_path: Path) -> None:
    path, out = _saved(tmp_path), tmp_path / "x.npz"
    options = reorder.ConvertOptions(allow_partial=True)
    reorder.convert(path, out, ["proj_scale: rename=scale", "fc.scales: f32"], options)
    # the descriptor of the codes follows the new name, and bytes of f32 are not those of f16
    assert [*reorder.load_all(out, Quantized)] == ["proj"]
    assert not reorder.load_all(out, Record)


@pytest.mark.parametrize("name", _NAMES)
def test_a_stored_record_is_read_as_no_other(tmp_path: Path, name: str) -> None:
    path, again = _saved(tmp_path), tmp_path / name
    reorder.convert(path, tmp_path / "v1.npz", ["fc: gptq -> gptq(group=64,zeros=v1)"])
    reorder.convert(tmp_path / "v1.npz", again, ["fc: gptq -> gptq(zeros=v2)"])
    wanted = reorder.dequantize(_record("v2")).numpy()
    for file in (path, again):
        with reorder.open_checkpoint(file) as checkpoint:
            for found in (checkpoint.record("fc"), checkpoint.record("fc", "gptq")):
                assert np.array_equal(reorder.dequantize(found).numpy(), wanted)
            for other, options in (("gptq", {"zeros": "v1"}), ("awq", {})):
                with pytest.raises(MemdescError, match=r"stored (with|as part of)"):
                    checkpoint.record("fc", other, **options)


def test_rules_read_the_stored_version(tmp_path: Path) -> None:
    path, out = _saved(tmp_path), tmp_path / "x.npz"
    reorder.convert(path, out, ["fc: gptq -> ab, f32"])
    found = reorder.load_all(out, Memory)["fc.weight"].numpy()
    assert np.array_equal(found, reorder.dequantize(_record("v2")).numpy())
    with pytest.raises(MemdescError, match=r"stored as part of .*zeros='v2'"):
        reorder.convert(path, tmp_path / "y.npz", ["fc: gptq(zeros=v1) -> ab, f32"])
