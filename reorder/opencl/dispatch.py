"""`reorder.reorder` for calls with a queue, or with device objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pyopencl.array

from memdesc import (
    FormatTag,
    ImageDesc,
    MemdescError,
    MemoryDesc,
    data_type,
    image_desc,
    memory_desc,
)
from memdesc.errors import short_repr
from memdesc.names import is_image
from reorder.memory.memory import Memory
from reorder.opencl.arrays import array_desc
from reorder.opencl.device_memory import DeviceMemory
from reorder.opencl.image_formats import supported_format
from reorder.opencl.queues import check_queue, checked_events
from reorder.opencl.sources import LayoutLike, as_source
from reorder.opencl.targets import (
    enqueue_into,
    enqueue_into_new_buffer,
    enqueue_into_new_image,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memdesc import DataType
    from reorder.values.attr import Attr

__all__ = ["reorder_on_device"]

# tuples: a union of types is made again in each call
_HOST = (Memory, np.ndarray)
_WITH_QUEUE = (DeviceMemory, cl.array.Array)
_DESCS = (MemoryDesc, ImageDesc)


def reorder_on_device(  # noqa: PLR0913 - public: the arguments of `reorder.reorder`
    x: Any,
    dst: LayoutLike | None,
    *,
    src: LayoutLike | None = None,
    dtype: Any = None,
    attr: Attr | None = None,
    out: Any = None,
    queue: cl.CommandQueue | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> DeviceMemory:
    """Reorder on a device; what `reorder.reorder` calls for device objects, or with a queue.

    Parameters
    ----------
    x, dst, src, dtype, attr, out, queue, wait_for
        As for `reorder.reorder`.

    Returns
    -------
    DeviceMemory
        `out` with its descriptor, or new memory: an image where dst is an ImageDesc.

    Raises
    ------
    MemdescError
        As `enqueue_reorder`; and if no queue is given and no argument has one.

    Examples
    --------
    >>> import numpy as np, pyopencl as cl
    >>> from reorder import opencl
    >>> device = next(d.device for d in opencl.devices() if d.works)
    >>> context = cl.Context([device])
    >>> queue = cl.CommandQueue(context)
    >>> x = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> memory = opencl.reorder_on_device(x, "ba", queue=queue)
    >>> memory.get().elements.view(np.float32)
    array([0., 3., 1., 4., 2., 5.], dtype=float32)
    """
    if queue is None:
        queue = _queue_of(x) or _queue_of(out)
    if queue is None:
        msg = "a pyopencl Buffer or Image has no queue; say queue="
        raise MemdescError(msg)
    check_queue(queue)
    events = checked_events(queue, wait_for)
    memory = out
    if isinstance(out, DeviceMemory):
        memory, dst = out.data, _agreed(dst, out.desc)
        events += out.events_before(queue)
    elif isinstance(out, _HOST):
        msg = "out is host memory, but the result lies on a device; take it with .get()"
        raise MemdescError(msg)
    source = as_source(x, src)
    if dst is None and memory is None and dtype is not None:
        dst = x.desc if isinstance(x, DeviceMemory) else _linear(source.desc)
    desc = _converted(_result_desc(dst, memory, source.desc), dtype)
    if memory is None and attr is not None and attr.beta:
        msg = f"beta {attr.beta} adds to what dst holds; give out, the memory that holds it"
        raise MemdescError(msg)
    if memory is not None:
        event = enqueue_into(queue, source, (memory, desc), events, attr)
        if isinstance(out, DeviceMemory):
            out.queue, out.event = queue, event
            return out
    elif isinstance(desc, MemoryDesc):
        memory, event = enqueue_into_new_buffer(queue, source, desc, events, attr)
    else:
        form = supported_format(queue, desc)
        memory, event = enqueue_into_new_image(queue, source, (desc, form), events, attr)
    return DeviceMemory(queue, memory, desc, event)


def _queue_of(memory: Any) -> cl.CommandQueue | None:
    return memory.queue if isinstance(memory, _WITH_QUEUE) else None


def _agreed(dst: LayoutLike | None, desc: MemoryDesc | ImageDesc) -> MemoryDesc | ImageDesc:
    """Return the descriptor of `out`, which dst must not contradict."""
    if dst is None or dst == desc:
        return desc
    if isinstance(dst, str | FormatTag) and _named(dst, desc.dims, desc.dtype) == desc:
        return desc
    msg = f"out is {desc!r}, but dst asks for {short_repr(dst)}"
    raise MemdescError(msg)


def _result_desc(
    dst: LayoutLike | None, memory: Any, src: MemoryDesc | ImageDesc
) -> MemoryDesc | ImageDesc:
    """Return the descriptor of the result; a name takes the dims of the tensor, and its dtype.

    An Array that is written has its own.
    """
    if isinstance(dst, _DESCS):
        return dst
    if dst is not None:
        is_typed = isinstance(memory, cl.array.Array)
        return _named(dst, src.dims, data_type(memory.dtype) if is_typed else src.dtype)
    if isinstance(memory, cl.array.Array):
        return array_desc(memory, "dst")
    msg = (
        "give dst, the layout to move into, or out, an Array or a DeviceMemory to write, or dtype, "
        "the type to convert to"
    )
    raise MemdescError(msg)


def _named(name: str | FormatTag, dims: tuple[int, ...], dtype: DataType) -> MemoryDesc | ImageDesc:
    """Return the descriptor of a name: an image for that of an image type."""
    if isinstance(name, str) and is_image(name):
        return image_desc(dims, dtype, name)
    return memory_desc(dims, dtype, name)


def _linear(desc: MemoryDesc | ImageDesc) -> MemoryDesc:
    """Return a descriptor of a buffer: of an image, that of its pixels."""
    return desc.desc if isinstance(desc, ImageDesc) else desc


def _converted(desc: MemoryDesc | ImageDesc, dtype: Any) -> MemoryDesc | ImageDesc:
    if dtype is None:
        return desc
    if isinstance(desc, MemoryDesc):
        return desc.with_dtype(dtype)
    return image_desc(desc.dims, dtype, desc.name)
