"""Conversion tables: every value of the small types, many of the large ones, to every type."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reorder
from memdesc.dtypes import DATA_TYPES
from reorder.values.formats import FORMATS, FloatFormat, IntegerFormat
from tests.conversions import (
    BY,
    FLOATS,
    INTEGERS,
    PAIRS,
    every_code,
    random_codes,
    run,
    same,
    value_of,
    written_rule,
)
from tests.programs import run_python

_ROW = 10_000_000 // 16
# where numpy and ml_dtypes convert by our rule: floats to floats, and up from integers
_THEIRS = [name for name in FLOATS if name != "f4_e2m1"]


# the campaign has kernels that few tests share
EVERY_PAIR = pytest.mark.parametrize(
    "every_pair", [False, pytest.param(True, marks=pytest.mark.campaign)]
)


def check_ways(
    codes: NDArray[Any], wanted: NDArray[Any], src: str, dst: str, *, every_pair: bool
) -> None:
    """Convert codes in each way, and compare all of them."""
    for by in BY:
        if by != "kernels" or every_pair or (src, dst) in PAIRS:
            check(run(codes, src, dst, by=by), wanted, codes, (src, dst))


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


def some_codes(src: str) -> NDArray[Any]:
    """Return every code of a type of up to 8 bits, and some of another."""
    if DATA_TYPES[src].bits > 16:
        return random_codes(src, 200, 3)
    codes = every_code(src)
    # the fractions take a sample where there are many
    few = np.random.default_rng(0).choice(codes.size, min(codes.size, 256 // 3), replace=False)
    return codes if codes.size <= 256 else codes[few]


def test_a_format_has_as_many_bits_as_an_element() -> None:
    for name, form in FORMATS.items():
        if isinstance(form, FloatFormat | IntegerFormat):
            assert form.bits == DATA_TYPES[name].bits, name


@EVERY_PAIR
@pytest.mark.parametrize("src", DATA_TYPES)
def test_values_of_a_type_become_every_type_by_the_written_rule(src: str, every_pair: bool) -> None:
    codes = some_codes(src)
    for dst in DATA_TYPES:
        wanted = codes if src == dst else spelled_out(codes, src, dst)
        check_ways(codes, wanted, src, dst, every_pair=every_pair)
        # numpy and ml_dtypes know these
        if DATA_TYPES[src].bits == 16 and dst in _THEIRS and src != dst:
            every = every_code(src)
            check_ways(every, theirs(every, src, dst), src, dst, every_pair=every_pair)


@pytest.mark.campaign
@pytest.mark.parametrize("dst", DATA_TYPES)
def test_ten_million_random_bits_of_f32_become_every_type_by_the_rule(dst: str) -> None:
    for seed in range(16):
        codes = random_codes("f32", _ROW, seed)
        kernels = run(codes, "f32", dst, by="kernels")
        assert np.array_equal(kernels, run(codes, "f32", dst, by="definition"))
        if dst in _THEIRS and dst != "f32":
            check(kernels, theirs(codes, "f32", dst), codes, ("f32", dst))


@pytest.mark.parametrize("src", ["f32", "f64"])
def test_values_around_every_tie_and_limit_are_rounded_once(src: str) -> None:
    for dst in (*FLOATS, *INTEGERS):
        codes = _ties(src, dst)
        wanted = codes if src == dst else spelled_out(codes, src, dst)
        check_ways(codes, wanted, src, dst, every_pair=True)


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
        if dtype.bits <= 8:
            sample = every_code(dst)
        else:
            # among them the codes below infinity
            exponent, mantissa, _ = FLOATS[dst]
            infinity = ((1 << exponent) - 1) << mantissa
            largest = infinity - np.arange(1, 9, dtype=dtype.bits_dtype)
            sample = np.append(random_codes(dst, 40, 5), largest)
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


def test_a_new_float_needs_a_row_in_each_table_and_nothing_else() -> None:
    assert run_python(Path(__file__).with_name("new_rows.py")).stdout == "2 rows\n"


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("dst", ["f8_e5m2", "f8_e4m3"])
def test_the_onednn_rounding_of_f8_goes_through_f16(dst: str, by: str) -> None:
    codes = random_codes("f32", 30_000, 9)
    attr = reorder.Attr(f8_rounding="onednn")
    twice = run(codes, "f32", dst, attr, by=by)
    half = run(codes, "f32", "f16", by="definition")
    check(twice, run(half, "f16", dst, by="definition"), codes, ("f32", dst))
    example = np.array([3328.073], np.float32).view(np.uint32)
    for given, wanted in ((attr, 3072), (None, 3584)):
        found = run(example, "f32", "f8_e5m2", given, by=by)
        assert found.view(DATA_TYPES["f8_e5m2"].numpy).astype(np.float32) == wanted


@pytest.mark.parametrize("by", BY)
def test_saturation_makes_the_largest_number_of_all_beyond_it_and_keeps_nan(by: str) -> None:
    x = np.array([1e38, -3e38, np.inf, -np.inf, np.nan, 1.0], np.float32).view(np.uint32)
    for dst, largest in (
        *(("f16", 65504), ("f8_e5m2", 57344), ("f8_e4m3", 448), ("f8_e5m2fnuz", 57344)),
        *(("f8_e4m3fnuz", 240), ("f4_e2m1", 6)),
    ):
        codes = run(x, "f32", dst, reorder.Attr(saturate=True), by=by)
        got = codes.view(DATA_TYPES[dst].numpy).astype(np.float32)
        assert got[:4].tolist() == [largest, -largest, largest, -largest], dst
        assert got[5] == 1
        assert np.isnan(got[4]) or dst == "f4_e2m1"
    codes = run(x, "f32", "bf16", reorder.Attr(saturate=True), by=by)
    assert [hex(code) for code in codes[2:4]] == ["0x7f7f", "0xff7f"]
    assert codes[4] & 0x7FFF > 0x7F80


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
