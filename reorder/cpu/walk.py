"""The walker: runs boxes from a table, with the micro-kernels for the innermost loops.

One function for each element width: numba optimises a function again with all it
calls at every level, so what could be three functions is one.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from reorder.cpu.intrinsics import counters, load_int, run_inner, store_int
from reorder.cpu.jit import jit
from reorder.cpu.program import HEAD, LOOP
from reorder.nodes import NOWHERE

__all__ = ["walk", "walk_parallel"]


@jit()
def walk(src_at: int, dst_at: int, program: int, tasks: int, begin: int, end: int, places: int, count: int, unit: Any) -> None:
    """Run tasks `begin` to `end`, each at `count` places."""
    at = counters()
    for step in range((end - begin) * count):
        task = tasks + 40 * (begin + step // count)
        place = step % count
        box = program + 8 * load_int(task, 0)
        first, last, low, high = load_int(task, 1), load_int(task, 2), load_int(task, 3), load_int(task, 4)
        src, dst = load_int(places, 2 * place), load_int(places, 2 * place + 1)
        # how many loops stand beyond their valid part: src has no element there
        beyond = 0
        if src == NOWHERE:
            src = 0
            beyond = 1
        src += load_int(box, 1) + first * load_int(box, HEAD + 2)
        dst += load_int(box, 2) + first * load_int(box, HEAD + 3)
        outer = load_int(box, 3)
        for k in range(outer):
            start = first if k == 0 else 0
            store_int(at, k, start)
            beyond += start >= load_int(box, HEAD + LOOP * k + 1)
        k = 0
        while k >= 0:
            run_inner(src_at, dst_at, src, dst, box, low, high, beyond == 0, unit)
            k = outer - 1
            while k >= 0:
                loop = HEAD + LOOP * k
                valid, src_stride, dst_stride = load_int(box, loop + 1), load_int(box, loop + 2), load_int(box, loop + 3)
                start, stop = (first, last) if k == 0 else (0, load_int(box, loop))
                i = load_int(at, k) + 1
                src += src_stride
                dst += dst_stride
                beyond += i == valid
                if i < stop:
                    store_int(at, k, i)
                    break
                beyond += (start >= valid) - (stop >= valid)
                src -= (stop - start) * src_stride
                dst -= (stop - start) * dst_stride
                store_int(at, k, start)
                k -= 1


@jit(parallel=True)
def walk_parallel(src_at: int, dst_at: int, program: int, tasks: int, bounds: int, parts: int, places: int, count: int, unit: Any) -> None:
    """Run all parts at once on numba's threads."""
    for part in numba.prange(parts):
        p = np.int64(part)  # the index of prange is unsigned, and would turn sums into floats
        walk(src_at, dst_at, program, tasks, load_int(bounds, p), load_int(bounds, p + 1), places, count, unit)
