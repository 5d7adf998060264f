"""Conversion tables: every value of the small types, many of the large ones, to every type."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import DATA_TYPES, memory_desc
from reorder.values.formats import FORMATS, FloatFormat, IntegerFormat, largest_number
from reorder.values.formats import INTEGERS as FORMATS_OF_INTEGERS
from tests.conversions import (
    FLOATS,
    INTEGERS,
    ONLY_NAN,
    every_code,
    random_codes,
    run,
    same,
    value_of,
    written_rule,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

BY = ["definition", "kernels"]
SMALL = [name for name, dtype in DATA_TYPES.items() if dtype.bits <= 16]
LARGE = [name for name in DATA_TYPES if name not in SMALL]
_ROW = 10_000_000 // 16
# where numpy and ml_dtypes convert by our rule: floats to floats, and up from integers
_THEIRS = [name for name in FLOATS if name != "f4_e2m1"]


def theirs(codes: NDArray[Any], src: str, dst: str) -> NDArray[Any]:
    """Convert with numpy and ml_dtypes."""
    fro, to = DATA_TYPES[src], DATA_TYPES[dst]
    with np.errstate(all="ignore"):
        values = codes.view(fro.numpy)
        if src == "f64" and dst not in {"f32", "f16"}:
            raise NotImplementedError  # rounds twice
        return values.astype(to.numpy).view(to.bits_dtype)


def spelled_out(codes: NDArray[Any], src: str, dst: str) -> NDArray[Any]:
    found = {code: written_rule(code, src, dst) for code in set(codes.tolist())}
    return np.array([found[code] for code in codes.tolist()], DATA_TYPES[dst].bits_dtype)


def check(
    ours: NDArray[Any], wanted: NDArray[Any], codes: NDArray[Any], pair: tuple[str, str]
) -> None:
    wrong = np.flatnonzero(~same(ours, wanted, pair[1]))
    assert not wrong.size, [(hex(codes[i]), hex(ours[i]), hex(wanted[i])) for i in wrong[:5]]


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("dst", DATA_TYPES)
@pytest.mark.parametrize("src", SMALL)
def test_every_value_of_a_small_type_becomes_every_type_by_the_written_rule(
    src: str, dst: str, by: str
) -> None:
    codes = every_code(src)
    ours = run(codes, src, dst, by=by)
    if codes.size > 256:
        # numpy and ml_dtypes know these; the fractions take a sample
        if dst in _THEIRS and src != dst:
            check(ours, theirs(codes, src, dst), codes, (src, dst))
        few = np.random.default_rng(0).choice(codes.size, 150, replace=False)
        codes, ours = codes[few], ours[few]
    wanted = codes if src == dst else spelled_out(codes, src, dst)
    check(ours, wanted, codes, (src, dst))


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("dst", [name for name in _THEIRS if name != "f32"])
def test_random_bits_of_f32_become_what_numpy_and_ml_dtypes_make_of_them(dst: str, by: str) -> None:
    codes = random_codes("f32", 200_000)
    check(run(codes, "f32", dst, by=by), theirs(codes, "f32", dst), codes, ("f32", dst))


@pytest.mark.campaign
@pytest.mark.parametrize("dst", DATA_TYPES)
def test_ten_million_random_bits_of_f32_become_every_type_by_the_rule(dst: str) -> None:
    for seed in range(16):
        codes = random_codes("f32", _ROW, seed)
        kernels = run(codes, "f32", dst, by="kernels")
        assert np.array_equal(kernels, run(codes, "f32", dst, by="definition"))
        if dst in _THEIRS and dst != "f32":
            check(kernels, theirs(codes, "f32", dst), codes, ("f32", dst))


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("dst", DATA_TYPES)
@pytest.mark.parametrize("src", LARGE)
def test_random_bits_of_a_large_type_become_every_type_by_the_written_rule(
    src: str, dst: str, by: str
) -> None:
    codes = random_codes(src, 400, 3)
    check(
        run(codes, src, dst, by=by),
        codes if src == dst else spelled_out(codes, src, dst),
        codes,
        (src, dst),
    )


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("dst", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("src", ["f32", "f64"])
def test_values_around_every_tie_and_limit_are_rounded_once(src: str, dst: str, by: str) -> None:
    codes = _ties(src, dst)
    check(
        run(codes, src, dst, by=by),
        codes if src == dst else spelled_out(codes, src, dst),
        codes,
        (src, dst),
    )


def _ties(src: str, dst: str) -> NDArray[Any]:
    """Return bits of src at numbers of dst, halfway between two, and one step of src beside."""
    if dst in INTEGERS:
        half = 2 ** (INTEGERS[dst] - 1)
        numbers = [
            sign * (base + k / 2)
            for sign in (1, -1)
            for base in (0, half, 2 * half, half - 2)
            for k in range(5)
        ]
    else:
        dtype = DATA_TYPES[dst]
        sample = every_code(dst) if dtype.bits <= 8 else random_codes(dst, 40, 5)
        rest = (1 << (dtype.bits - 1)) - 1
        numbers = []
        for code in sample.tolist():
            pair = [value_of(k, dst) for k in (code & rest, min((code & rest) + 1, rest))]
            if all(not isinstance(magnitude, str) and magnitude < 2**1000 for _, magnitude in pair):
                low, high = (float(magnitude) for _, magnitude in pair)
                numbers += [low, (low + high) / 2, -(low + high) / 2]
    with np.errstate(all="ignore"):
        exact = np.array(numbers, np.float64).astype(DATA_TYPES[src].numpy)
        around = np.concatenate(
            [
                exact,
                np.nextafter(exact, exact.dtype.type(np.inf)),
                np.nextafter(exact, exact.dtype.type(-np.inf)),
            ]
        )
    return around.view(DATA_TYPES[src].bits_dtype)


def test_each_type_has_a_width_a_format_and_a_second_definition() -> None:
    assert set(DATA_TYPES) == set(FORMATS) == {*FLOATS, *INTEGERS, "e8m0", "boolean"}
    finfo: Any = ml_dtypes.finfo
    iinfo: Any = ml_dtypes.iinfo
    for name, form in FORMATS.items():
        dtype = DATA_TYPES[name]
        if isinstance(form, FloatFormat):
            info = finfo(dtype.numpy)
            assert form.bits == dtype.bits == info.bits
            assert (form.mantissa, 1 - form.bias) == (info.nmant, info.minexp)
        if isinstance(form, IntegerFormat):
            ends = iinfo(dtype.numpy)
            assert (form.bits, form.low, form.high) == (dtype.bits, int(ends.min), int(ends.max))
        largest = largest_number(name)
        assert largest is None or largest == float(finfo(dtype.numpy).max)


def test_a_new_float_needs_a_row_in_each_table_and_nothing_else() -> None:
    program = str(Path(__file__).with_name("new_rows.py"))
    ran = subprocess.run(
        [sys.executable, program],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "2 rows\n"


@pytest.mark.parametrize("by", BY)
def test_minus_zero_is_kept_where_there_is_one_and_a_nan_becomes_no_integer(by: str) -> None:
    zero, nan = np.array([0x80000000], np.uint32), np.array([0x7FC00001, 0xFF800001], np.uint32)
    for dst, (exponent, mantissa, _) in FLOATS.items():
        kept = 0 if dst in ONLY_NAN else 1 << (exponent + mantissa)
        assert run(zero, "f32", dst, by=by) == kept
    for dst in INTEGERS:
        assert not run(nan, "f32", dst, by=by).any()
        assert not run(zero, "f32", dst, by=by).any()


@pytest.mark.parametrize("by", BY)
def test_a_nan_keeps_its_sign_and_the_upper_bits_of_its_payload_and_becomes_quiet(by: str) -> None:
    nans = np.array([0x7F812345, 0xFFA00000, 0x7FC00000, 0xFFFFFFFF], np.uint32)
    assert run(nans, "f32", "bf16", by=by).tolist() == [0x7FC1, 0xFFE0, 0x7FC0, 0xFFFF]
    assert run(nans, "f32", "f16", by=by).tolist() == [0x7E09, 0xFF00, 0x7E00, 0xFFFF]
    assert run(nans, "f32", "f8_e5m2", by=by).tolist() == [0x7E, 0xFF, 0x7E, 0xFF]
    assert run(nans, "f32", "f8_e4m3", by=by).tolist() == [0x7F, 0xFF, 0x7F, 0xFF]
    for only in ONLY_NAN:
        assert set(run(nans, "f32", only, by=by).tolist()) == {0x80}
        assert run(np.array([0x80], np.uint8), only, "f32", by=by) == 0xFFC00000
    assert run(nans, "f32", "f64", by=by).tolist() == [
        0x7FF82468A0000000,
        0xFFFC000000000000,
        0x7FF8000000000000,
        0xFFFFFFFFE0000000,
    ]
    assert run(np.array([0x7F81], np.uint16), "bf16", "f32", by=by) == 0x7FC10000


@pytest.mark.parametrize("by", BY)
def test_integers_become_integers_without_passing_through_floats(by: str) -> None:
    codes = np.array(
        [2**53 + 1, 2**63 - 1, -(2**63), -(2**31) - 1, 2**24 + 1, -129], np.int64
    ).view(np.uint64)
    assert run(codes, "s64", "s32", by=by).view(np.int32).tolist() == [
        2**31 - 1,
        2**31 - 1,
        -(2**31),
        -(2**31),
        2**24 + 1,
        -129,
    ]
    assert run(codes, "s64", "s8", by=by).view(np.int8).tolist() == [
        127,
        127,
        -128,
        -128,
        127,
        -128,
    ]
    assert run(np.array([2**24 + 1], np.uint32), "s32", "s64", by=by) == 2**24 + 1


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
@pytest.mark.parametrize("dst", ["f8_e5m2", "f8_e4m3"])
def test_the_onednn_rounding_of_f8_goes_through_f16(dst: str, by: str) -> None:
    codes = random_codes("f32", 30_000, 9)
    attr = reorder.Attr(f8_rounding="onednn")
    twice = run(codes, "f32", dst, attr, by=by)
    half = run(codes, "f32", "f16", by="definition")
    check(twice, run(half, "f16", dst, by="definition"), codes, ("f32", dst))
    example = np.array([3328.073], np.float32).view(np.uint32)
    assert (
        run(example, "f32", "f8_e5m2", attr, by=by)
        .view(DATA_TYPES["f8_e5m2"].numpy)
        .astype(np.float32)
        == 3072
    )
    assert (
        run(example, "f32", "f8_e5m2", by=by).view(DATA_TYPES["f8_e5m2"].numpy).astype(np.float32)
        == 3584
    )


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


@pytest.mark.parametrize("by", BY)
def test_u64_beyond_s64_is_exact_to_integers_and_rounded_once_to_f64(by: str) -> None:
    numbers = [0, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1025, 2**64 - 1024, 2**64 - 1]
    codes = np.array(numbers, np.uint64)
    for dst, (low, high) in FORMATS_OF_INTEGERS.items():
        wanted = [min(max(number, low), high) for number in numbers]
        got = run(codes, "u64", dst, by=by).view(DATA_TYPES[dst].bits_dtype)
        assert [int(code) for code in got] == wanted
    # Python rounds integers to the nearest float, ties to even
    floats = run(codes, "u64", "f64", by=by).view(np.float64)
    assert floats.tolist() == [float(number) for number in numbers]
    # back: rounded, saturated
    values = [-1.0, -np.inf, 0.5, 1.5, 2.0**63, 2.0**64 - 2048, 2.0**64, np.inf, np.nan]
    back = run(np.array(values).view(np.uint64), "f64", "u64", by=by).tolist()
    assert back == [0, 0, 0, 2, 2**63, 2**64 - 2048, 2**64 - 1, 2**64 - 1, 0]
    signed = np.array([-1, -(2**63), 2**63 - 1], np.int64).view(np.uint64)
    assert run(signed, "s64", "u64", by=by).tolist() == [0, 0, 2**63 - 1]


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("src", ["s32", "u32"])
def test_zero_points_of_32_bits_are_subtracted_exactly(src: str, by: str) -> None:
    codes = np.array([2**31 - 1, 2**31 - 2, 2**30 + 1], np.uint32)
    attr = reorder.Attr(src_zero_point=2**31 - 4)
    got = run(codes, src, "f32", attr, by=by).view(np.float32)
    assert got.tolist() == [3.0, 2.0, float(np.float32(2**30 + 1 - 2**31 + 4))]


def test_what_keeps_its_type_keeps_its_bits_however_it_is_moved() -> None:
    attr = reorder.Attr(saturate=True)
    src = memory_desc((4, 5, 7, 9), "f8_e5m2", "Abcd8a")
    bits = np.full(src.nbytes, 0x7C, np.uint8)  # infinite
    for dst in (
        memory_desc(src.dims, "f8_e5m2", "abcd"),
        memory_desc(src.dims, "f8_e5m2", strides=(350, 70, 10, 1)),
    ):
        out = np.zeros(dst.nbytes, np.uint8)
        reorder.execute(reorder.plan_reorder(src, dst, attr), bits, out)
        assert out[0] == 0x7C
