"""Measure one case on the CPU, so that a busy machine does not distort the ratios.

The reorder, memcpy and the peers take turns, and times are only compared within a round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from random import Random
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np

from memdesc import MemdescError
from memdesc.tuples import NamedTuple
from reorder.api import prepare
from reorder.bench.cases import Case
from reorder.bench.peers import Buffers, MakePeer, Peer, memcpy
from reorder.memory.memory import Memory
from reorder.plan.plan import plan_reorder
from reorder.values.formats import FLOATS

# A sample lasts at least this long and consists of whole calls without pauses, as in benchdnn:
# threads that were asleep are awake for most of it.
_SAMPLE_SECONDS = 2e-3
_WARM_CALLS = 10
# Threads of OpenMP, and those of an OpenCL runtime, spin up to this long after a call.
_PAUSE_SECONDS = 5e-3
_MIN_ROUNDS, _MAX_ROUNDS = 5, 8
# A candidate that takes longer for one call is timed less often.
_SLOW_SECONDS = 0.5


class Result(NamedTuple):
    """What one case took.

    `seconds` is the median time of a call, `p90` the 90th percentile, `first_seconds` the time of
    the first call including planning and compilation. The ratios are medians over rounds of a
    peer's time divided by ours, so above 1 we are faster; `memcpy` is the ratio for a copy of as
    many bytes on as many threads.
    """

    name: str
    threads: int
    nbytes: int
    kernels: str
    seconds: float
    p90: float
    first_seconds: float
    memcpy: float
    peers: dict[str, float]
    # peers whose result has other bits; they are timed only if values are converted
    differs: list[str]


def measure(case: Case, threads: int, peers: Iterable[MakePeer], seconds: float) -> Result:
    """Time a reorder against memcpy and its peers, each for about `seconds`, on some threads."""
    try:
        src, dst = _buffers(case)
    except MemoryError:
        sizes = f"{case.src.nbytes} and {case.dst.nbytes} bytes"
        raise MemdescError(
            f"{case.name}: src and dst need {sizes}, more memory than there is"
        ) from None
    start = perf_counter()
    plan = plan_reorder(case.src, case.dst, case.attr)
    prepared: Any = prepare(plan, threads=threads)
    prepared(src, dst)
    first = perf_counter() - start
    ours = dst.copy()
    copied = src, dst
    if src.nbytes != dst.nbytes:  # a copy that moves as many bytes as the reorder
        nbytes = (src.nbytes + dst.nbytes) // 2
        copied = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)
    candidates = [Peer("", lambda: prepared(src, dst)), memcpy(copied, threads)]
    differs = []
    for make in peers:
        peer = make(case, (src, dst), threads)
        if peer is None:
            continue
        dst[...] = 0
        peer.call()
        if not np.array_equal(dst, ours):
            differs.append(peer.name)
            if case.attr is None and case.src.dtype == case.dst.dtype:
                continue
        candidates.append(peer)
    own, *others = _rounds(candidates, threads, seconds)
    ratios = {
        peer.name: median(other / one for other, one in zip(times, own, strict=True) if other)
        for peer, times in zip(candidates[1:], others, strict=True)
    }
    return Result(
        case.name,
        threads,
        case.nbytes,
        ", ".join(prepared.kernels_at(dst.ctypes.data)),
        median(own),
        float(np.quantile(own, 0.9)),
        first,
        ratios.pop("memcpy"),
        ratios,
        differs,
    )


def _buffers(case: Case) -> Buffers:
    """Return src with random bytes below 63, no NaN, or normal floats to convert; and dst.

    They are as users allocate them: large arrays of numpy do not start a cache line.
    """
    rng = np.random.default_rng(0)
    src = Memory(case.src, np.zeros(case.src.nbytes, np.uint8))
    kind = case.src.dtype
    converts = case.attr is not None or case.dst.dtype != kind
    if kind.name in FLOATS and not kind.is_packed and converts:
        # arithmetic is slow on denormal numbers, and random bytes contain too many of them
        values = rng.standard_normal(src.nbytes // kind.bits_dtype.itemsize, np.float32)
        codes = values.astype(kind.numpy).view(np.uint8)
        src.data[: codes.size] = codes
    else:
        src.data[...] = rng.integers(0, 63, src.nbytes, np.uint8)
    if case.src.has_padding:
        src = Memory(case.src, src.data)
    return src.data, np.zeros(case.dst.nbytes, np.uint8)


def _rounds(candidates: list[Peer], threads: int, seconds: float) -> list[list[float]]:
    """Return each candidate's time of a call in each round; 0 where a slow peer was left out."""
    counts = []
    for candidate in candidates:
        once = _warm_up(candidate.call)
        counts.append(max(1, round(_SAMPLE_SECONDS / max(once, 1e-7))))
    times: list[list[float]] = [[] for _ in candidates]
    spent = [0.0] * len(candidates)
    # a new order each round: a candidate inherits the caches and the clock from the one before it
    order = Random(0)  # noqa: S311 - no secret
    for number in range(_MAX_ROUNDS):
        for k in order.sample(range(len(candidates)), len(candidates)):
            is_slow = number > 0 and spent[k] / number > _SLOW_SECONDS
            if k > 1 and is_slow and spent[k] > seconds:
                times[k].append(0.0)
                continue
            call = candidates[k].call
            _warm_up(call)
            start = perf_counter()
            for _ in range(counts[k]):
                call()
            sample = (perf_counter() - start) / counts[k]
            spent[k] += sample * (counts[k] + 1)
            times[k].append(sample)
            if threads > 1 and candidates[k].spins:
                sleep(_PAUSE_SECONDS)
        if number + 1 >= _MIN_ROUNDS and spent[0] > seconds / 2 and max(spent) > seconds:
            break
    return times


def _warm_up(call: Callable[[], Any]) -> float:
    """Call until caches and threads are warm for this candidate; return the shortest time."""
    least = inf
    start = perf_counter()
    for _ in range(_WARM_CALLS):
        before = perf_counter()
        call()
        least = min(least, perf_counter() - before)
        if perf_counter() - start > _SAMPLE_SECONDS:
            break
    return least
