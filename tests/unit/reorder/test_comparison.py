"""Values of two tensors, compared by logical index."""

from math import inf, nan
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import memory_desc
from reorder import Memory, compare_values
from reorder.comparison import Difference


def test_tensors_in_other_layouts_and_types_are_compared_by_index() -> None:
    x = np.arange(2 * 17 * 3 * 4, dtype=np.float32).reshape(2, 17, 3, 4)
    blocked = reorder.reorder(x, "nChw16c", dtype="f16")
    other = x.copy()
    other[1, 16, 0, 2:] += 2
    other[1, 16, 2, 0] -= 5
    found = compare_values(blocked, other, limit=2)
    assert (found.dims, found.differing, found.is_equal) == (x.shape, 3, False)
    at = (1, 16, 0, 2)
    first, offset = float(x[at]), blocked.desc.offset(at)
    wanted = Difference(at, first, first + 2, 2.0, offset, 398, 2 * offset, 4 * 398)
    assert (found.first[0], [each.at for each in found.first]) == (wanted, [at, (1, 16, 0, 3)])
    assert found.worst is not None
    assert (found.worst.at, found.worst.difference) == ((1, 16, 2, 0), 5.0)
    counts = [[0] * 16 + [3], [2, 0, 1], [1, 0, 1, 1]]
    assert [each.tolist() for each in found.by_dim[1:]] == counts


# how two arrays are compared, how many of their numbers differ, and the largest difference
_X, _LARGE = np.array([1.0, 10.0, 100.0]), np.array([2**63 - 1, 5], np.int64)
_COMPARED: list[tuple[Any, Any, dict[str, Any], int, float | None]] = [
    *(
        ([0.0, nan, inf], np.array([-0.0, nan, inf], np.float32), options, 0, None)
        for options in ({}, {"atol": 1e-3}, {"rtol": 1e-3})
    ),
    ([nan, 1.0], [1.0, 1.0], {"rtol": 1e-3}, 1, inf),
    ([inf, 1.0], [-inf, 1.0], {"atol": 1e-3}, 1, inf),
    ([inf, 1.0], [1e30, 1.0], {"rtol": 1e-3}, 1, inf),
    ([1.0, 2.0, 4.0], [1.0, 2.5, 3.0], {}, 2, 1.0),
    (_X, _X + 0.5, {"atol": 0.5}, 0, None),
    (_X, _X + 0.5, {"atol": 0.4}, 3, 0.5),
    (_X, _X + 0.5, {"rtol": 0.01}, 2, 0.5),
    (_X, _X + 0.5, {"rtol": 0.0049}, 3, 0.5),
    (_X, _X + 0.5, {"rtol": 0.01, "atol": 0.49}, 0, None),
    # integers of 64 bits, exactly
    (_LARGE, _LARGE - [1, 0], {}, 1, 1.0),
    (_LARGE, _LARGE.astype(np.uint64), {}, 0, None),
    # the step of integers is 1, and booleans have none
    (np.array([3, 200], np.uint8), np.array([4, 198], np.int32), {"resolution": True}, 1, 2.0),
    (np.array([True, False]), np.array([False, True]), {"resolution": True}, 2, 1.0),
]


@pytest.mark.parametrize(("a", "b", "options", "differing", "worst"), _COMPARED)
def test_numbers_differ_by_more_than_is_tolerated(
    a: Any, b: Any, options: dict[str, Any], differing: int, worst: float | None
) -> None:
    found = compare_values(np.asarray(a), np.asarray(b), **options)
    assert found.differing == differing
    assert (found.worst.difference if found.worst else None) == worst


def test_tolerances_are_numbers_of_any_width() -> None:
    a = np.ones(4, np.float32)
    kinds: list[Any] = [np.float16, np.float32, np.longdouble, np.uint8]
    for kind in kinds:
        found = compare_values(a, a + 2, atol=kind(1), rtol=kind(1))
        assert (found.differing, compare_values(a, a + 2, atol=kind(1)).differing) == (0, 4)


def test_small_types_are_compared_as_numbers() -> None:
    x = np.array([[1, -2, 3, 7]], ml_dtypes.int4)
    found = compare_values(reorder.reorder(x, "ab"), np.array([[1, -2, 3, 6]], np.int8))
    assert (found.differing, found.first[0].a, found.first[0].byte_a) == (1, 7, 1)
    assert isinstance(found.first[0].a, int)
    assert compare_values(np.array([True, False]), np.array([1, 0], np.int8)).is_equal


def test_padding_is_compared_where_there_is_any() -> None:
    desc = memory_desc((1, 3, 2, 2), "f32", "nChw8c")
    clean, dirty, other = (Memory(desc) for _ in range(3))
    dirty.data[4 * 5] = other.data[4 * 6] = 1
    found = compare_values(clean, dirty)
    assert (found.is_equal, found.padding, found.padding_differs) == (True, (0, 1), True)
    found = compare_values(other, dirty)
    assert (found.padding, found.padding_differs) == ((1, 1), True)
    assert not compare_values(dirty, dirty).padding_differs
    plain = np.zeros((1, 3, 2, 2), np.float32)
    assert compare_values(plain, clean).padding_differs is False
    assert compare_values(plain, dirty).padding_differs is True


def test_the_string_of_a_comparison_is_one_line() -> None:
    x = np.zeros((2, 3), np.float32)
    clean, dirty = (Memory(memory_desc((2, 3), "f32", "aB4b"), zero_pad=False) for _ in range(2))
    dirty.data[12:16] = 1
    assert repr(compare_values(x, x)) == "<ValueComparison of (2, 3): none differs>"
    assert repr(compare_values(clean, dirty)) == (
        "<ValueComparison of (2, 3): none differs; the padding differs>"
    )
    x[1] = 2, 5, nan
    assert repr(compare_values(clean, x)) == (
        "<ValueComparison of (2, 3): 3 of 6 differ, worst (1, 2): 0.0 and nan>"
    )


def test_no_elements_do_not_differ() -> None:
    assert compare_values(np.zeros((2, 0)), np.zeros((2, 0), np.int8)).is_equal


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f8_e4m3", "f8_e5m2", "f4_e2m1"])
def test_values_rounded_to_a_coarser_type_are_half_a_step_of_it_away(dtype: str) -> None:
    x = np.random.default_rng(0).uniform(-4, 4, (40, 17)).astype(np.float32)
    rounded = reorder.reorder(x, "Ab16a", dtype=dtype)
    for pair in ((x, rounded), (rounded, x)):
        assert 0.4 < compare_values(*pair).max_ulp <= 0.5
        assert compare_values(*pair, resolution=True).is_equal
    moved = rounded.numpy().astype(np.float32) * np.float32(2.0)
    assert not compare_values(moved, rounded, resolution=True).is_equal


def test_the_step_is_that_of_the_type_at_the_value() -> None:
    for a in (np.float32(1.0), np.float16(1000.0), np.float16(0.0), np.float16(3e-7)):
        step = float(np.spacing(a))
        x, y = np.array([[a]]), np.array([[a + step]])
        assert compare_values(x, y.astype(a.dtype)).max_ulp == 1.0
        assert compare_values(x, y, resolution=True).is_equal
        assert not compare_values(x, y + 1.5 * step, resolution=True).is_equal


def test_mean_error_and_cosine_leave_out_what_is_not_finite() -> None:
    a = np.array([3.0, 4.0, np.nan, 1.0, np.inf])
    b = np.array([4.0, 3.0, 7.0, np.inf, np.inf])
    found = compare_values(a, b)
    assert found.mean_error == 1.0
    assert found.cosine == pytest.approx(24 / 25)
    assert compare_values(a, -a).cosine == pytest.approx(-1.0)
    for scale in (1e200, 1e-200):
        assert compare_values(scale * a, scale * a).cosine == pytest.approx(1.0)
        assert compare_values(scale * a, -scale * a).cosine == pytest.approx(-1.0)
    assert compare_values(np.zeros(3), np.zeros(3)).cosine == 1.0
    assert compare_values(np.zeros(3), np.ones(3)).cosine == 0.0
    nothing = compare_values(a[2:3], b[2:3])
    assert all(np.isnan([nothing.max_ulp, nothing.mean_error, nothing.cosine]))


def test_amounts_of_many_elements_are_those_of_all() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((3, 700_001), np.float32)
    b = a + rng.standard_normal(a.shape, np.float32) / 100
    found = compare_values(a, b)
    wide = [each.astype(np.float64).reshape(-1) for each in (a, b)]
    assert found.mean_error == pytest.approx(np.abs(wide[0] - wide[1]).mean())
    lengths = np.linalg.norm(wide[0]) * np.linalg.norm(wide[1])
    assert found.cosine == pytest.approx(wide[0] @ wide[1] / lengths)
    changed = a.copy()
    changed[0, 1] += 1
    changed[2, -1] += 2
    found = compare_values(a, changed, limit=1)
    assert (found.differing, [each.at for each in found.first]) == (2, [(0, 1)])
    assert found.worst is not None
    assert found.worst.at == (2, 700_000)
