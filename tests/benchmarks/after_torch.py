"""Time reorders right after an operation of torch, compared with torch's own permute.

    python -m tests.benchmarks.after_torch [--threads 16] [--seconds 0.5]

Right after an operation the threads of torch's OpenMP runtime are awake. The columns are ours on
these threads (`MEMDESC_OPENMP=1`), ours on threads of its own, and torch's `permute` and
`copy_`. Each takes turns with an addition that writes src; medians count. The two of ours need a
process each; both time torch, and the faster of the two counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from importlib import import_module
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import reorder
from memdesc import memory_desc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_WARM_CALLS, _MIN_CALLS = 20, 20


class _Move(NamedTuple):
    """Dims, the axes of dst in memory order, and the tags of both."""

    dims: tuple[int, ...]
    axes: tuple[int, ...]
    tags: tuple[str, str]


_MOVES = (
    _Move((8, 64, 56, 56), (0, 2, 3, 1), ("abcd", "acdb")),
    _Move((64, 8, 50, 64), (0, 2, 1, 3), ("abcd", "acbd")),
    _Move((4096, 4096), (1, 0), ("ab", "ba")),
)


def _time(operation: Callable[[], object], call: Callable[[], object], seconds: float) -> float:
    """Return the median seconds of a call right after an operation."""
    times: list[float] = []
    end = perf_counter() + seconds
    while len(times) < _MIN_CALLS + _WARM_CALLS or perf_counter() < end:
        operation()
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return median(times[_WARM_CALLS:])


def _measure(move: _Move, threads: int, seconds: float) -> tuple[float, float]:
    """Return the seconds of our reorder and of torch's permute."""
    torch: Any = import_module("torch")
    torch.set_num_threads(threads)
    given = torch.ones(move.dims)
    src = torch.empty(move.dims)
    expected = torch.empty([move.dims[axis] for axis in move.axes])
    found = torch.empty_like(expected)
    first, second = (memory_desc(move.dims, "f32", tag) for tag in move.tags)
    run = reorder.prepare(reorder.plan_reorder(first, second), threads=threads)
    buffers = src.numpy().reshape(-1), found.numpy().reshape(-1)

    def add() -> None:
        torch.add(given, given, out=src)

    def ours() -> None:
        run(*buffers)

    def theirs() -> None:
        expected.copy_(src.permute(move.axes))

    times = _time(add, ours, seconds), _time(add, theirs, seconds)
    if not torch.equal(found, expected):
        msg = f"{move.dims} is not what torch's permute gives"
        raise RuntimeError(msg)
    return times


def _in_process(options: argparse.Namespace, openmp: str) -> list[list[float]]:
    """Return the times of all moves in a process that does or does not use threads of OpenMP."""
    command = [sys.executable, "-m", "tests.benchmarks.after_torch", "--json"]
    command += [f"--threads={options.threads}", f"--seconds={options.seconds}"]
    environment = {**os.environ, "MEMDESC_OPENMP": openmp}
    printed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    found: list[list[float]] = json.loads(printed)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of the moves."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=0.5, help="for each move and library")
    parser.add_argument("--json", action="store_true", help="measure this process only")
    options = parser.parse_args(arguments)
    if options.json:
        times = [_measure(move, options.threads, options.seconds) for move in _MOVES]
        sys.stdout.write(json.dumps(times))
        return 0
    both = [_in_process(options, openmp) for openmp in ("1", "0")]
    sys.stdout.write(f"microseconds right after torch.add, {options.threads} threads\n")
    sys.stdout.write(
        "| f32 | ours | without OpenMP's threads | torch |\n| --- | --- | --- | --- |\n"
    )
    for move, inside, without in zip(_MOVES, *both, strict=True):
        case = f"{'x'.join(map(str, move.dims))} {' -> '.join(move.tags)}"
        columns = inside[0], without[0], min(inside[1], without[1])
        numbers = " | ".join(f"{seconds * 1e6:.1f}" for seconds in columns)
        sys.stdout.write(f"| {case} | {numbers} |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
