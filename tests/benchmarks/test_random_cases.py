"""Random cases are reproducible, and have the requested classes and sizes."""

import pytest

from memdesc import MemdescError
from tests.benchmarks.cases import parse_cases
from tests.benchmarks.libraries import dense_permutation
from tests.benchmarks.random_cases import (
    CLASSES,
    LARGEST_NBYTES,
    LEAST_NBYTES,
    MAX_CASES,
    random_words,
)


def test_equal_seeds_give_equal_cases_and_others_do_not() -> None:
    assert random_words(20, 7) == random_words(20, 7)
    assert random_words(20, 7) != random_words(20, 8)
    # a longer list begins with the shorter one
    assert random_words(30, 7)[: len(random_words(20, 7))] == random_words(20, 7)


def test_there_are_as_many_different_cases_as_asked_for_of_every_size() -> None:
    cases = list(parse_cases(random_words(200, 1)))
    assert len({case.name for case in cases}) == 200
    sizes = [case.nbytes for case in cases]
    assert min(sizes) >= LEAST_NBYTES
    assert max(sizes) <= LARGEST_NBYTES
    # as many below 4 MiB, in the middle of the range of powers of two, as above
    assert 60 < sum(size < 4 << 20 for size in sizes) < 140


@pytest.mark.parametrize("name", CLASSES)
def test_cases_are_of_their_class(name: str) -> None:
    for case in parse_cases(random_words(15, 2, [name])):
        converts = case.src.dtype != case.dst.dtype
        blocked = bool(case.src.inner_blks or case.dst.inner_blks)
        assert converts == (name == "conversion")
        if name in {"permutation", "outer-swap"}:
            assert dense_permutation(case) is not None
        if name in {"activation", "weight"}:
            assert blocked
        if name == "outer-swap":
            assert 64 <= case.src.dims[-1] * case.src.dtype.bits // 8 <= 512
            assert case.src.strides[-1] == case.dst.strides[-1] == 1


def test_what_cannot_be_drawn_is_refused() -> None:
    for count, classes, says in (
        (0, None, f"0 random cases: ask for 1 to {MAX_CASES}"),
        (MAX_CASES + 1, None, f"{MAX_CASES + 1} random cases: ask for 1 to {MAX_CASES}"),
        (1, ["weight", "rnn"], "no class 'rnn' of random cases; there are permutation"),
        (1, [], "no class an empty list"),
    ):
        with pytest.raises(MemdescError, match=says):
            random_words(count, 0, classes)
