"""Scales that a rule gives are stored with what they scaled; what is lost is said or refused."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from reorder.cli.main import main
from tests.checkpoints import write_safetensors
from tests.unit.reorder.checkpoints.convert.results import SMALL, convert, refused

_X = np.linspace(-3, 3, 64 * 64, dtype=np.float32).reshape(64, 64)
_CUTS = [1 << 20, 5000, 2000]


def _saved(path: Path, x: NDArray[np.float32]) -> Path:
    write_safetensors(path, {"x": x})
    return path


@pytest.mark.parametrize("max_bytes", _CUTS)
@pytest.mark.parametrize(
    ("rule", "scale", "point"),
    [
        ("x: s8, scale=0.05", 0.05, 0),
        ("x: u8, scale=0.05, zero_point=100", 0.05, 100),
        ("x: s32, scale=0.05, zero_point=100", 0.05, 100),
    ],
)
def test_a_scale_is_stored_with_what_it_scaled(
    tmp_path: Path, rule: str, scale: float, point: int, max_bytes: int
) -> None:
    source = _saved(tmp_path / "x.safetensors", _X)
    made, options = tmp_path / "y.safetensors", SMALL._replace(max_bytes=max_bytes)
    seen = list[reorder.checkpoints.ConvertProgress]()
    report = reorder.convert(source, made, map=[rule], options=options, progress=seen.append)
    assert report.warnings == ()
    assert seen[-1].done == seen[-1].total
    found = reorder.load(made, reorder.Quantized)
    assert found.scales == np.float32(scale)
    assert found.zero_points == point
    assert abs(reorder.dequantize(found).numpy() - _X).max() <= scale / 2 + 1e-6
    assert main(["compare", str(source), str(made), "--atol", "0.026"]) == 0


@pytest.mark.parametrize("max_bytes", _CUTS)
def test_numbers_that_saturate_are_counted_and_said(tmp_path: Path, max_bytes: int) -> None:
    source = _saved(tmp_path / "x.safetensors", _X)
    target = tmp_path / "y.safetensors"
    report = convert(source, target, "x: s8, scale=0.02", max_bytes=max_bytes)
    count = int((abs(np.rint(_X / np.float32(0.02)) - -0.5) > 127.5).sum())
    assert 0 < count < _X.size
    (said,) = report.warnings
    assert said.startswith(f"x: {count} of {_X.size} numbers are beyond s8 at this scale")


@pytest.mark.parametrize("max_bytes", _CUTS)
@pytest.mark.parametrize("rule", ["x: s8, scale=1e-9", "x: f16, scale=1e-9"])
def test_a_scale_at_which_all_numbers_saturate_is_refused(
    tmp_path: Path, rule: str, max_bytes: int
) -> None:
    source = _saved(tmp_path / "x.safetensors", np.where(_X < 0, np.float32(-1), np.float32(1)))
    said = refused(source, tmp_path / "y.safetensors", rule, max_bytes=max_bytes)
    assert "x: all 4096 numbers are beyond" in said


@pytest.mark.parametrize("max_bytes", _CUTS)
def test_whether_all_numbers_become_zero_is_judged_on_the_tensor(
    tmp_path: Path, max_bytes: int
) -> None:
    source, target = tmp_path / "x.safetensors", tmp_path / "y.npz"
    tiny = np.full((64, 64), 1e-12, np.float32)
    said = refused(_saved(source, tiny), target, "x: f16", max_bytes=max_bytes)
    assert "x: all numbers would become 0 in f16: the largest is" in said
    tiny[-1, -1] = 1
    convert(_saved(source, tiny), target, "x: f16", max_bytes=max_bytes)


@pytest.mark.parametrize("max_bytes", ["1GiB", "5000"])
def test_the_command_refuses_what_a_conversion_refuses(
    tmp_path: Path, max_bytes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for value, said in ((1e5, "100000 at (3, 4) would become inf"), (0, "")):
        x = _X.copy()
        x[3, 4] = value
        np.save(tmp_path / "x.npy", x)
        command = ["reorder", str(tmp_path / "x.npy"), str(tmp_path / "y.npy"), "--to", "ba"]
        code = main([*command, "--to-dtype", "f16", "--max-bytes", max_bytes])
        assert code == (2 if said else 0)
        assert said in capsys.readouterr().err
        assert (tmp_path / "y.npy").exists() is not bool(said)
    np.save(tmp_path / "x.npy", _X * np.float32(1e-12))
    assert main([*command, "--to-dtype", "f16", "--max-bytes", max_bytes]) == 2
    assert "all numbers would become 0 in f16" in capsys.readouterr().err
