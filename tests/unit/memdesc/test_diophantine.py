from __future__ import annotations

from itertools import permutations

import pytest

from memdesc.diophantine import SearchLimitError, Term, solve


def test_without_terms_the_only_sum_is_zero() -> None:
    assert (solve([], 0), solve([], 0, trivial=False), solve([], 1)) == ((), None, None)


def test_work_is_bounded() -> None:
    with pytest.raises(SearchLimitError):
        solve([Term(10**6 + 3, 0, 10**5), Term(10**6 + 5, 0, 10**5)], 10**11 + 7)


@pytest.mark.parametrize("order", [*permutations((1, -10, 100))])
def test_strides_that_nest_take_one_value_of_each_term(
    order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = [Term(stride, 0, 9) for stride in order]
    monkeypatch.setattr("memdesc.diophantine._BUDGET", 3)
    for target in range(-90, 910):
        found = solve(terms, target)
        assert found is not None
        assert sum(term.stride * value for term, value in zip(terms, found, strict=True)) == target
    monkeypatch.setattr("memdesc.diophantine._BUDGET", 2)
    with pytest.raises(SearchLimitError):
        solve(terms, 0)


def test_values_are_skipped_if_the_smaller_strides_cannot_add_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 500 values of the first are in range, and one leaves a multiple of 500
    monkeypatch.setattr("memdesc.diophantine._BUDGET", 503)
    terms = [Term(1001, 0, 499), Term(1000, 0, 10**6), Term(500, 0, 2)]
    assert solve(terms, 1001 * 7 + 1000 * 5000) == (7, 5000, 0)
