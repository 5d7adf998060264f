"""The formula of attributes, by definition and by kernels."""

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc.dtypes import DATA_TYPES
from reorder import Attr
from reorder.values.formats import INTEGERS
from tests.conversions import BY


def _run(x: Any, dst: str, attr: Attr, old: Any = None, by: str = "definition") -> Any:
    x = np.asarray(x)
    held = np.full(x.shape, 77, np.uint8) if old is None else np.asarray(old)
    letters = "abcdefghijkl"[: x.ndim]
    out = reorder.reorder(held.astype(DATA_TYPES[dst].numpy), letters)
    if by == "kernels":
        return reorder.reorder(x, out=out, attr=attr).numpy()
    source = reorder.reorder(x, letters)
    reorder.reference.execute_reference(source.desc, out.desc, source.data, out.data, attr)
    return out.numpy()


@pytest.mark.parametrize("by", BY)
def test_the_formula_gives_the_numbers_that_onednn_gives(by: str) -> None:
    full = Attr(src_zero_point=3, src_scale=2, beta=2, dst_scale=0.5, dst_zero_point=7)
    floats = Attr(src_scale=2, dst_scale=4, beta=3)
    for x, dst, attr, old, wanted in (
        (np.array([5], np.int8), "s8", full, [10], 55),
        (np.array([5], np.float32), "f32", floats, [10], 10),
        (np.array([2.5], np.float32), "s8", Attr(dst_zero_point=1), None, 4),
        # what dst holds is not read without beta
        (np.array([3.0], np.float32), "f32", Attr(src_scale=2), [np.nan], 6),
    ):
        assert _run(x, dst, attr, old, by) == wanted
    assert np.isnan(_run(np.array([3.0], np.float32), "f32", Attr(beta=1), [np.nan], by))
    # neutral parameters change nothing
    minus_zero = np.array([-0.0], np.float32)
    for attr in (Attr(), Attr(src_scale=1.0, dst_zero_point=0, beta=0), Attr(src_scale=2.0)):
        assert np.signbit(_run(minus_zero, "f16", attr, None, by))
    signalling = np.array([0xFF800001], np.uint32).view(np.float32)
    assert _run(signalling, "f32", Attr(), None, by).view(np.uint32) == 0xFF800001
    # what comes out of arithmetic is one NaN
    assert _run(signalling, "f32", Attr(src_scale=2.0), None, by).view(np.uint32) == 0x7FC00000


def test_each_element_gets_the_parameters_of_its_place() -> None:
    rng, dims = np.random.default_rng(1), (3, 4, 6)
    x, old = rng.integers(-9, 9, (2, *dims)).astype(np.int8)
    grouped = [(0, ()), (1, ()), (2, ()), (6, ()), (7, ()), (6, (2, 3)), (7, (2, 3))]
    for of_src, of_dst in permutations(grouped, 2):
        given: dict[str, Any] = {"beta": 0.5}
        full = []
        for role, (mask, groups) in (
            *(("src_scale", of_src), ("dst_scale", of_dst)),
            *(("src_zero_point", of_dst), ("dst_zero_point", of_src)),
        ):
            own = (1, *(groups or (1, 1)))
            extents = [own[dim] if mask >> dim & 1 else size for dim, size in enumerate(dims)]
            # powers of two are exact
            values: Any = rng.integers(-1, 3, np.array(dims) // extents)
            values = 2.0**values if role.endswith("scale") else values
            given |= {role: values, f"{role}_mask": mask, f"{role}_groups": groups}
            full.append(np.kron(values, np.ones(extents)))
        d = (full[0] * (x - full[2]) + old / 2) / full[1] + full[3]
        wanted = np.clip(np.rint(d), -128, 127)
        assert np.array_equal(_run(x, "s8", Attr(**given), old), wanted), given


@pytest.mark.parametrize("extreme", [(), (1e-30,)])
def test_a_division_by_a_scale_is_a_division_whatever_the_numbers(
    extreme: tuple[float, ...],
) -> None:
    rng = np.random.default_rng(4)
    usual = np.ldexp(1 + rng.random(60), rng.integers(-39, 39, 60))
    special = [*extreme, -3.0, 1 / 3, 1 + 2.0**-23, 2 - 2.0**-23, 2.0**-40]
    scales = np.append(usual, special).astype(np.float32)
    multiples = scales[:, None] * np.arange(1, 4000, dtype=np.float32)
    bits = rng.integers(0, 2**32, multiples.shape, dtype=np.uint32).view(np.float32)
    x = np.concatenate([multiples, np.nextafter(multiples, np.float32(0)), bits], axis=1)
    x[:, :4] = [0.0, -0.0, np.inf, -np.inf]
    with np.errstate(all="ignore"):
        wanted = x / scales[:, None]
    wanted = np.where(np.isnan(wanted), np.float32(np.nan), wanted).view(np.uint32)
    # along the rows, and the columns
    rows = reorder.reorder(x, "ab", attr=Attr(dst_scale=scales, dst_scale_mask=1)).numpy()
    turned = np.ascontiguousarray(x.T)
    columns = reorder.reorder(turned, "ab", attr=Attr(dst_scale=scales, dst_scale_mask=2)).numpy()
    assert np.array_equal(rows.view(np.uint32), wanted)
    assert np.array_equal(columns.view(np.uint32).T, wanted)


# narrow, 32-bit and 64-bit integers in both working types; the campaign has kernels for the others
_OF_KERNELS = {
    *((src, "f32") for src in ("u4", "s8", "u8", "s32", "u32", "s64")),
    *((src, "f64") for src in ("s4", "s32", "u64")),
    *(("f32", dst) for dst in ("s4", "s8", "u8", "u16", "s32", "u32")),
}
_EVERY = pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.campaign)])
_POINTS = [300, -40_000, 2**24 + 3, -(2**31)]


def _ways(src: str, dst: str, *, every: bool) -> list[str]:
    return BY if every or (src, dst) in _OF_KERNELS else ["definition"]


@_EVERY
@pytest.mark.parametrize("dst", ["f32", "f64"])
def test_zero_points_of_src_are_s32_and_the_difference_is_exact(dst: str, every: bool) -> None:
    for src, (low, high) in INTEGERS.items():
        numbers = [low, low + 1, 0, 1, 5, high - 1, high]
        x = np.array(numbers, DATA_TYPES[src].numpy)
        work = np.float64 if "64" in src + dst else np.float32
        for point, by in product(_POINTS, _ways(src, dst, every=every)):
            # Python integers are exact; 64-bit ones are rounded to f64 first
            exact = [(int(float(n)) if src[1:] == "64" else n) - point for n in numbers]
            wanted = np.array([work(float(n)) for n in exact])
            got = _run(x, dst, Attr(src_zero_point=point), None, by)
            assert got.tolist() == wanted.astype(got.dtype).tolist(), src
            # one for each element, and a scale after it
            each = Attr(src_zero_point=[point] * 7, src_zero_point_mask=1, src_scale=0.5)
            assert _run(x, dst, each, None, by).tolist() == (got / 2).tolist(), src


@_EVERY
def test_zero_points_of_dst_are_s32_and_saturate_at_the_end(every: bool) -> None:
    numbers = [-70_000.0, -300.5, -299.5, -1.0, 0.0, 0.5, 1.5, 5.0, 295.0, 70_000.0]
    x = np.array(numbers, np.float32)
    for dst in ("s4", "u4", "s8", "u8", "s16", "u16", "s32", "u32"):
        low, high = INTEGERS[dst]
        for point, by in product(_POINTS, _ways("f32", dst, every=every)):
            sums = [float(np.float32(n) + np.float32(point)) for n in numbers]
            wanted = [min(max(round(n), low), high) for n in sums]
            each = Attr(dst_zero_point=[point] * x.size, dst_zero_point_mask=1)
            for attr in (Attr(dst_zero_point=point), each):
                assert [int(n) for n in _run(x, dst, attr, None, by)] == wanted, dst
