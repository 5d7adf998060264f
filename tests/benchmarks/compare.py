"""Time two checkouts of this project in turn, over the cases of the benchmark set.

    python -m tests.benchmarks.compare OLD NEW [--python-old ...] [--python-new ...]
        [--threads 1,2] [--place 16] [--seconds 0.15] [--cases FILE ...] [--gate] [--json FILE]

Each checkout has its own process, and its own Python where one is given. A case is prepared in
both; then they run in short slices in alternating order: old new, new old, ... A ratio is old over
new, above 1 where new is faster. `ratio` is that of the fastest slices, which other processes of a
busy machine disturb least; `median` is that of neighbouring slices. A case that is more than 10 %
slower by both is measured again in new processes, and counts only if it is slower again.

With `--gate` OLD is measured against itself too, twice. The exit code is 1 if NEW is slower beyond
that: by 1 % of the geometric mean more than OLD differs from itself, or in more cases, twice.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from memdesc import MemoryDesc
from reorder.bench.cases import Case
from tests.benchmarks.checkout import Checkout, Worker
from tests.benchmarks.report import geometric_mean, percentile
from tests.benchmarks.turns import CASES, in_turns, listed_cases

# A slice lasts about so long, after calls that fill the caches and wake the threads.
_SLICE_SECONDS = 5e-3
_WARM_SECONDS = 1e-3
# Slower than that is measured again.
_SLOWER = 1 / 1.1
# What the gate allows beyond the spread of the same code.
_ALLOWED = 0.01
# How often that is measured.
_TIMES_SAME = 2
_WORST_LINES = 15


class Timing(NamedTuple):
    """One case on both checkouts: seconds of a call, and old over new."""

    name: str
    threads: int
    nbytes: int
    old_seconds: float
    new_seconds: float
    ratio: float
    median: float

    @property
    def is_slower(self) -> bool:
        """Whether the new checkout is slower by both ratios."""
        return max(self.ratio, self.median) < _SLOWER


class Comparison(NamedTuple):
    """All cases, the re-measured slow ones, and the failures."""

    timings: list[Timing]
    again: dict[str, Timing]
    failed: list[str]

    @property
    def slower(self) -> list[tuple[Timing, Timing]]:
        """Cases that were slower in both runs."""
        pairs = [(first, self.again.get(_key(first))) for first in self.timings]
        return [
            (first, second) for first, second in pairs if second is not None and second.is_slower
        ]


def is_worse(found: Comparison, same: Sequence[Comparison]) -> bool:
    """Whether a comparison is slower than the old checkout was against itself each time."""
    mean, *spreads = (
        geometric_mean(timing.ratio for timing in each.timings) for each in (found, *same)
    )
    least = min(min(spread, 1 / spread) for spread in spreads)
    return mean < least - _ALLOWED or len(found.slower) > max(len(each.slower) for each in same)


def compare_cases(
    checkouts: tuple[Checkout, Checkout],
    cases: Sequence[Case],
    threads: int,
    place: int,
    seconds: float,
    failed: list[str],
) -> Iterator[Timing]:
    """Time cases on both checkouts in turn, in a process each; `seconds` for each case and side.

    `failed` gets a line for each case that one of them cannot prepare.
    """
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(checkout)) for checkout in checkouts]
        for worker in workers:
            worker.check_origin()
        for case in cases:
            request = _to_json(case)
            try:
                once = max(
                    worker.ask(prepare=request, threads=threads, place=place) for worker in workers
                )
            except ValueError as error:
                failed.append(f"{case.name}, {threads} threads: {error}")
                continue
            timers = [partial(_slice, worker, round(_WARM_SECONDS / once)) for worker in workers]
            old, new = in_turns(timers, seconds, slice_seconds=_SLICE_SECONDS, once=once)
            yield Timing(
                case.name,
                threads,
                case.nbytes,
                min(old),
                min(new),
                min(old) / min(new),
                median(before / after for before, after in zip(old, new, strict=True)),
            )


def _slice(worker: Worker, warm: int, calls: int) -> float:
    return worker.ask(calls=calls, warm=min(warm, calls))


def _to_json(case: Case) -> dict[str, Any]:
    """Return what a worker of any version reads."""
    attr: dict[str, Any] = {}
    if case.attr is not None:
        attr["beta"] = case.attr.beta
        for parameter in case.attr.parameters:
            attr[parameter.role] = parameter.values.tolist()
            attr[f"{parameter.role}_mask"] = parameter.mask
            if parameter.groups:
                attr[f"{parameter.role}_groups"] = parameter.groups
    return {"src": _fields(case.src), "dst": _fields(case.dst), "attr": attr}


def _fields(desc: MemoryDesc) -> dict[str, Any]:
    names = ("dims", "strides", "inner_blks", "inner_idxs", "nbytes")
    return {"dtype": str(desc.dtype), **{name: getattr(desc, name) for name in names}}


def _key(timing: Timing) -> str:
    return f"{timing.name} {timing.threads}"


def _measure(
    checkouts: tuple[Checkout, Checkout],
    cases: list[Case],
    threads: list[int],
    place: int,
    seconds: float,
) -> Comparison:
    """Measure all cases, and those that were slower once more; progress goes to stderr."""
    found = Comparison([], {}, [])
    for count in threads:
        for timing in compare_cases(checkouts, cases, count, place, seconds, found.failed):
            found.timings.append(timing)
            sys.stderr.write(_line(timing) + "\n")
        slow = {
            timing.name for timing in found.timings if timing.threads == count and timing.is_slower
        }
        rest = [case for case in cases if case.name in slow]
        retried = compare_cases(checkouts, rest, count, place, 2 * seconds, []) if rest else ()
        for timing in retried:
            found.again[_key(timing)] = timing
    return found


def _line(timing: Timing) -> str:
    times = f"{timing.old_seconds * 1e6:11.2f} {timing.new_seconds * 1e6:11.2f} us"
    return f"{timing.name:64} {timing.threads}t {times}  {timing.ratio:.3f} {timing.median:.3f}"


def _report(found: Comparison) -> Iterator[str]:
    """Lay the comparison out; ratios are old over new, above 1 where new is faster."""
    for threads in sorted({timing.threads for timing in found.timings}):
        chosen = [timing for timing in found.timings if timing.threads == threads]
        ratios = [timing.ratio for timing in chosen]
        yield (
            f"{threads} threads, {len(chosen)} cases: geometric mean {geometric_mean(ratios):.3f} "
            f"(of medians {geometric_mean(timing.median for timing in chosen):.3f}), "
            f"5th percentile {percentile(ratios, 0.05):.3f}, least {min(ratios):.3f}"
        )
    yield "slowest beside old: case, threads, old, new, ratio of fastest, median ratio, again"
    for timing in sorted(found.timings, key=lambda timing: timing.ratio)[:_WORST_LINES]:
        again = found.again.get(_key(timing))
        yield f"  {_line(timing)}{f'  {again.ratio:.3f}' if again else ''}"
    yield f"more than 10 % slower in both runs: {len(found.slower)}"
    for first, second in found.slower:
        yield f"  {_line(first)}  {second.ratio:.3f}"
    for line in found.failed:
        yield f"failed: {line}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two checkouts, and print what differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", type=Path, help="the checkout that was before")
    parser.add_argument("new", type=Path, help="the checkout that is compared with it")
    parser.add_argument("--python-old", default=sys.executable, help="the Python of the old one")
    parser.add_argument("--python-new", default=sys.executable, help="the Python of the new one")
    parser.add_argument("--threads", default=f"1,{len(os.sched_getaffinity(0))}")
    parser.add_argument("--place", type=int, default=16, help="where dst starts in its line")
    parser.add_argument("--seconds", type=float, default=0.15, help="for each case and checkout")
    parser.add_argument("--cases", type=Path, nargs="+", default=CASES, metavar="FILE")
    parser.add_argument("--gate", action="store_true", help="fail if the new one is slower")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there")
    options = parser.parse_args(arguments)
    checkouts = (
        Checkout(options.old.resolve(), options.python_old),
        Checkout(options.new.resolve(), options.python_new),
    )
    counts = sorted({int(count) for count in options.threads.split(",")})
    cases = listed_cases(options.cases)
    found = _measure(checkouts, cases, counts, options.place, options.seconds)
    for line in _report(found):
        sys.stdout.write(line + "\n")
    if options.json:
        facts = {
            "cases": [timing._asdict() for timing in found.timings],
            "again": [timing._asdict() for timing in found.again.values()],
            "failed": found.failed,
        }
        options.json.write_text(json.dumps(facts, indent=1), encoding="utf-8")
    if not options.gate:
        return 0
    pair = checkouts[0], checkouts[0]
    same = [
        _measure(pair, cases, counts, options.place, options.seconds) for _ in range(_TIMES_SAME)
    ]
    for each in same:
        sys.stdout.write("old against itself\n")
        for line in _report(each):
            sys.stdout.write(line + "\n")
    return int(is_worse(found, same))


if __name__ == "__main__":
    sys.exit(main())
