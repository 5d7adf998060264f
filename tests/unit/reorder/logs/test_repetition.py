"""Where a log repeats itself."""

from hypothesis import given
from hypothesis import strategies as st

from reorder.logs.repetition import Repetition, find_runs, find_stretch


def _shortest_runs(keys: list[int]) -> Repetition | None:
    stretch = find_stretch(keys)
    return stretch and stretch.repetition()


def test_the_repetition_that_covers_most_is_found() -> None:
    for keys, found in (
        ([], None),
        ([1, 2, 3, 1, 2, 4], None),
        ([1, 1], (0, 1, 2)),
        # the first run differs, and the last one is cut short
        ([7, 1, 7, 2, 1, 2, 3, 1, 2, 3, 1, 2], (4, 3, 2)),
        # equal layers in each run, or each twice
        ([1, 1, 2] * 3, (0, 3, 3)),
        ([1, 1, 2, 2] * 3, (0, 4, 3)),
    ):
        assert _shortest_runs(keys) == found, keys


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(1, 4))
def test_every_run_of_a_repetition_equals_the_first(keys: list[int], given: int) -> None:
    for found in filter(None, (_shortest_runs(keys), find_runs(keys, 2 * given))):
        start, length, runs = found
        assert runs > 1
        slices = [keys[start + k * length : start + (k + 1) * length] for k in range(runs)]
        assert all(each == slices[0] and len(each) == length for each in slices)


@given(
    st.lists(st.integers(0, 4), max_size=5),
    st.lists(st.integers(0, 4), min_size=1, max_size=12),
    st.integers(3, 5),
)
def test_runs_after_something_else_are_found(before: list[int], run: list[int], runs: int) -> None:
    found = find_stretch(before + run * runs)
    assert found is not None
    assert found.covered >= len(run) * runs
