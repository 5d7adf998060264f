"""What a call that enqueues a reorder takes on the host, beside pyopencl's own."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import pyopencl as cl

from reorder.opencl import enqueue_reorder
from reorder.opencl.execution import prepare_transfers
from reorder.opencl.operands import device_operand

if TYPE_CHECKING:
    from reorder.bench.device import DeviceBench
    from reorder.bench.device_cases import DeviceCase

__all__ = ["call_seconds"]

_CALLS = 300


def call_seconds(bench: DeviceBench, case: DeviceCase) -> tuple[float, float]:
    """Return the median times on the host of a call that enqueues a known reorder.

    The second is that of pyopencl alone, with the same kernel, whose two buffers it sets. The queue
    records no times, since calls are slower then.
    """
    loaded = bench.load(case)
    src, dst = case.descs
    queue = cl.CommandQueue(bench.context)
    enqueue_reorder(queue, loaded.src, src, loaded.dst, dst)
    operands = (
        device_operand(queue, loaded.src, src, "src"),
        device_operand(queue, loaded.dst, dst, "dst"),
    )
    (launch,) = prepare_transfers(queue, *operands)[0].launches
    kernel = launch.kernels.take()
    kernel.set_arg(2, launch.numbers)
    times: list[tuple[float, float]] = []
    for _ in range(_CALLS):
        queue.finish()
        start = time.perf_counter()
        enqueue_reorder(queue, loaded.src, src, loaded.dst, dst)
        called = time.perf_counter() - start
        queue.finish()
        start = time.perf_counter()
        kernel.set_arg(0, loaded.src)
        kernel.set_arg(1, loaded.dst)
        cl.enqueue_nd_range_kernel(queue, kernel, *launch.sizes)
        times.append((called, time.perf_counter() - start))
    queue.finish()
    launch.kernels.give_back(kernel)
    call, bare = zip(*times, strict=True)
    return statistics.median(call), statistics.median(bare)
