"""The summary of measurements."""

from statistics import median
from typing import Any

import pytest

from tests.benchmarks.report import geometric_mean, percentile, summarise, summary_lines


def _case(ratio: float, nbytes: int = 1 << 20) -> dict[str, Any]:
    return {"threads": 1, "nbytes": nbytes, "memcpy": 0.5, "peers": {"numpy": ratio}}


def test_the_summary_leaves_small_cases_out() -> None:
    rows = summarise([_case(1.0), _case(4.0), _case(0.1, 1 << 10)])
    assert [(row["beside"], row["cases"], row["geomean"], row["least"]) for row in rows] == [
        ("memcpy", 2, 0.5, 0.5),
        ("memcpy, up to 1 MiB", 2, 0.5, 0.5),
        ("numpy", 2, 2.0, 1.0),
    ]
    assert rows[-1]["slower"] == 0
    assert summary_lines(rows)[-1].split() == [
        "1",
        "numpy",
        "2",
        *["2.00", "1.15", "2.50", "3.85", "1.00", "0"],
    ]
    assert summary_lines(summarise([_case(1.0)])) == []


def test_means_and_percentiles() -> None:
    assert geometric_mean([1, 4]) == pytest.approx(2)
    assert percentile([5, 1, 3], 0) == 1
    assert percentile([5, 1, 3], 1) == 5
    assert percentile([], 0.5) != percentile([], 0.5)  # NaN
    for ratios in ([0.61, 0.76], [5.3852], [8, 1, 3, 2, 7, 5, 4, 6], [3, 1, 2]):
        row = summarise([_case(each) for each in ratios])[-1]
        assert percentile(ratios, 0.5) == row["p50"] == pytest.approx(median(ratios), rel=1e-15)
        assert row["least"] == min(ratios)  # not rounded: the table rounds once
