"""The report of a benchmark: the machine, each case, and a summary of the ratios."""

import platform
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from reorder.cli.command import table
from reorder.system import count_cores

# In smaller cases the overhead of a call matters, not bytes per second.
LEAST_NBYTES = 1 << 16
_MIB = 1 << 20
# Ranges of the mean of the bytes read and written: most stay in a core's cache, in shared ones, or
# in none.
SIZES = {
    "up to 1 MiB": (0, _MIB),
    "1 to 4 MiB": (_MIB, 4 * _MIB),
    "more than 4 MiB": (4 * _MIB, sys.maxsize),
}
# Percentiles of the ratios in the summary.
_PERCENTILES = (5, 25, 50, 75, 95)
_VECTORS = {"avx512bw": 512, "avx2": 256, "sse2": 128}


def full_report(
    cases: list[dict[str, Any]], kernels: list[dict[str, Any]], packages: Iterable[str] = ()
) -> dict[str, Any]:
    """Add the machine and a summary to measurements and compiled kernels.

    `packages` are reported with their versions, like memdesc, numpy, numba, llvmlite and torch.
    """
    return {
        "machine": _machine_facts(packages),
        "cases": cases,
        "kernels": kernels,
        "summary": summarise(cases),
    }


def _machine_facts(packages: Iterable[str]) -> dict[str, str]:
    """Return the machine and the versions that the figures apply to."""
    facts = {
        "machine": platform.machine(),
        "cores": str(count_cores()),
        "Python": platform.python_version(),
    }
    with suppress(OSError):
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        lines = (line.partition(":") for line in info.splitlines())
        known = {name.strip(): value.strip() for name, _, value in lines}
        flags = known.get("flags", "").split()
        bits = next((bits for flag, bits in _VECTORS.items() if flag in flags), None)
        facts |= {
            "processor": known.get("model name", "unknown"),
            "vectors": f"{bits} bits" if bits else "unknown",
        }
    for package in ("memdesc", "numpy", "numba", "llvmlite", "torch", *packages):
        with suppress(PackageNotFoundError):
            facts[package] = version(package)
    return facts


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean; NaN if there are no ratios."""
    logs = [log(ratio) for ratio in ratios]
    return exp(sum(logs) / len(logs)) if logs else float("nan")


def percentile(ratios: Sequence[float], part: float) -> float:
    """Return the value below which a share `part` (0 to 1) of the ratios are; NaN without ratios.

    It is interpolated between two ratios, so `part` 0.5 gives the median.
    """
    return float(np.quantile(ratios, part)) if ratios else float("nan")


def has_size(nbytes: int, size: str) -> bool:
    """Return whether this many bytes, read plus written, are in one of `SIZES`."""
    least, most = SIZES[size]
    return least < nbytes / 2 <= most


def summarise(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the distribution of the ratios for each number of threads and each peer.

    Cases of less than 64 KiB are left out.
    """
    rows = []
    for threads in sorted({case["threads"] for case in cases}):
        chosen = [
            case for case in cases if case["threads"] == threads and case["nbytes"] >= LEAST_NBYTES
        ]
        groups: dict[str, list[float]] = {"memcpy": [case["memcpy"] for case in chosen]}
        for size in SIZES:
            of_size = [case["memcpy"] for case in chosen if has_size(case["nbytes"], size)]
            groups[f"memcpy, {size}"] = of_size
        for case in chosen:
            for name, ratio in case["peers"].items():
                groups.setdefault(name, []).append(ratio)
        rows += [
            {
                "threads": threads,
                "beside": name,
                "cases": len(ratios),
                "geomean": geometric_mean(ratios),
                **{f"p{part}": percentile(ratios, part / 100) for part in _PERCENTILES},
                "least": min(ratios),
                "slower": sum(ratio < 1 for ratio in ratios),
            }
            for name, ratios in groups.items()
            if ratios
        ]
    return rows


# The keys of the summary and their heads.
_SUMMARY = {
    "threads": "threads",
    "beside": "times faster than",
    "cases": "cases",
    "geomean": "geometric mean",
    "p5": "5th percentile",
    "p50": "median",
    "p95": "95th",
    "least": "least",
    "slower": "slower in",
}


def summary_lines(summary: list[dict[str, Any]]) -> list[str]:
    """Return a summary as a table; none if it has a single case."""
    if max((row["cases"] for row in summary), default=0) <= 1:
        return []
    rows = [tuple(_cell(row[key]) for key in _SUMMARY) for row in summary]
    numbers = {0, *range(2, len(_SUMMARY))}
    return ["", "cases of 64 KiB and more:", *table([tuple(_SUMMARY.values()), *rows], numbers)]


def _cell(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
