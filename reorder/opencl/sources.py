"""Tensors that callers pass: device memory is used in place, host memory is copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array
from pyopencl.tools import first_arg_dependent_memoize

from memdesc import FormatTag, ImageDesc, MemdescError, MemoryDesc
from memdesc.errors import short_repr
from reorder.memory.inputs import as_memory, from_pixels
from reorder.opencl.allocation import allocate_buffer
from reorder.opencl.arrays import array_desc
from reorder.opencl.device_memory import DeviceMemory
from reorder.opencl.operands import Unallocated
from reorder.opencl.queues import events_of

if TYPE_CHECKING:
    from reorder.memory.memory import Memory

__all__ = ["LayoutLike", "Source", "as_source", "check_image_desc", "upload"]

# Bytes up to which a buffer is made with its content. That saves a queue's latency: a reorder of
# 16 KiB takes 45 us instead of 255 on a CPU. For 512 MB it takes 7 times as long on an H200.
_SMALL = 1 << 16
_IN_PLACE = (cl.Buffer, cl.Image, cl.SVMPointer)

LayoutLike = str | FormatTag | MemoryDesc | ImageDesc


class Source(NamedTuple):
    """A tensor to be read on a device.

    `memory` is not allocated yet if the tensor is in host memory, which is `host`. `owner` is the
    tensor if its memory belongs to a DeviceMemory.
    """

    memory: Any
    desc: MemoryDesc | ImageDesc
    host: Memory | None = None
    owner: DeviceMemory | None = None

    def events(self, queue: cl.CommandQueue) -> list[cl.Event]:
        """Return what must be complete before a queue reads the tensor."""
        if self.owner is not None:
            return self.owner.events_before(queue)
        return events_of(queue, self.memory)


def as_source(src: Any, desc: LayoutLike | None) -> Source:
    """Describe a tensor; nothing is checked against the queue or copied yet."""
    if isinstance(src, DeviceMemory):
        if desc is not None:
            msg = "src_desc describes plain memory; a DeviceMemory has its own descriptor"
            raise MemdescError(msg)
        return Source(src.data, src.desc, None, src)
    if isinstance(src, cl.array.Array):
        known = array_desc(src, "src") if desc is None else _required_desc(desc, src)
        return Source(src, known)
    if isinstance(src, _IN_PLACE):
        return Source(src, _required_desc(desc, src))
    host = (
        from_pixels(src, desc)
        if isinstance(desc, ImageDesc)
        else as_memory(_without_gaps(src, desc), desc)
    )
    return Source(Unallocated(), host.desc, host)


def upload(queue: cl.CommandQueue, host: Memory) -> cl.Buffer:
    """Return a buffer with what host memory holds, copied before the call returns.

    A copy by the queue of the caller would wait for all that is in it.
    """
    nbytes = host.desc.min_nbytes
    if not nbytes:
        return allocate_buffer(queue.context, 0)
    data = host.data[:nbytes]
    if nbytes <= _SMALL:
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(queue.context, flags, hostbuf=data)
    buffer = allocate_buffer(queue.context, nbytes, cl.mem_flags.READ_ONLY)
    cl.enqueue_copy(_copies(queue.context, queue.device), buffer, data)
    return buffer


@first_arg_dependent_memoize
def _copies(context: cl.Context, device: cl.Device) -> cl.CommandQueue:
    """Return the queue for copies from the host."""
    return cl.CommandQueue(context, device)


def _required_desc(desc: LayoutLike | None, memory: Any) -> MemoryDesc | ImageDesc:
    if isinstance(desc, MemoryDesc | ImageDesc):
        return desc
    is_image = isinstance(memory, cl.Image)
    kind = "Image" if is_image else "Buffer" if isinstance(memory, cl.Buffer) else "SVM"
    needed = "an ImageDesc" if is_image else "a MemoryDesc"
    msg = f"src is a pyopencl {kind}, which does not say what it holds; give src_desc=, {needed}"
    raise MemdescError(msg)


def _without_gaps(x: Any, desc: LayoutLike | None) -> Any:
    """Return an array without large gaps, since gaps would be copied to the device too."""
    if isinstance(x, np.ndarray) and not isinstance(desc, MemoryDesc) and x.size:
        low, high = np.lib.array_utils.byte_bounds(x)
        if high - low > x.nbytes:
            return np.ascontiguousarray(x)
    return x


def check_image_desc(image_desc: Any) -> None:
    """Refuse what is no ImageDesc."""
    if not isinstance(image_desc, ImageDesc):
        msg = (
            f"image_desc must be an ImageDesc, not {short_repr(image_desc)}; see memdesc.image_desc"
        )
        raise MemdescError(msg)
