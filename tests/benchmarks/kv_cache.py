"""Time moves of a paged KV cache from one order to another, compared with torch.

python -m tests.benchmarks.kv_cache [--pages 2048] [--threads 1,2]
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

import reorder
from memdesc import memory_desc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_HEADS, _TOKENS, _CHANNELS, _LAYERS = 8, 16, 256, 1
_RUNS = 15
# the order of src and of dst, and the axes of torch's permute from one to the other
_MOVES = (
    ("LBNHC", "LBHNC", (0, 1, 3, 2, 4)),
    ("LBHNC", "LBNHC", (0, 1, 3, 2, 4)),
    ("LBNHC", "LHBNC", (0, 3, 1, 2, 4)),
    ("LHBNC", "LBNHC", (0, 2, 3, 1, 4)),
)


def _times(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Return the median seconds of functions that are called in turns."""
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(_RUNS):
        for call, taken in zip(calls, seconds, strict=True):
            start = perf_counter()
            call()
            taken.append(perf_counter() - start)
    return [median(taken) for taken in seconds]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of the moves."""
    torch = import_module("torch")
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pages", type=int, default=2048)
    parser.add_argument("--threads", default=f"1,{len(os.sched_getaffinity(0))}")
    options = parser.parse_args(arguments)
    sizes = dict(zip("LBHNC", (_LAYERS, options.pages, _HEADS, _TOKENS, _CHANNELS), strict=True))
    sys.stdout.write("| from | to | threads | memdesc | torch | times torch |\n")
    sys.stdout.write("| --- | --- | --- | --- | --- | --- |\n")
    for threads in sorted({int(count) for count in options.threads.split(",")}):
        torch.set_num_threads(threads)
        for move in _MOVES:
            ours, theirs = _measure(sizes, *move, threads)
            sys.stdout.write(
                f"| `{move[0]}` | `{move[1]}` | {threads} | {ours * 1e3:.1f} ms "
                f"| {theirs * 1e3:.1f} ms | {theirs / ours:.1f} |\n"
            )
    return 0


def _measure(
    sizes: Mapping[str, int], source: str, target: str, axes: Sequence[int], threads: int
) -> list[float]:
    """Return the seconds of a move by this library and by torch, whose results are compared."""
    torch = import_module("torch")
    src, dst = (memory_desc(tuple(sizes.values()), "bf16", name) for name in (source, target))
    data = np.random.default_rng(0).integers(0, 1 << 16, src.nbytes // 2, np.uint16)
    out = np.zeros(dst.nbytes // 2, np.uint16)
    run = reorder.prepare(reorder.plan_reorder(src, dst), threads=threads)
    tensor = torch.from_numpy(data.view(np.int16)).reshape([sizes[each] for each in source])
    moved = torch.empty([sizes[each] for each in target], dtype=torch.int16)
    times = _times((lambda: run(data, out), lambda: moved.copy_(tensor.permute(axes))))
    if (moved.numpy().ravel().view(np.uint16) != out).any():
        msg = f"torch and memdesc differ from {source} to {target}"
        raise AssertionError(msg)
    return times


if __name__ == "__main__":
    sys.exit(main())
