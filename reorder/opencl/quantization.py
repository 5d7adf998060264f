"""Find the ranges of a tensor on a device, which scales are chosen from."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from memdesc import ImageDesc, MemdescError, MemoryDesc, memory_desc
from reorder.opencl.allocation import allocate_buffer
from reorder.opencl.device_memory import DeviceMemory
from reorder.opencl.enqueue import as_source, reorder_on_device
from reorder.opencl.kernel.reductions import lower_ranges
from reorder.opencl.operands import check_queue, device_operand, kind_of
from reorder.opencl.programs import prepare

if TYPE_CHECKING:
    from numpy.typing import NDArray


def desc_on_device(x: Any) -> MemoryDesc:
    """Return the descriptor of a DeviceMemory or an Array; that of the pixels for an image."""
    if not isinstance(x, DeviceMemory | cl.array.Array):
        msg = f"x is {kind_of(x)}, whose layout is not known; make a DeviceMemory of it"
        raise MemdescError(msg)
    queue: Any = x.queue
    check_queue(queue)
    source = as_source(x, None)
    return device_operand(queue, source.memory, source.desc, "x", "read").desc


def find_ranges_on_device(
    x: Any, counts: list[int], sizes: list[int], queue: cl.CommandQueue | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each scale, return the lowest and the highest of its values and 0.

    The call waits for the device.
    """
    queue = x.queue if queue is None else queue
    check_queue(queue)
    if isinstance(x, DeviceMemory) and isinstance(x.desc, ImageDesc):
        x = reorder_on_device(x, memory_desc(x.desc.dims, x.desc.dtype), queue=queue)
    source = as_source(x, None)
    operand = device_operand(queue, source.memory, source.desc, "x", "read")
    desc = operand.desc
    if not desc.nelems:
        return np.zeros(counts), np.zeros(counts)
    if desc.dtype.name == "f64" and not queue.device.double_fp_config:
        msg = f"device {queue.device.name.strip()!r} has no f64; find the ranges of a copy in f32"
        raise MemdescError(msg)
    launch, parts = lower_ranges(desc, counts, sizes, queue.device.max_work_group_size)
    ranges = np.empty((*counts, parts, 2), np.float64 if desc.dtype.name == "f64" else np.float32)
    out = allocate_buffer(queue.context, ranges.nbytes)
    event = prepare(queue.context, queue.device, launch).enqueue(
        queue, (operand.memory, out), source.events(queue) or None
    )
    cl.enqueue_copy(queue, ranges, out, wait_for=[event])
    out.release()
    if not np.isfinite(ranges).all():
        bad = np.argwhere(~np.isfinite(ranges).all((-1, -2)))[0].tolist()
        shared = "" if prod(counts) == 1 else f", among those of scale {bad}"
        msg = f"x has an element that is not finite{shared}; only finite values can be quantised"
        raise MemdescError(msg)
    wide = ranges.astype(np.float64)
    return wide[..., 0].min(-1), wide[..., 1].max(-1)
