"""The walker: runs boxes from a table, with the micro-kernels for the innermost loops.

It is compiled once for each kernel, to an address that C may call. Python calls
it there without the GIL, and so does the one loop over threads, which therefore is
compiled once for all of them.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numba
from numba.core.compiler_lock import global_compiler_lock

from reorder.cpu.runtime.intrinsics import (
    ARGUMENTS,
    add_shared,
    call,
    counters,
    fence,
    load_int,
    run_inner,
    store_int,
)
from reorder.cpu.runtime.jit import compile_callback, jit_parallel
from reorder.cpu.schedule.program import HEAD, LOOP
from reorder.plan.nodes import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Callable

    from reorder.cpu.schedule.kernel import Kernel

__all__ = ["cache_folder", "walk_parallel", "walker_at"]

# compiled walkers of boxes
_walkers: dict[Kernel, Any] = {}


def walker_at(kernel: Kernel) -> int:
    """Return the address of the compiled walker of boxes whose elements a kernel moves.

    It takes the addresses of src, dst, program and tasks, the first of its steps and one past the last, the address of
    places, and how many there are. Its steps are all tasks, each at all places.
    """
    return int((_walkers.get(kernel) or _compile(kernel)).address)


def walk_parallel(
    walker: int,
    src_at: int,
    dst_at: int,
    program: int,
    tasks: int,
    bounds: int,
    parts: int,
    places: int,
    count: int,
    threads: int,
) -> None:
    """Run all parts on so many of numba's threads."""
    turn = ctypes.c_int64(0)
    _run_parts(
        walker,
        src_at,
        dst_at,
        program,
        tasks,
        bounds,
        parts,
        places,
        count,
        threads,
        ctypes.addressof(turn),
    )


def cache_folder() -> str | None:
    """Return where compiled kernels are kept, or None."""
    folder: str | None = getattr(getattr(_run_parts, "stats", None), "cache_path", None)
    return folder


def _compile(kernel: Kernel) -> Any:
    # numba's own lock, which a fork waits for
    with global_compiler_lock:
        if kernel not in _walkers:
            _walkers[kernel] = compile_callback(
                _walker(kernel), numba.void(*[numba.int64] * ARGUMENTS), f"walker of {kernel}"
            )
    return _walkers[kernel]


def _walker(kernel: Kernel) -> Callable[..., None]:
    """Return the walker of boxes, to be compiled for one kernel."""
    bits, streams = kernel.bits, int(kernel.streams)

    def run(
        src_at: int,
        dst_at: int,
        program: int,
        tasks: int,
        begin: int,
        end: int,
        places: int,
        count: int,
    ) -> None:
        at = counters()
        for step in range(begin, end):
            task = tasks + 40 * (step // count)
            place = step % count
            box = program + 8 * load_int(task, 0)
            first, last, low, high = (
                load_int(task, 1),
                load_int(task, 2),
                load_int(task, 3),
                load_int(task, 4),
            )
            src, dst = load_int(places, 2 * place), load_int(places, 2 * place + 1)
            # how many loops stand beyond their valid part: src has no element there
            beyond = 0
            if src == NOWHERE:
                src = 0
                beyond = 1
            src += load_int(box, 1)
            dst += load_int(box, 2)
            outer = load_int(box, 3)
            rest = first
            for j in range(outer):
                loop = HEAD + LOOP * (outer - 1 - j)
                extent = load_int(box, loop)
                i = rest % extent
                rest //= extent
                store_int(at, outer - 1 - j, i)
                beyond += i >= load_int(box, loop + 1)
                src += i * load_int(box, loop + 2)
                dst += i * load_int(box, loop + 3)
            for _ in range(last - first):
                run_inner(src_at, dst_at, src, dst, box, low, high, beyond == 0, bits, streams)
                k = outer - 1
                while k >= 0:
                    loop = HEAD + LOOP * k
                    extent, valid = load_int(box, loop), load_int(box, loop + 1)
                    src_stride, dst_stride = load_int(box, loop + 2), load_int(box, loop + 3)
                    i = load_int(at, k) + 1
                    src += src_stride
                    dst += dst_stride
                    beyond += i == valid
                    if i < extent:
                        store_int(at, k, i)
                        break
                    beyond += (valid <= 0) - (extent >= valid)
                    src -= extent * src_stride
                    dst -= extent * dst_stride
                    store_int(at, k, 0)
                    k -= 1
        if streams:
            fence()

    return run


@jit_parallel
def _run_parts(
    kernel: int,
    src_at: int,
    dst_at: int,
    program: int,
    tasks: int,
    bounds: int,
    parts: int,
    places: int,
    count: int,
    threads: int,
    turn: int,
) -> None:
    # whoever is free takes the next part: one whose core is taken from it leaves them to the others
    for _ in numba.prange(threads):
        p = add_shared(turn, 0, 1)
        while p < parts:
            call(
                kernel,
                src_at,
                dst_at,
                program,
                tasks,
                load_int(bounds, p),
                load_int(bounds, p + 1),
                places,
                count,
            )
            p = add_shared(turn, 0, 1)
