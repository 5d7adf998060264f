"""Enqueue a reorder on a device, into memory that exists or memory that is allocated for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memdesc import ImageDesc
from reorder.opencl.allocation import allocate_buffer, allocate_image
from reorder.opencl.execution import enqueue_transfers
from reorder.opencl.known import transfers_between
from reorder.opencl.operands import Unallocated
from reorder.opencl.queues import check_queue, checked_events, events_of, record_event
from reorder.opencl.sources import Source, upload

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyopencl as cl

    from memdesc import MemoryDesc
    from reorder.values.attr import Attr

__all__ = ["enqueue_into", "enqueue_into_new", "enqueue_reorder"]


def enqueue_reorder(  # noqa: PLR0913 - public: a queue, two operands, their descriptors
    queue: cl.CommandQueue,
    src: Any,
    src_desc: MemoryDesc | ImageDesc,
    dst: Any,
    dst_desc: MemoryDesc | ImageDesc,
    attr: Attr | None = None,
    *,
    wait_for: Sequence[cl.Event] | None = None,
) -> cl.Event:
    """Enqueue a reorder from a buffer or image into another, on the queue's device.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        The queue on which it runs; in order or out of order.
    src, dst : pyopencl.Buffer, pyopencl.array.Array, pyopencl.SVMPointer or pyopencl.Image
        The memory. A Buffer, SVM or an Array, from its lowest element on, has at least the
        `min_nbytes` of its descriptor; an Image may be larger than its descriptor. The
        `events` of an Array are waited for, and that of dst gets the event returned.
    src_desc, dst_desc : MemoryDesc or ImageDesc
        Of the same dims; of any data types.
    attr : Attr, optional
        Scales, zero points, accumulation into dst.
    wait_for : sequence of pyopencl.Event, optional
        Events that must be complete before src is read and dst written.

    Returns
    -------
    pyopencl.Event
        Complete when dst is written: its padding is zero, its gaps are untouched.

    Raises
    ------
    MemdescError
        If the descriptors do not fit each other, the memory or the device; nothing is
        enqueued then.

    Notes
    -----
    *Law*: dst equals the result of `execute_reference` for the same descriptors, bit for bit,
    except that a NaN in an image of f16 may have another payload.

    Examples
    --------
    >>> import numpy as np, pyopencl as cl, pyopencl.array, memdesc
    >>> from reorder import opencl
    >>> device = next(d.device for d in opencl.devices() if d.works)
    >>> context = cl.Context([device])
    >>> queue = cl.CommandQueue(context)
    >>> src = cl.array.to_device(queue, np.arange(6, dtype=np.int8))
    >>> dst = cl.array.zeros(queue, 6, np.int8)
    >>> rows, columns = (memdesc.memory_desc((2, 3), "s8", tag) for tag in ("ab", "ba"))
    >>> opencl.enqueue_reorder(queue, src, rows, dst, columns).wait()
    >>> dst.get()
    array([0, 3, 1, 4, 2, 5], dtype=int8)
    """
    check_queue(queue)
    events = checked_events(queue, wait_for)
    return enqueue_into(queue, Source(src, src_desc), (dst, dst_desc), events, attr)


def enqueue_into(
    queue: cl.CommandQueue,
    source: Source,
    target: tuple[Any, MemoryDesc | ImageDesc],
    wait_for: list[cl.Event],
    attr: Attr | None = None,
) -> cl.Event:
    """Enqueue a reorder into memory with its descriptor.

    The events of an Array are waited for, and it gets the event that is returned.
    """
    memory, desc = target
    transfers, (src, dst) = transfers_between(
        queue, (source.memory, memory), (source.desc, desc), attr
    )
    if source.host is not None:
        src = upload(queue, source.host)
    waiting = wait_for + source.events(queue) + events_of(queue, memory)
    event = enqueue_transfers(queue, transfers, (src, dst), waiting or None)
    record_event(memory, event)
    return event


def enqueue_into_new(
    queue: cl.CommandQueue,
    source: Source,
    target: tuple[MemoryDesc | ImageDesc, cl.ImageFormat | None],
    wait_for: list[cl.Event],
    attr: Attr | None = None,
) -> tuple[Any, cl.Event]:
    """Check everything, then allocate memory for a descriptor and enqueue the reorder into it.

    It is an image of the format for an ImageDesc, else a buffer.
    """
    desc, form = target
    transfers, (src, _) = transfers_between(
        queue, (source.memory, Unallocated(form)), (source.desc, desc), attr
    )
    memory: Any
    if isinstance(desc, ImageDesc):
        assert form is not None  # noqa: S101 - for the type checker
        memory = allocate_image(queue.context, form, desc)
    else:
        memory = allocate_buffer(queue.context, desc.nbytes)
    if source.host is not None:
        src = upload(queue, source.host)
    waiting = wait_for + source.events(queue)
    return memory, enqueue_transfers(queue, transfers, (src, memory), waiting or None)
