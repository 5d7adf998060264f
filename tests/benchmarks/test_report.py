"""The summary of measurements."""

from statistics import median
from typing import Any

import pytest

from tests.benchmarks.report import (
    full_report,
    geometric_mean,
    percentile,
    summarise,
    summary_lines,
)


def test_percentiles_are_shown_of_many_cases_only() -> None:
    def shown(count: int) -> str:
        case = {
            "name": "one",
            "threads": 1,
            "nbytes": 1 << 20,
            "kernels": "run 32-bit",
            "seconds": 1e-3,
            "p90": 1e-3,
            "first_seconds": 1e-2,
            "memcpy": 0.5,
            "peers": {},
            "differs": [],
        }
        return "\n".join(summary_lines(full_report([case] * count, [])["summary"]))

    assert "geometric mean" not in shown(1)
    assert "geometric mean  median  least  slower in" in shown(2)
    assert "percentile" not in shown(19)
    assert "geometric mean  5th percentile  median  95th  least  slower in" in shown(20)


def test_the_summary_leaves_small_cases_out() -> None:
    def case(ratio: float, nbytes: int = 1 << 20) -> dict[str, Any]:
        return {"threads": 1, "nbytes": nbytes, "memcpy": 0.5, "peers": {"numpy": ratio}}

    rows = summarise([case(1.0), case(4.0), case(0.1, 1 << 10)])
    assert [(row["beside"], row["cases"], row["geomean"], row["least"]) for row in rows] == [
        ("memcpy", 2, 0.5, 0.5),
        ("numpy", 2, 2.0, 1.0),
    ]
    assert rows[1]["slower"] == 0


def test_means_and_percentiles() -> None:
    assert geometric_mean([1, 4]) == pytest.approx(2)
    assert percentile([5, 1, 3], 0) == 1
    assert percentile([5, 1, 3], 1) == 5
    assert percentile([], 0.5) != percentile([], 0.5)  # NaN


@pytest.mark.parametrize("ratios", [[0.61, 0.76], [5.3852], [8, 1, 3, 2, 7, 5, 4, 6], [3, 1, 2]])
def test_the_percentile_in_the_middle_is_the_median(ratios: list[float]) -> None:
    cases = [{"threads": 1, "nbytes": 1 << 20, "memcpy": each, "peers": {}} for each in ratios]
    (row,) = summarise(cases)
    assert percentile(ratios, 0.5) == row["p50"] == pytest.approx(median(ratios), rel=1e-15)
    assert row["least"] == min(ratios)  # not rounded: the table rounds once
