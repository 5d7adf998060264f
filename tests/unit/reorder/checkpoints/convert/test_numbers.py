"""Numbers of converted tensors: chosen and given scales, types, what stays and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc.record import record_desc
from reorder import Quantized
from reorder.cli.main import main
from tests.checkpoints import write_safetensors
from tests.unit.reorder.checkpoints.convert.results import SMALL, convert, converted, refused


def test_scales_of_no_elements_are_1(tmp_path: Path) -> None:
    source = tmp_path / "in.npz"
    np.savez(source, a=np.ones((1, 0), np.float32), b=np.ones((0, 3), np.float32))
    rules = ("a: u8, scales=a", "b: AB4a4b, s8, scales=ab")
    found = converted(source, tmp_path / "out.safetensors", *rules)
    assert found["a_scale"].tolist() == [1]
    assert found["a_zero_point"].tolist() == [0]
    assert found["b_scale"].shape == (0, 3)


def test_types_that_an_archive_does_not_have_come_back(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    first = source = tmp_path / "in.safetensors"
    write_safetensors(tmp_path / "x.safetensors", {"x": x, "y": x})
    convert(tmp_path / "x.safetensors", first, "x: bf16", "y: f8_e5m2")
    for name in ("b.npz", "c.gguf", "d.safetensors"):
        convert(source, tmp_path / name)
        source = tmp_path / name
    with reorder.open_checkpoint(first) as old, reorder.open_checkpoint(source) as new:
        assert new.metadata == {}
        for name, dtype in (("x", "bf16"), ("y", "f8_e5m2")):
            assert (new[name].dtype, new[name].shape) == (dtype, (2, 3))
            assert new[name].data.tobytes() == old[name].data.tobytes()


def test_tensors_without_a_data_type_are_copied(tmp_path: Path) -> None:
    x = np.arange(8, dtype=np.complex64)
    write_safetensors(tmp_path / "x.safetensors", {"x": x})
    convert(tmp_path / "x.safetensors", tmp_path / "y.safetensors")
    with reorder.open_checkpoint(tmp_path / "y.safetensors") as found:
        assert (found["x"].dtype, found["x"].data.tobytes()) == ("C64", x.tobytes())
    said = refused(tmp_path / "x.safetensors", tmp_path / "z.safetensors", "x: f32")
    assert "rule 'x: f32': x of C64 and shape (8,): memdesc has no data type" in said


# A `Quantized` and a `Record` stay what they are.


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
    convert(tmp_path / "in.safetensors", tmp_path / name, rule)
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
    convert(whole, folder, shard_bytes=_WEIGHTS.size)
    return folder, folder / "model-00002-of-00003.safetensors"


@pytest.mark.parametrize("name", ["w", "v"])
def test_a_shard_keeps_what_its_tensors_are_with_those_of_another(
    tmp_path: Path, name: str
) -> None:
    folder, shard = _shards(tmp_path)
    wanted = reorder.dequantize(reorder.load_all(tmp_path / "whole.safetensors", Quantized)["w"])
    made, index = tmp_path / "shard.safetensors", folder / "model.safetensors.index.json"
    reorder.convert(shard, made, map=[f"w: rename={name}"])
    shard.write_bytes(made.read_bytes())
    index.write_text(index.read_text().replace('"w":', f'"{name}":'))
    reorder.convert(folder, tmp_path / "again.safetensors", map=[])
    found = reorder.load_all(tmp_path / "again.safetensors", Quantized)[name]
    assert np.array_equal(reorder.dequantize(found).numpy(), wanted.numpy())


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


# Scales that a rule gives are stored with what they scaled; what is lost is said or refused.


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
