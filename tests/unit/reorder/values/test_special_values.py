"""Values that rules name: zeros, NaN, ends of ranges, booleans, integers beyond floats."""

import numpy as np
import pytest

import reorder
from memdesc.dtypes import DATA_TYPES
from tests.conversions import BY, run


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize(
    ("dst", "largest"),
    [
        ("f16", 65504),
        ("bf16", None),
        ("f8_e5m2", 57344),
        ("f8_e4m3", 448),
        ("f8_e5m2fnuz", 57344),
        ("f8_e4m3fnuz", 240),
        ("f4_e2m1", 6),
    ],
)
def test_saturation_makes_the_largest_number_of_all_beyond_it_and_keeps_nan(
    dst: str, largest: float | None, by: str
) -> None:
    x = np.array([1e38, -3e38, np.inf, -np.inf, np.nan, 1.0], np.float32)
    dtype = DATA_TYPES[dst]
    largest = float(np.array(0x7F7F, np.uint16).view(dtype.numpy)) if largest is None else largest
    got = (
        run(x.view(np.uint32), "f32", dst, reorder.Attr(saturate=True), by=by)
        .view(dtype.numpy)
        .astype(np.float32)
    )
    if dst == "bf16":
        assert got[2:4].tolist() == [largest, -largest]
    else:
        assert got[:4].tolist() == [largest, -largest, largest, -largest]
    assert got[5] == 1
    assert np.isnan(got[4]) or dst == "f4_e2m1"


@pytest.mark.parametrize("by", BY)
def test_all_that_is_not_zero_is_true_and_every_byte_but_0_is_read_so(by: str) -> None:
    tiny = np.array([0.0, -0.0, np.nan, -np.inf, 0.3, -1e-45, 1e-40], np.float32)
    assert run(tiny.view(np.uint32), "f32", "boolean", by=by).tolist() == [0, 0, 1, 1, 1, 1, 1]
    least = np.array([0, 1, 1 << 63, (1 << 63) | 1], np.uint64)
    assert run(least, "f64", "boolean", by=by).tolist() == [0, 1, 0, 1]
    assert run(least, "u64", "boolean", by=by).tolist() == [0, 1, 1, 1]
    codes = np.array([0, 1, 2, 128, 255], np.uint8)
    assert run(codes, "boolean", "s8", by=by).tolist() == [0, 1, 1, 1, 1]
    assert run(codes, "boolean", "f32", by=by).view(np.float32).tolist() == [0, 1, 1, 1, 1]
    assert run(codes, "boolean", "boolean", by=by).tolist() == codes.tolist()
    attr = reorder.Attr(src_scale=0.25, dst_scale=-8.0)
    assert run(codes, "boolean", "boolean", attr, by=by).tolist() == [0, 1, 1, 1, 1]
    assert run(codes, "u8", "boolean", reorder.Attr(src_zero_point=2), by=by).tolist() == [
        1, 1, 0, 1, 1,
    ]  # fmt: skip
    assert run(tiny.view(np.uint32), "f32", "boolean", reorder.Attr(saturate=True), by=by)[2] == 1
