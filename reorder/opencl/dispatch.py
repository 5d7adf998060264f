"""What `reorder.reorder` does with a queue, or with objects of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pyopencl.array

from memdesc import FormatTag, ImageDesc, MemdescError, MemoryDesc, image_desc, memory_desc
from memdesc.errors import short_repr
from reorder.memory.inputs import as_memory
from reorder.memory.memory import Memory
from reorder.opencl.device_memory import DeviceMemory
from reorder.opencl.enqueue import check_attr, check_queue, enqueue_operands
from reorder.opencl.inputs import Layout, new_buffer, source_operand
from reorder.opencl.operands import operand
from reorder.opencl.pack import pack

if TYPE_CHECKING:
    from reorder.values.attr import Attr

__all__ = ["reorder_on_device"]


def reorder_on_device(
    x: Any,
    dst: Layout | None,
    *,
    src: Layout | None = None,
    dtype: Any = None,
    attr: Attr | None = None,
    out: Any = None,
    queue: cl.CommandQueue | None = None,
) -> DeviceMemory:
    """Reorder on a device; what `reorder.reorder` calls for device objects, or with a queue.

    Returns
    -------
    DeviceMemory
        `out` with its descriptor, or new memory: an image where dst is an ImageDesc.

    Raises
    ------
    MemdescError
        As `enqueue_reorder`; and if no queue is given and no argument has one.
    """
    queue = queue or _queue_of(x) or _queue_of(out)
    if queue is None:
        msg = "a pyopencl Buffer or Image has no queue; say queue="
        raise MemdescError(msg)
    check_queue(queue)
    check_attr(attr)
    wait_for: list[cl.Event] = []
    memory = out
    if isinstance(out, DeviceMemory):
        memory, dst = out.data, _agreed(dst, out.desc)
        wait_for += [out.event] if out.event is not None else []
    if isinstance(out, Memory | np.ndarray):
        msg = "out is host memory, but the result lies on a device; take it with .get()"
        raise MemdescError(msg)
    desc = _converted(_wanted(x, src, dst, memory), dtype)
    if memory is None and isinstance(desc, ImageDesc):
        image, event = pack(queue, x, desc, src_desc=src, wait_for=wait_for)
        return DeviceMemory(queue, image, desc, event)
    target = None if memory is None else operand(queue, memory, desc, "dst")
    source, waiting = source_operand(queue, x, src, target, wait_for)
    if target is None:
        assert isinstance(desc, MemoryDesc)  # noqa: S101 - for the type checker: images are packed above
        memory, target = new_buffer(queue, desc, source)
    return DeviceMemory(queue, memory, desc, enqueue_operands(queue, source, target, waiting))


def _queue_of(memory: Any) -> cl.CommandQueue | None:
    return memory.queue if isinstance(memory, DeviceMemory | cl.array.Array) else None


def _agreed(dst: Layout | None, own: MemoryDesc | ImageDesc) -> MemoryDesc | ImageDesc:
    if dst is None or dst == own:
        return own
    if (
        isinstance(dst, str | FormatTag)
        and isinstance(own, MemoryDesc)
        and memory_desc(own.dims, own.dtype, dst) == own
    ):
        return own
    msg = f"out is {own!r}, but dst asks for {short_repr(dst)}"
    raise MemdescError(msg)


def _wanted(x: Any, src: Layout | None, dst: Layout | None, memory: Any) -> MemoryDesc | ImageDesc:
    """Return the descriptor of the result; a name takes the dims and the dtype of the tensor."""
    if isinstance(dst, MemoryDesc | ImageDesc):
        return dst
    if isinstance(memory, cl.array.Array) and dst is None:
        return memory_desc(
            memory.shape,
            memory.dtype,
            strides=[step // memory.dtype.itemsize for step in memory.strides],
        )
    if dst is None:
        msg = "give dst, the layout to move into, or out, an Array or a DeviceMemory to write"
        raise MemdescError(msg)
    if isinstance(src, MemoryDesc | ImageDesc):
        return memory_desc(src.dims, src.dtype, dst)
    if isinstance(x, DeviceMemory):
        return memory_desc(x.desc.dims, x.desc.dtype, dst)
    if isinstance(x, cl.array.Array):
        return memory_desc(x.shape, x.dtype, dst)
    own = as_memory(x, src).desc
    return memory_desc(own.dims, own.dtype, dst)


def _converted(desc: MemoryDesc | ImageDesc, dtype: Any) -> MemoryDesc | ImageDesc:
    if dtype is None:
        return desc
    return (
        desc.with_dtype(dtype)
        if isinstance(desc, MemoryDesc)
        else image_desc(desc.dims, dtype, desc.name)
    )
