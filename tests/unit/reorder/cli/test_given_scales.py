"""`memdesc reorder --scale` stores scales with what they scaled, and says what saturates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import reorder

if TYPE_CHECKING:
    from tests.unit.reorder.cli.shell import Shell

_X = np.linspace(-3, 3, 64 * 64, dtype=np.float32).reshape(64, 64)


@pytest.mark.parametrize("max_bytes", ["1GiB", "4KiB"])
@pytest.mark.parametrize("target", ["y.npz", "y.safetensors"])
@pytest.mark.parametrize(
    ("given", "axes", "tolerance"),
    [
        ("--to-dtype s8 --scale 0.05", (), 0.026),
        ("--to-dtype u8 --scale 0.05 --zero-point 100", (), 0.026),
        ("--to-dtype s8 --scale s.npy:2 --zero-point p.npy:1", (0, 1), 0.1),
        ("--to-dtype s8 --scale s.npy:2 --zero-point 3 --to nhwc", (1,), 0.1),
    ],
)
def test_the_command_stores_the_scales_with_what_they_scaled(
    shell: Shell, given: str, axes: tuple[int, ...], tolerance: float, target: str, max_bytes: str
) -> None:
    x = np.linspace(-3, 3, 8 * 16 * 4 * 4, dtype=np.float32).reshape(8, 16, 4, 4)
    reorder.save("x.safetensors", {"w": x})
    np.save("s.npy", np.linspace(0.05, 0.2, 16).astype(np.float32))
    np.save("p.npy", np.arange(8, dtype=np.int32))
    shell.facts(f"reorder x.safetensors {target} {given} --max-bytes {max_bytes}")
    found = reorder.load(target, reorder.Quantized)
    assert found.axis == axes
    assert found.scales.shape == tuple(x.shape[dim] for dim in axes)
    assert abs(reorder.dequantize(found).numpy() - x).max() <= tolerance
    shell.facts(f"compare x.safetensors {target} --atol {tolerance}")
    reorder.save(f"again-{target}", {"w": found})
    assert Path(f"again-{target}").read_bytes() == Path(target).read_bytes()
    # a file of one weight is that weight, of which only the codes are reordered
    back = shell.facts(f"reorder {target} back.npy --src-scale 0.05 --to-dtype f32")
    assert "w_scale, w_zero_point turn them into numbers" in back["note"]


@pytest.mark.parametrize("command", ["x.npy y.npy", "x.npy y.bin --raw"])
def test_a_file_without_a_place_for_scales_is_said(shell: Shell, command: str) -> None:
    np.save("x.npy", _X)
    found = shell.facts(f"reorder {command} --to-dtype s8 --scale 0.05")
    assert "the scale is not stored" in found["note"]


@pytest.mark.parametrize("max_bytes", ["1GiB", "4KiB"])
def test_what_saturates_is_counted_and_refused_if_it_is_all(shell: Shell, max_bytes: str) -> None:
    reorder.save("x.safetensors", {"w": _X})
    command = f"reorder x.safetensors y.npz --to-dtype s8 --max-bytes {max_bytes} --scale"
    count = int((abs(np.rint(_X / np.float32(0.02)) - -0.5) > 127.5).sum())
    assert 0 < count < _X.size
    shell.facts(f"{command} 0.02")
    (said,) = shell.warnings
    assert f"w: {count} of {_X.size} numbers are beyond s8 at this scale" in said
    reorder.save("x.safetensors", {"w": np.where(_X < 0, np.float32(-1), np.float32(1))})
    assert "w: all 4096 numbers are beyond s8" in shell.refusal(f"{command} 1e-9")
    # integers of another type saturate without a scale
    reorder.save("x.safetensors", {"w": np.arange(2048, dtype=np.int32) % 256})
    shell.facts(command.removesuffix(" --scale"))
    assert "w: 1024 of 2048 numbers are beyond s8" in shell.warnings[0]
    report = reorder.convert("x.safetensors", "z.npz", map=["w: s8"])
    assert report.warnings[0].startswith("w: 1024 of 2048 numbers are beyond s8")
