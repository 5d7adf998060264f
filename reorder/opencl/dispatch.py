"""`reorder.reorder` for calls with a queue, or with device objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pyopencl.array

from memdesc import (
    ImageDesc,
    MemdescError,
    MemoryDesc,
    data_type,
)
from reorder.memory.inputs import result_desc
from reorder.memory.memory import Memory
from reorder.opencl.arrays import array_desc
from reorder.opencl.device_memory import DeviceMemory
from reorder.opencl.enqueue import enqueue_into, enqueue_into_new
from reorder.opencl.image_formats import supported_format
from reorder.opencl.queues import check_queue, checked_events
from reorder.opencl.sources import LayoutLike, as_source

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    memory, known = out, None
    if isinstance(out, DeviceMemory):
        memory, known = out.data, out.desc
        events += out.events_before(queue)
    elif isinstance(out, _HOST):
        msg = "out is host memory, but the result lies on a device; take it with .get()"
        raise MemdescError(msg)
    elif isinstance(out, cl.array.Array):
        known, dtype = _described(out, dst, dtype)
    elif out is not None and dst is None:
        msg = "out is memory that does not say what it holds; give dst, its descriptor"
        raise MemdescError(msg)
    source = as_source(x, src)
    desc = result_desc(dst, dtype, source.desc, known)
    if memory is None and attr is not None and attr.beta:
        msg = f"beta {attr.beta} adds to what dst holds; give out, the memory that holds it"
        raise MemdescError(msg)
    if memory is not None:
        event = enqueue_into(queue, source, (memory, desc), events, attr)
        if isinstance(out, DeviceMemory):
            out.queue, out.event = queue, event
            return out
    else:
        form = supported_format(queue, desc) if isinstance(desc, ImageDesc) else None
        memory, event = enqueue_into_new(queue, source, (desc, form), events, attr)
    return DeviceMemory(queue, memory, desc, event)


def _queue_of(memory: Any) -> cl.CommandQueue | None:
    return memory.queue if isinstance(memory, _WITH_QUEUE) else None


def _described(
    out: cl.array.Array, dst: LayoutLike | None, dtype: Any
) -> tuple[MemoryDesc | None, Any]:
    """Return the descriptor that an Array has without dst, and the data type of a named layout.

    With a descriptor as dst, an Array is raw memory.
    """
    if dst is None:
        return array_desc(out, "dst"), dtype
    if isinstance(dst, _DESCS):
        return None, dtype
    own = data_type(out.dtype)
    if dtype is not None and data_type(dtype) != own:
        msg = (
            f"out is an Array of {own}, but dtype asks for {data_type(dtype)}; to write raw bytes, "
            "give dst, a descriptor"
        )
        raise MemdescError(msg)
    return None, own
