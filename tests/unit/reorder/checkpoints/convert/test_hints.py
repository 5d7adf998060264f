"""Hints of conversions work: a rule that is refused, what is said of it, and rules that follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError
from reorder.checkpoints import Checkpoint

if TYPE_CHECKING:
    from pathlib import Path

_TENSORS: dict[str, Any] = {
    "w": np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64),
    "flat": np.arange(24, dtype=np.float32),
    "tiny": np.full(4, 1e-20, np.float32),
    "huge": np.full(4, 1e30, np.float32),
}
_ROWS = [
    ("leave the arrow out", "w: -> ba", ["w: ba"]),
    ("give its logical sizes as dims=", "flat: nchw -> nhwc", ["flat: nchw -> nhwc, dims=1x4x3x2"]),
    (
        "give scale=, or scales= to choose them from the data, or scale=1 to round",
        "w: s8",
        ["w: s8, scale=0.01", "w: s8, scales=a", "w: s8, scale=1"],
    ),
    (
        "such as 'u4, scales=ab, groups=1x32'",
        "w: q4_0",
        ["w: u4, scales=ab, groups=1x32"],
    ),
    ("leave out scales= of fp8_tensor", "w: fp8_tensor(scales=bf16)", ["w: fp8_tensor"]),
    ("leave out other keys", "w: fp8_tensor, f8_e5m2", ["w: fp8_tensor"]),
    ("give a larger scale", "w: s8, scale=1e-9", ["w: s8, scale=0.01"]),
    ("bf16 and f32 hold it; or leave the tensor out", "tiny: f16", ["tiny: bf16", "w: f16"]),
    ("bf16 and f32 hold it; or give scale=", "huge: f16", ["huge: bf16", "huge: f16, scale=1e28"]),
    ("give another name", "w: rename=__metadata__", ["w: rename=v"]),
]


@pytest.mark.parametrize(("hint", "refused", "followed"), _ROWS)
def test_a_hint_is_given_and_works(
    hint: str, refused: str, followed: list[str], tmp_path: Path
) -> None:
    source, target = tmp_path / "in.npz", tmp_path / "out.safetensors"
    np.savez(source, **_TENSORS)
    with pytest.raises(MemdescError) as caught:
        reorder.convert(source, target, map=[refused])
    assert hint in str(caught.value)
    assert not target.exists()
    for rule in followed:
        reorder.convert(source, target, map=[rule])
        target.unlink()


def test_the_name_that_was_meant_is_in_the_checkpoint(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", **_TENSORS)
    checkpoint = Checkpoint(tmp_path / "in.npz")
    with pytest.raises(KeyError, match="did you mean 'flat'"):
        checkpoint["flta"]
    assert checkpoint["flat"].shape == (24,)
