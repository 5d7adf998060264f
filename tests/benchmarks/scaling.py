"""How reorders scale with threads: `python -m tests.benchmarks.scaling [FILE] [--threads LIST]`.

Prints a table in Markdown: GB/s, bytes read and written, on each number of threads. Every round
takes a sample of each number in turn, so that other load affects all equally; medians are shown.
The last column is the largest slowdown from adding threads.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import reorder
from tests.benchmarks.cases import read_cases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reorder.bench.cases import Case

_CASES = Path(__file__).parent / "extra" / "scaling.txt"
_SAMPLE_SECONDS = 4e-3
_MAX_CALLS = 1000


class Row(NamedTuple):
    """The speed of one case in GB/s, on each number of threads."""

    case: Case
    speeds: dict[int, float]

    @property
    def loss(self) -> float:
        """The largest slowdown from adding threads: 0.1 for 10 %."""
        losses, best = [0.0], 0.0
        for _, speed in sorted(self.speeds.items()):
            losses.append(1 - speed / best if best else 0.0)
            best = max(best, speed)
        return max(losses)


def measure(case: Case, threads: Sequence[int], rounds: int) -> Row:
    """Time one case on each number of threads."""
    src, dst = reorder.Memory(case.src), reorder.Memory(case.dst)
    # small values of every type, and no denormal floats
    src.data[...] = np.random.default_rng(0).integers(0, 63, src.nbytes, np.uint8)
    if case.src.has_padding:
        src = reorder.Memory(case.src, src.data)
    plan = reorder.plan_reorder(case.src, case.dst, case.attr)
    runs = {count: reorder.prepare(plan, threads=count) for count in threads}
    times: dict[int, list[float]] = {count: [] for count in threads}
    for _ in range(rounds):
        for count, run in runs.items():
            start = perf_counter()
            run(src.data, dst.data)  # wakes the threads
            once = max(perf_counter() - start, 1e-6)
            calls = max(3, min(_MAX_CALLS, round(_SAMPLE_SECONDS / once)))
            start = perf_counter()
            for _ in range(calls):
                run(src.data, dst.data)
            times[count].append((perf_counter() - start) / calls)
    return Row(case, {count: case.nbytes / median(times[count]) / 1e9 for count in threads})


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", default=str(_CASES), help="cases of benchdnn")
    parser.add_argument("--threads", default="1,2,4,8,16", help="a list, default %(default)s")
    parser.add_argument("--rounds", type=int, default=15, help="default %(default)s")
    return parser.parse_args()


def main() -> None:
    """Print the table."""
    options = _parse()
    threads = sorted({int(count) for count in options.threads.split(",")})
    lines = ["| case | MB | " + " | ".join(map(str, threads)) + " | slower by |"]
    lines.append("| --- |" + " ---: |" * (len(threads) + 2))
    for case in read_cases(options.file):
        row = measure(case, threads, options.rounds)
        speeds = " | ".join(f"{row.speeds[count]:.1f}" for count in threads)
        lines.append(f"| `{case.name}` | {case.src.nbytes / 1e6:.1f} | {speeds} | {row.loss:.0%} |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
