"""What a reorder writes: memory that exists, or memory that is allocated for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reorder.opencl.allocation import allocate_buffer, allocate_image
from reorder.opencl.execution import enqueue_transfers
from reorder.opencl.known import transfers_between
from reorder.opencl.operands import Unallocated
from reorder.opencl.queues import events_of, record_event
from reorder.opencl.sources import upload

if TYPE_CHECKING:
    import pyopencl as cl

    from memdesc import ImageDesc, MemoryDesc
    from reorder.opencl.sources import Source
    from reorder.values.attr import Attr

__all__ = ["enqueue_into", "enqueue_into_new_buffer", "enqueue_into_new_image"]


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


def enqueue_into_new_buffer(
    queue: cl.CommandQueue,
    source: Source,
    desc: MemoryDesc,
    wait_for: list[cl.Event],
    attr: Attr | None = None,
) -> tuple[cl.Buffer, cl.Event]:
    """Check everything, then allocate a buffer for a descriptor and enqueue the reorder into it."""
    transfers, (src, _) = transfers_between(
        queue, (source.memory, Unallocated()), (source.desc, desc), attr
    )
    buffer = allocate_buffer(queue.context, desc.nbytes)
    if source.host is not None:
        src = upload(queue, source.host)
    waiting = wait_for + source.events(queue)
    return buffer, enqueue_transfers(queue, transfers, (src, buffer), waiting or None)


def enqueue_into_new_image(
    queue: cl.CommandQueue,
    source: Source,
    target: tuple[ImageDesc, cl.ImageFormat],
    wait_for: list[cl.Event],
    attr: Attr | None = None,
) -> tuple[cl.Image, cl.Event]:
    """Check everything, then allocate an image of a format and enqueue the reorder into it."""
    desc, form = target
    transfers, (src, _) = transfers_between(
        queue, (source.memory, Unallocated(form)), (source.desc, desc), attr
    )
    image = allocate_image(queue.context, form, desc)
    if source.host is not None:
        src = upload(queue, source.host)
    waiting = wait_for + source.events(queue)
    return image, enqueue_transfers(queue, transfers, (src, image), waiting or None)
