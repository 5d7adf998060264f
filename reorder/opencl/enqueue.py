"""Enqueue a reorder between buffers and images of one device."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from memdesc import MemdescError
from memdesc.errors import short_repr
from reorder.opencl.operands import Operand, check_apart, check_types, operand
from reorder.opencl.programs import prepare
from reorder.opencl.schedule.stages import Side, plan_stages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memdesc import ImageDesc, MemoryDesc
    from reorder.values.attr import Attr

__all__ = ["check_attr", "check_queue", "enqueue_operands", "enqueue_reorder"]


def enqueue_reorder(
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
        Where it runs; in order or out of order.
    src, dst : pyopencl.Buffer, pyopencl.array.Array or pyopencl.Image
        The memory. A Buffer or an Array, from its first element on, has at least the
        `min_nbytes` of its descriptor; an Image may be larger than its descriptor.
    src_desc, dst_desc : MemoryDesc or ImageDesc
        Of the same dims and dtype; f32 and f16 are converted into or out of an image.
    attr : Attr, optional
        None: scales and zero points are not supported on devices.
    wait_for : sequence of pyopencl.Event, optional
        What must have happened before src is read and dst written.

    Returns
    -------
    pyopencl.Event
        Done when dst is: the padding of dst is zero, its gaps are untouched.

    Raises
    ------
    MemdescError
        If the descriptors do not fit each other, the memory or the device; nothing is
        enqueued then.

    Notes
    -----
    *Law*: dst equals what `execute_reference` makes of the same descriptors, bit for bit,
    but that a NaN in an image of f16 may have another payload.
    """
    check_queue(queue)
    check_attr(attr)
    return enqueue_operands(
        queue, operand(queue, src, src_desc, "src"), operand(queue, dst, dst_desc, "dst"), wait_for
    )


def check_attr(attr: Any) -> None:
    """Refuse scales, zero points and accumulation, which devices do not do yet."""
    if attr is not None:
        msg = f"attr is {short_repr(attr)}: scales and zero points are not supported on devices; reorder on the CPU, or scale in a kernel"
        raise MemdescError(msg)


def check_queue(queue: Any) -> None:
    """Refuse what is no command queue, or one whose context is gone."""
    if not isinstance(queue, cl.CommandQueue):
        msg = f"queue must be a pyopencl.CommandQueue, not {short_repr(queue)}"
        raise MemdescError(msg)
    try:
        queue.context  # noqa: B018 - asking is the check
    except cl.Error as error:
        # Intel's queues do not keep their context
        msg = f"the queue has no context any more ({error}); keep the Context as long as its queues are used"
        raise MemdescError(msg) from None


def enqueue_operands(
    queue: cl.CommandQueue, src: Operand, dst: Operand, wait_for: Sequence[cl.Event] | None
) -> cl.Event:
    """Enqueue a reorder between sides that are checked alone, not yet together."""
    check_types(src, dst)
    check_apart(src, dst)
    sides = Side(src.desc, src.image, src.element(dst)), Side(dst.desc, dst.image, dst.element(src))
    stages = plan_stages(
        *sides, queue.device.max_work_group_size, is_aligned=src.is_aligned and dst.is_aligned
    )
    # all is built and allocated before the first one starts
    kernels = [[prepare(queue.context, launch) for launch in stage.launches] for stage in stages]
    handles = [src.handle, *(_between(queue, stage.dst) for stage in stages[:-1]), dst.handle]
    waiting = None if wait_for is None else list(wait_for)
    started: list[cl.Event] = []
    for stage, prepared, (source, target) in zip(stages, kernels, pairwise(handles), strict=True):
        if stage.region is not None:
            started = [_copy_pixels(queue, source, target, stage.region, waiting)]
        else:
            started = [kernel.start(queue, source, target, waiting) for kernel in prepared]
        waiting = started or waiting
    return started[0] if len(started) == 1 else cl.enqueue_marker(queue, wait_for=waiting)


def _between(queue: cl.CommandQueue, side: Side) -> cl.Buffer:
    # the runtime keeps it until the kernels that use it are done
    return cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, side.desc.nbytes)


def _copy_pixels(
    queue: cl.CommandQueue,
    src: Any,
    dst: Any,
    region: tuple[int, int],
    wait_for: Sequence[cl.Event] | None,
) -> cl.Event:
    """Copy pixels between an image and a linear buffer, as they are."""
    copy: Any = cl.enqueue_copy  # its types know no offset, and one of the two is an image
    event: cl.Event = copy(
        queue, dst, src, offset=0, origin=(0, 0, 0), region=(*region, 1), wait_for=wait_for
    )
    return event
