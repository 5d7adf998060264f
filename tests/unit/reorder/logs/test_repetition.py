"""Where a log repeats itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reorder.logs.repetition import Repetition, find_repetition


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ([], None),
        ([1], None),
        ([1, 2, 3], None),
        ([1, 2, 3, 1, 2, 4], None),
        ([1, 1], Repetition(0, 1, 2)),
        ([9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 8], Repetition(1, 3, 3)),
        # the first run differs, and the last one is cut short
        ([7, 1, 7, 2, 1, 2, 3, 1, 2, 3, 1, 2], Repetition(4, 3, 2)),
        # equal layers in each run
        ([1, 1, 2, 1, 1, 2, 1, 1, 2], Repetition(0, 3, 3)),
    ],
)
def test_the_repetition_that_covers_most_is_found(
    keys: list[int], found: Repetition | None
) -> None:
    assert find_repetition(keys) == found


@given(st.lists(st.integers(0, 4), max_size=40))
def test_every_run_of_a_repetition_equals_the_first(keys: list[int]) -> None:
    found = find_repetition(keys)
    if found is not None:
        start, length, runs = found
        assert runs > 1
        slices = [keys[start + k * length : start + (k + 1) * length] for k in range(runs)]
        assert all(each == slices[0] and len(each) == length for each in slices)


@given(
    st.lists(st.integers(0, 4), max_size=5),
    st.lists(st.integers(5, 9), min_size=1, max_size=6, unique=True),
    st.integers(3, 5),
)
def test_runs_behind_something_else_are_found(before: list[int], run: list[int], runs: int) -> None:
    found = find_repetition(before + run * runs)
    assert found is not None
    assert found.length * found.runs >= min(len(run) * runs, 2 * len(before))
