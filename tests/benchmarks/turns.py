"""Calls timed in turns, over the cases of files, in buffers that start anywhere in a cache line."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

import reorder
from reorder.bench.cases import Case
from reorder.cpu.machine import LINE_NBYTES
from tests.benchmarks.cases import read_cases

CASES = sorted(Path(__file__).parent.glob("*.txt"))
# makes some calls, and returns the seconds of one
Timer = Callable[[int], float]

_RANDOM_NBYTES = 1 << 20
_MIN_ROUNDS = 4


def listed_cases(files: Iterable[str | Path] = CASES) -> list[Case]:
    """Return the cases of files, each case once."""
    return list({case.name: case for file in files for case in read_cases(str(file))}.values())


def zeros_at(place: int, nbytes: int) -> NDArray[np.uint8]:
    """Return zeros that start `place` bytes into a cache line."""
    space = np.zeros(nbytes + 2 * LINE_NBYTES, np.uint8)
    start = -space.ctypes.data % LINE_NBYTES + place
    return space[start : start + nbytes]


def source_of(case: Case, place: int = 0) -> NDArray[np.uint8]:
    """Return small integers, or normal floats where values are converted; padding holds zeros."""
    src, draw = zeros_at(place, case.src.nbytes), np.random.default_rng(0)
    block = draw.integers(0, 63, _RANDOM_NBYTES, np.uint8)
    kind = case.src.dtype
    if not is_move(case) and not kind.is_packed and np.dtype(kind.numpy).kind not in "iu":
        numbers = draw.standard_normal(_RANDOM_NBYTES // 8, np.float32)
        block = numbers.astype(kind.numpy).view(np.uint8)
    src[...] = np.resize(block, src.size)
    if case.src.has_padding:
        reorder.Memory(case.src, src)
    return src


def is_move(case: Case) -> bool:
    """Whether no value changes."""
    return case.attr is None and case.src.dtype == case.dst.dtype


def timer(call: Callable[[], Any], clock: Callable[[], float] = perf_counter) -> Timer:
    """Return what times a call, after one more that warms the caches."""

    def timed(calls: int) -> float:
        call()
        start = clock()
        for _ in range(calls):
            call()
        return (clock() - start) / calls

    return timed


def in_turns(
    timers: Sequence[Timer],
    seconds: float,
    *,
    most_rounds: int = 40,
    slice_seconds: float = 2e-3,
    once: float | None = None,
) -> list[list[float]]:
    """Return the seconds of a call in each slice of each timer, about `seconds` in all of each.

    The order turns from slice to slice. `once` is about how long the slowest call takes.
    """
    if once is None:
        once = max(each(2) for each in timers)
    calls = max(1, round(slice_seconds / max(once, 1e-7)))
    rounds = round(seconds / (max(once, 1e-7) * (calls + 1)))
    times: list[list[float]] = [[] for _ in timers]
    for number in range(min(most_rounds, max(_MIN_ROUNDS, rounds))):
        order = range(len(timers))
        for k in order if number % 2 == 0 else reversed(order):
            times[k].append(timers[k](calls))
    return times
