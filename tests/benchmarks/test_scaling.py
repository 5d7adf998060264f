"""The tool that times reorders on several numbers of threads, on a case too small to measure."""

from __future__ import annotations

from tests.benchmarks.cases import parse_cases
from tests.benchmarks.scaling import Row, measure


def test_each_number_of_threads_is_timed() -> None:
    (case,) = parse_cases(["--dtag=aBx8b", "1x3x4x5"])
    row = measure(case, (1, 2), rounds=1)
    assert list(row.speeds) == [1, 2]
    assert all(speed > 0 for speed in row.speeds.values())


def test_the_loss_is_relative_to_the_best_of_fewer_threads() -> None:
    (case,) = parse_cases(["1x1"])
    assert Row(case, {1: 10.0, 2: 20.0, 4: 15.0, 8: 18.0}).loss == 0.25
    assert Row(case, {1: 10.0, 2: 10.0}).loss == 0
