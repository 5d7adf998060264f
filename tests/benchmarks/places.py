"""How much speed depends on where dst starts within its cache line.

    python -m tests.benchmarks.places [FILE ...] [--threads 1,16] [--places 0,16,odd] [--src 16]
        [--seconds 0.3] [--json FILE]

Large arrays of numpy start 16 bytes into a line, so src does. A case runs in turn at each place, in
the same two buffers, because two buffers of one size may differ by a third for other reasons.
T(0) / T(p) is the time of a call where dst starts a line, divided by that where it starts p bytes
into one: the median over neighbouring slices. `odd` is nine times the size of an element, and 64 is
the start of the next line, so its ratios show how far equal calls differ. The table has a row for
all cases and one for each range of sizes (the mean of the bytes read and written).
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import reorder
from reorder.bench.cases import Case
from reorder.bench.peers import memcpy
from reorder.cpu.machine import LINE_NBYTES
from tests.benchmarks.report import SIZES, geometric_mean, has_size, percentile
from tests.benchmarks.turns import CASES, in_turns, listed_cases, source_of, timer, zeros_at

# an odd multiple of the size of an element, whatever that is
_ODD, _ODD_ELEMENTS = "odd", 9
_SLOW = 0.85


class Timing(NamedTuple):
    """A case on some threads: seconds where dst starts a line, and T(0) / T(p) for each place.

    `memcpy` is the time of a copy of as many bytes on as many threads, divided by these seconds.
    """

    name: str
    threads: int
    nbytes: int
    seconds: float
    memcpy: float
    ratios: dict[str, float]


def measure(
    case: Case, threads: int, places: Sequence[str], src_place: int, seconds: float
) -> Timing:
    """Time one case at all places, about `seconds` at each."""
    src = source_of(case, src_place)
    dst = zeros_at(0, case.dst.nbytes + LINE_NBYTES)
    run = reorder.prepare(reorder.plan_reorder(case.src, case.dst, case.attr), threads=threads)
    size = max(1, case.dst.dtype.bits // 8)
    starts = [
        _ODD_ELEMENTS * size % LINE_NBYTES if place == _ODD else int(place) // size * size
        for place in ("0", *places)
    ]
    targets = [dst[start : start + case.dst.nbytes] for start in starts]
    half = (case.src.nbytes + case.dst.nbytes) // 2
    spare = zeros_at(0, 2 * half) if case.src.nbytes != case.dst.nbytes else None
    pair = (src, targets[0]) if spare is None else (spare[:half], spare[half:])
    calls = [timer(partial(run, src, target)) for target in targets]
    times = in_turns(calls, seconds)
    # apart, since it leaves other data in the caches, and always to the same one of the places
    aligned, copies = in_turns([calls[0], timer(memcpy(pair, threads).call)], seconds / 2)
    ratios = {
        place: median(zero / one for zero, one in zip(times[0], own, strict=True))
        for place, own in zip(places, times[1:], strict=True)
    }
    copied = median(copy / own for copy, own in zip(copies, aligned, strict=True))
    return Timing(case.name, threads, case.nbytes, min(times[0]), copied, ratios)


def report(timings: Sequence[Timing], places: Sequence[str]) -> Iterator[str]:
    """Tabulate the ratios by number of threads, place and range of sizes; then the slow cases."""
    yield "| threads | place | size | cases | geometric mean | 5th percentile | least | < 0.85 |"
    yield "| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |"
    counts = sorted({timing.threads for timing in timings})
    for threads, place, size in product(counts, places, ("all", *SIZES)):
        ratios = [
            timing.ratios[place]
            for timing in timings
            if timing.threads == threads and (size == "all" or has_size(timing.nbytes, size))
        ]
        if ratios:
            low = sum(ratio < _SLOW for ratio in ratios)
            yield (
                f"| {threads} | {place} | {size} | {len(ratios)} | {geometric_mean(ratios):.3f} "
                f"| {percentile(ratios, 0.05):.2f} | {min(ratios):.2f} | {low} |"
            )
    for timing in sorted(timings, key=lambda timing: min(timing.ratios.values())):
        if min(timing.ratios.values()) < _SLOW:
            yield _line(timing)


def _line(timing: Timing) -> str:
    ratios = "  ".join(f"{place} {ratio:.2f}" for place, ratio in timing.ratios.items())
    speed = f"{timing.nbytes / timing.seconds / 1e9:6.1f} GB/s  of memcpy {timing.memcpy:.2f}"
    return f"{timing.name:60} {timing.threads:2} threads {speed}  {ratios}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", default=CASES, help="cases of benchdnn")
    parser.add_argument("--threads", default="1", help="a list, default %(default)s")
    parser.add_argument("--places", default=f"16,{_ODD}", help="a list, default %(default)s")
    parser.add_argument("--src", type=int, default=16, help="where src starts, default %(default)s")
    parser.add_argument("--seconds", type=float, default=0.1, help="for each case and place")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there")
    options = parser.parse_args(arguments)
    places = options.places.split(",")
    timings = []
    for threads in sorted({int(count) for count in options.threads.split(",")}):
        for case in listed_cases(options.files):
            timing = measure(case, threads, places, options.src, options.seconds)
            timings.append(timing)
            sys.stderr.write(_line(timing) + "\n")
    for line in report(timings, places):
        sys.stdout.write(line + "\n")
    if options.json:
        rows: list[dict[str, Any]] = [timing._asdict() for timing in timings]
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
