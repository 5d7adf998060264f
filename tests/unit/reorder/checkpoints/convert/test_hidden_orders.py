"""Permuted tensors in files whose dtype and shape do not show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from tests.checkpoints import write_safetensors

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_OUTPUTS = ["y.safetensors", "y.gguf", "y.npz", "y"]
_ARRAYS: dict[str, NDArray[Any]] = {
    "square": np.arange(64, dtype=np.float32).reshape(8, 8),
    "wide": np.arange(32, dtype=np.float32).reshape(4, 8),
    "cube": np.arange(128, dtype=np.float32).reshape(4, 8, 4),
    "unit": np.arange(16, dtype=np.float32).reshape(4, 1, 4),
    "row": np.arange(8, dtype=np.float32).reshape(1, 8),
    "none": np.zeros((0, 0), np.float32),
    "bytes": np.arange(64, dtype=np.uint8).reshape(8, 8),
}


def _warned(folder: Path, output: str, *rules: str) -> tuple[str, ...]:
    source = folder / "x.safetensors"
    if not source.exists():
        write_safetensors(source, _ARRAYS)
    report = reorder.convert(source, folder / output, map=rules)
    # every GGUF file that is made of other files gets this one
    return tuple(each for each in report.warnings if "llama.cpp" not in each)


@pytest.mark.parametrize("output", _OUTPUTS)
@pytest.mark.parametrize(
    ("rule", "is_hidden"),
    [
        ("square: ba", True),
        ("square: ba, f16", True),
        ("square: ba, s8, scales=all", True),
        ("cube: cba", True),
        ("cube: abc", False),
        ("cube: acb", False),
        ("unit: cba", True),
        ("unit: bac", False),
        ("wide: ba", False),
        ("row: ba", False),
        ("none: ba", False),
        ("square: AB4a4b", False),
        ("square: ab", False),
        ("square: f16", False),
        ("bytes: ba -> ab, holds=u4, dims=16x8", False),
        ("square: rename=other", False),
    ],
)
def test_a_permutation_that_the_shape_does_not_show_is_named(
    tmp_path: Path, output: str, rule: str, *, is_hidden: bool
) -> None:
    warned = _warned(tmp_path, output, rule)
    assert len(warned) == is_hidden
    if is_hidden:
        name = rule.partition(":")[0]
        assert f"the shapes of {name!r} do not show" in warned[0]


def test_one_warning_names_the_first_few_and_counts_the_others(tmp_path: Path) -> None:
    square = _ARRAYS["square"]
    write_safetensors(tmp_path / "x.safetensors", {f"w{k}": square for k in range(5)})
    (warning,) = _warned(tmp_path, "y.safetensors", "w*: ba")
    assert "'w0', 'w1', 'w2' and 2 more" in warning


def test_a_npy_says_that_its_array_is_column_major(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", _ARRAYS["square"])
    assert not reorder.convert(tmp_path / "x.npy", tmp_path / "y.npy", map=["x: ba"]).warnings
    found = np.load(tmp_path / "y.npy")
    assert found.flags.f_contiguous
    assert np.array_equal(found, _ARRAYS["square"])


@pytest.mark.parametrize("output", ["y.safetensors", "y.gguf", "y.npz"])
@pytest.mark.parametrize("rules", [[], ["*: rename=new.*"]])
def test_arrays_in_fortran_order_become_row_major(
    tmp_path: Path, output: str, rules: list[str]
) -> None:
    arrays = {name: np.asfortranarray(array) for name, array in _ARRAYS.items()}
    np.savez(tmp_path / "x.npz", allow_pickle=False, **arrays)
    target = tmp_path / output
    assert not reorder.convert(tmp_path / "x.npz", target, map=rules).warnings
    with reorder.open_checkpoint(target) as found:
        for name, array in arrays.items():
            stored = found[f"new.{name}" if rules else name]
            assert stored.shape == array.shape
            assert np.array_equal(stored.numpy(), array)
            assert np.array_equal(stored.data, np.ascontiguousarray(array).reshape(-1).view("u1"))
