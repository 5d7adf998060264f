"""The compiled walkers of boxes, one for each kernel, as C functions.

They are called by address, without the GIL: by the pool, and by the loop over numba's threads.
So that loop is compiled once, not for each walker.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

import numba
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from reorder.cpu.kernels.box import emit_walk
from reorder.cpu.kernels.walk import WalkerCall
from reorder.cpu.runtime.intrinsics import WALKER, add_shared, call_walker, load_int
from reorder.cpu.runtime.jit import compile_callback, jit_parallel
from reorder.cpu.runtime.job import JOB
from reorder.cpu.schedule.kernel import Kernel
from reorder.forks import uninterrupted
from reorder.stack import on_enough_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numba.core.typing.templates import Signature

    from reorder.cpu.kernels.emit import Builder, Value

__all__ = ["cache_folder", "walk_parallel", "walker_at"]


def walker_at(kernel: Kernel) -> int:
    """Return the address of the compiled walker of boxes whose elements a kernel moves."""
    return int(_compiled(kernel).address)


def walk_parallel(job_at: int, src_at: int, dst_at: int, threads: int) -> None:
    """Run all chunks of the job at an address on a number of numba's threads."""
    if not _walk_chunks.overloads:
        with uninterrupted:
            on_enough_stack(lambda: _walk_chunks.compile((numba.int64,) * 5))
    next_chunk = ctypes.c_int64(0)
    _walk_chunks(job_at, src_at, dst_at, threads, ctypes.addressof(next_chunk))


def cache_folder() -> str | None:
    """Return where compiled kernels are kept, or None."""
    folder: str | None = getattr(getattr(_walk_chunks, "stats", None), "cache_path", None)
    return folder


@cache
def _compiled(kernel: Kernel) -> Any:
    return compile_callback(_walker(kernel), WALKER, f"walker of {kernel}")


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator] # numba ships no types
def _walk_boxes(_context: Any, call: Any, bits: Any, streams: Any) -> tuple[Signature, Any]:
    """Walk boxes; the fields of the kernel are known when it is compiled."""
    kernel = Kernel(bits.literal_value, bool(streams.literal_value))

    def build(context: Any, builder: Builder, _signature: Any, args: Sequence[Value]) -> Value:
        emit_walk(builder, WalkerCall(*cgutils.unpack_tuple(builder, args[0])), kernel)
        return context.get_dummy_value()

    return types.void(call, bits, streams), build


def _walker(kernel: Kernel) -> Callable[..., None]:
    """Return the walker of one kernel, to be compiled."""
    bits, streams = kernel.bits, int(kernel.streams)

    def walk(  # noqa: PLR0913, PLR0917 - `WalkerCall` as a C signature
        src_at: int,
        dst_at: int,
        program: int,
        tasks: int,
        begin: int,
        end: int,
        points: int,
        point_count: int,
    ) -> None:
        call = (src_at, dst_at, program, tasks, begin, end, points, point_count)
        _walk_boxes(call, bits, streams)

    return walk


@jit_parallel
def _walk_chunks(job: int, src_at: int, dst_at: int, threads: int, next_chunk: int) -> None:
    # dynamic schedule: a thread that loses its core leaves chunks to the others
    for _ in numba.prange(threads):
        chunk = add_shared(next_chunk, 0, 1)
        while chunk < load_int(job, JOB.chunks):
            bounds = load_int(job, JOB.bounds)
            call_walker(
                load_int(job, JOB.walker),
                (
                    src_at,
                    dst_at,
                    load_int(job, JOB.program),
                    load_int(job, JOB.tasks),
                    load_int(bounds, chunk),
                    load_int(bounds, chunk + 1),
                    load_int(job, JOB.points),
                    load_int(job, JOB.point_count),
                ),
            )
            chunk = add_shared(next_chunk, 0, 1)
