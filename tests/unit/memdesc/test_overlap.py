from itertools import permutations

import pytest

from memdesc.diophantine import Term, solve
from memdesc.layout import layout_by_strides
from memdesc.overlap import check_overlap
from tests.work import count_calls


def overlap(dims: tuple[int, ...], strides: tuple[int, ...]) -> None:
    check_overlap(layout_by_strides(dims, strides, offset0=10**6))


@pytest.mark.parametrize(
    ("dims", "strides"),
    [((4, 5, 6), (30, 6, 1)), ((4, 5, 6), (31, 6, 1)), ((4, 6), (-7, 1)), ((2, 3, 2), (2, 4, 1))],
)
def test_strides_that_nest_need_no_search(dims: tuple[int, ...], strides: tuple[int, ...]) -> None:
    layout = layout_by_strides(dims, strides, offset0=10**6)
    # the least search makes 30 calls, and one of three loops 80
    assert count_calls(lambda: check_overlap(layout)) < 25


# The search itself


@pytest.mark.parametrize("order", [*permutations((1, -(10**6), 10**12))])
def test_strides_that_nest_are_solved_however_large_their_extents(order: tuple[int, ...]) -> None:
    terms = [Term(stride, 0, 10**6 - 1) for stride in order]
    values = {1: 999_999, -(10**6): 123_456, 10**12: 7}
    target = sum(stride * value for stride, value in values.items())
    assert solve(terms, target) == tuple(values[stride] for stride in order)


def test_values_are_skipped_if_the_smaller_strides_cannot_add_the_rest() -> None:
    # 15,000 values of the first are in range, and one leaves a multiple of 15,000
    terms = [Term(30_001, 0, 14_999), Term(30_000, 0, 10**6), Term(15_000, 0, 2)]
    assert solve(terms, 30_001 * 7 + 30_000 * 50_000) == (7, 50_000, 0)
