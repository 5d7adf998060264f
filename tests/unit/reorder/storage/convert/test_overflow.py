"""Finite numbers never become infinities or NaN: a conversion that would do so is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import MemdescError, record_desc
from tests.checkpoints import write_safetensors
from tests.unit.reorder.storage.convert.results import SMALL, converted, refused

if TYPE_CHECKING:
    from pathlib import Path

_IN_PIECES = SMALL._replace(max_bytes=4096)


@pytest.mark.parametrize(
    ("dtype", "value", "kind", "wanted"),
    [
        (np.float32, 1e5, "f16", "100000 at (40, 3) would become inf in f16, whose largest"),
        (np.float32, -70000, "f16", "-70000 at (40, 3) would become -inf in f16"),
        (np.float32, 500, "f8_e4m3", "500 at (40, 3) would become nan in f8_e4m3"),
        (np.float32, 62000, "f8_e5m2", "number is 57344; bf16 and f32 hold it; or give scale="),
        (np.float16, 500, "f8_e4m3fnuz", "500 at (40, 3) would become nan in f8_e4m3fnuz"),
        (ml_dtypes.bfloat16, 2**17, "f16", "131072 at (40, 3) would become inf in f16"),
        (np.int32, 70000, "f16", "70000 at (40, 3) would become inf in f16"),
    ],
)
def test_the_first_number_is_named(
    tmp_path: Path, dtype: Any, value: float, kind: str, wanted: str
) -> None:
    x = np.ones((64, 8), dtype)
    x[40, 3] = value
    write_safetensors(tmp_path / "x.safetensors", {"w": x, "v": np.ones(3, np.float32)})
    said = refused(
        tmp_path / "x.safetensors", tmp_path / "y.safetensors", f"w: {kind}", settings=_IN_PIECES
    )
    assert wanted in said
    assert said.startswith("w: ")


def test_what_was_not_finite_stays_as_it_was(tmp_path: Path) -> None:
    x = np.array([[np.inf, -np.inf, np.nan, 1]], np.float32)
    write_safetensors(tmp_path / "x.safetensors", {"w": x})
    found = converted(tmp_path / "x.safetensors", tmp_path / "y.safetensors", "w: f16")
    assert np.array_equal(found["w"], x.astype(np.float16), equal_nan=True)


@pytest.mark.parametrize("scale", [np.inf, np.nan])
def test_blocks_whose_scale_is_not_finite_are_not_decoded(tmp_path: Path, scale: float) -> None:
    record = reorder.Record(record_desc((4, 64), "q8_0"))
    record.set_field("qs", np.ones((4, 64), np.int8))
    scales = np.ones((4, 2), np.float16)
    scales[2, 1] = scale
    record.set_field("d", scales)
    reorder.save(tmp_path / "x.safetensors", {"w": record})
    said = refused(tmp_path / "x.safetensors", tmp_path / "y.safetensors", "w: bf16")
    assert f"w: the number at (2, 32) is {scale}, although codes are finite" in said


@pytest.mark.parametrize(
    ("name", "field", "target"),
    [("q4_0", "d", "awq"), ("q4_1", "m", "mlx(scales=f32)"), ("q8_0", "d", "int_quantized")],
)
def test_scales_in_blocks_that_are_not_finite_do_not_move(
    tmp_path: Path, name: str, field: str, target: str
) -> None:
    desc = record_desc((64, 4096), name)
    record = reorder.Record(desc)
    scales = np.ones(desc.field(field).layout.dims, np.float16)
    scales[50, 17] = np.nan
    record.set_field(field, scales)
    reorder.save(tmp_path / "in.npz", {"fc": record})
    rule = f"fc*: {name} -> {target}"
    settings = SMALL._replace(max_bytes=1 << 16)
    with pytest.raises(MemdescError) as caught:
        reorder.convert(tmp_path / "in.npz", tmp_path / "out.npz", [rule], settings)
    assert f"{field} of f16 is NaN at (50, 17), and 1 of " in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.npz"]
