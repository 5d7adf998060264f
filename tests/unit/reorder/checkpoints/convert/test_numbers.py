"""Numbers of converted tensors: chosen and given scales, types, what stays and what is refused."""

import re
from pathlib import Path

import numpy as np
import pytest

import reorder
from memdesc.record import record_desc
from reorder.cli.main import main
from tests.checkpoints import write_safetensors
from tests.unit.reorder.checkpoints.convert.results import SMALL, converted, refused


def test_scales_of_no_elements_are_1(tmp_path: Path) -> None:
    source = tmp_path / "in.npz"
    np.savez(source, a=np.ones((1, 0), np.float32), b=np.ones((0, 3), np.float32))
    rules = ("a: u8, scales=a", "b: AB4a4b, s8, scales=ab")
    found = converted(source, tmp_path / "out.safetensors", *rules)
    assert found["a_scale"].tolist() == [1]
    assert found["a_zero_point"].tolist() == [0]
    assert found["b_scale"].shape == (0, 3)


# Finite numbers never become infinities or NaN: a conversion that would do so is refused.


def test_files_that_were_finished_before_a_number_was_lost_are_removed(tmp_path: Path) -> None:
    x = np.ones((64, 8), np.float32)
    write_safetensors(tmp_path / "x.safetensors", {"a": x, "b": x * 1e5})
    settings = SMALL._replace(max_bytes=4096, shard_bytes=1024)
    said = refused(tmp_path / "x.safetensors", tmp_path / "out", "*: f16", settings=settings)
    assert "b: 100000 at (0, 0) would become inf" in said


def test_what_was_not_finite_stays_as_it_was(tmp_path: Path) -> None:
    x = np.array([[np.inf, -np.inf, np.nan, 1]], np.float32)
    write_safetensors(tmp_path / "x.safetensors", {"w": x})
    found = converted(tmp_path / "x.safetensors", tmp_path / "y.safetensors", "w: f16")
    assert np.array_equal(found["w"], x.astype(np.float16), equal_nan=True)


@pytest.mark.parametrize(
    ("name", "field", "value", "target", "said"),
    [
        ("q8_0", "d", np.inf, "bf16", "the number at (50, 544) is inf, although codes are finite"),
        ("q8_0", "d", np.nan, "bf16", "the number at (50, 544) is nan, although codes are finite"),
        ("q4_0", "d", np.nan, "q4_0 -> awq", "d of f16 is NaN at (50, 17), and 1 of "),
        ("q4_1", "m", np.nan, "q4_1 -> mlx(scales=f32)", "m of f16 is NaN at (50, 17), and 1 of "),
        ("q8_0", "d", np.nan, "q8_0 -> int_quantized", "d of f16 is NaN at (50, 17), and 1 of "),
    ],
)
def test_blocks_whose_scale_is_not_finite_do_not_move(
    tmp_path: Path, name: str, field: str, value: float, target: str, said: str
) -> None:
    desc = record_desc((64, 4096), name)
    record = reorder.records.Record(desc)
    codes = record.field("qs")
    record.set_field("qs", np.ones(codes.shape, codes.dtype))
    scales = np.ones(desc.field(field).layout.dims, np.float16)
    scales[50, 17] = value
    record.set_field(field, scales)
    reorder.save(tmp_path / "in.npz", {"fc": record})
    problem = refused(tmp_path / "in.npz", tmp_path / "x.npz", f"fc*: {target}", max_bytes=1 << 16)
    assert f"fc: {said}" in problem


def test_what_a_piece_cannot_hold_says_where_the_piece_begins(tmp_path: Path) -> None:
    desc = record_desc((64, 4096), "q4_0")
    record = reorder.records.Record(desc)
    scales = np.ones(desc.field("d").layout.dims, np.float16)
    scales[50, 17] = 1.001
    record.set_field("d", scales)
    reorder.save(tmp_path / "in.npz", {"fc": record})
    rule = "fc*: q4_0 -> awq(scales=bf16)"
    problem = refused(tmp_path / "in.npz", tmp_path / "x.npz", rule, max_bytes=1 << 16)
    found = re.search(
        r"fc: in the part that begins at \((\d+), (\d+)\): .* exactly, at \((\d+), (\d+)\);",
        problem,
    )
    assert found, problem
    row, column, group, output = map(int, found.groups())
    assert (row // 32 + group, column + output) == (17, 50)
    assert column > 0


# Scales that a rule gives are stored with what they scaled; what is lost is said or refused.


_X = np.linspace(-3, 3, 64 * 64, dtype=np.float32).reshape(64, 64)


@pytest.mark.parametrize("max_bytes", [1 << 20, 5000, 2000])
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
    source, made = tmp_path / "x.safetensors", tmp_path / "y.safetensors"
    write_safetensors(source, {"x": _X})
    options = SMALL._replace(max_bytes=max_bytes)
    seen = list[reorder.checkpoints.ConvertProgress]()
    report = reorder.convert(source, made, map=[rule], options=options, progress=seen.append)
    assert report.warnings == ()
    assert seen[-1].done == seen[-1].total
    found = reorder.load(made, reorder.Quantized)
    assert found.scales == np.float32(scale)
    assert found.zero_points == point
    assert abs(reorder.dequantize(found).numpy() - _X).max() <= scale / 2 + 1e-6
    assert main(["compare", str(source), str(made), "--atol", "0.026"]) == 0


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
    tiny = np.full((64, 64), 1e-12, np.float32)
    np.save(tmp_path / "x.npy", tiny)
    assert main([*command, "--to-dtype", "f16", "--max-bytes", max_bytes]) == 2
    assert "all numbers would become 0 in f16: the largest is" in capsys.readouterr().err
    # which is judged on the whole tensor
    tiny[-1, -1] = 1
    np.save(tmp_path / "x.npy", tiny)
    (tmp_path / "y.npy").unlink()
    assert main([*command, "--to-dtype", "f16", "--max-bytes", max_bytes]) == 0
