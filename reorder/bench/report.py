"""The summary of measurements, and how it is printed."""

from __future__ import annotations

from math import exp, log
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "LEAST_NBYTES",
    "case_lines",
    "geometric_mean",
    "is_jit",
    "percentile",
    "summarise",
    "worst_cases",
]

# Cases below are measured by the time of a call, not by bytes a second.
LEAST_NBYTES = 1 << 16
# Percentiles of the ratios in the summary.
_PERCENTILES = (5, 25, 50, 75, 95)
# Ratios from here on are printed without decimals.
_THREE_DIGITS = 100


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean, NaN of nothing."""
    logs = [log(ratio) for ratio in ratios]
    return exp(sum(logs) / len(logs)) if logs else float("nan")


def percentile(ratios: Sequence[float], part: float) -> float:
    """Return the value below which `part` (0 to 1) of the ratios lie."""
    ranked = sorted(ratios)
    return ranked[min(len(ranked) - 1, int(part * len(ranked)))] if ranked else float("nan")


def is_jit(detail: str) -> bool:
    """Whether oneDNN's name of an implementation says that its code is generated, not reference."""
    return "jit" in detail or detail.startswith("brgemm")


def summarise(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each number of threads and each peer, the distribution of the ratios.

    Cases of less than 64 KiB are left out. oneDNN counts apart where it generates code and
    where it does not.
    """
    rows = []
    for threads in sorted({case["threads"] for case in cases}):
        chosen = [
            case for case in cases if case["threads"] == threads and case["nbytes"] >= LEAST_NBYTES
        ]
        groups: dict[str, list[float]] = {"memcpy": [case["memcpy"] for case in chosen]}
        for case in chosen:
            for name, ratio in case["peers"].items():
                detail = case["details"].get(name, "")
                kind = (" generated" if is_jit(detail) else " reference") if detail else ""
                groups.setdefault(f"{name}{kind}", []).append(ratio)
        rows += [
            {
                "threads": threads,
                "beside": name,
                "cases": len(ratios),
                "geomean": round(geometric_mean(ratios), 3),
                **{f"p{part}": round(percentile(ratios, part / 100), 3) for part in _PERCENTILES},
                "least": round(min(ratios), 3),
                "slower": sum(ratio < 1 for ratio in ratios),
            }
            for name, ratios in groups.items()
            if ratios
        ]
    return rows


def worst_cases(cases: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Return the cases that are slowest beside memcpy, and beside the fastest peer.

    `count` of each, for each number of threads, the slowest first; ratios below 1 are slower.
    """
    rows = []
    for threads in sorted({case["threads"] for case in cases}):
        chosen = [case for case in cases if case["threads"] == threads]
        for kind in ("memcpy", "peers"):
            found = []
            for case in chosen:
                ratios = {"memcpy": case["memcpy"]} if kind == "memcpy" else case["peers"]
                if ratios:
                    beside = min(ratios, key=lambda name: ratios[name])
                    found.append((ratios[beside], case["name"], beside))
            rows += [
                {"threads": threads, "case": name, "beside": beside, "ratio": round(ratio, 3)}
                for ratio, name, beside in sorted(found)[:count]
            ]
    return rows


def case_lines(case: dict[str, Any]) -> list[str]:
    """Return one measurement as lines."""
    ratios = "  ".join(f"{name} {_times(ratio)}" for name, ratio in case["peers"].items())
    speed = case["nbytes"] / case["seconds"] / 1e9
    duration = _duration(case["seconds"])
    line = f"{case['name']:56} {case['threads']}t {duration:>9} {speed:7.2f} GB/s"
    kernels = case["kernels"] or "nothing to move"
    lines = [f"{line}  memcpy {_times(case['memcpy'])}  {ratios}  ({kernels})"]
    lines.append(f"    first call {_duration(case['first_seconds'])}")
    lines.append(f"    nine in ten calls within {case['p90'] / case['seconds']:.2f} of the median")
    if case["differs"]:
        lines.append(f"    other bits: {', '.join(case['differs'])}")
    return lines


def _times(ratio: float) -> str:
    return f"x{ratio:.2f}" if ratio < _THREE_DIGITS else f"x{ratio:.0f}"


def _duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.2f} {unit}"
    return f"{seconds * 1e6:.2f} us"
