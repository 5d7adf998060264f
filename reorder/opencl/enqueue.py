"""Enqueue a reorder between buffers and images of one device."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pyopencl as cl

from memdesc import MemdescError
from memdesc.errors import short_repr
from reorder.opencl.operands import device_operand
from reorder.opencl.pairs import check_pair
from reorder.opencl.programs import PreparedLaunch, prepare
from reorder.opencl.schedule.transfers import Transfer, plan_transfers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memdesc import ImageDesc, MemoryDesc
    from reorder.opencl.operands import DeviceOperand
    from reorder.values.attr import Attr

__all__ = [
    "PreparedTransfer",
    "check_attr",
    "check_queue",
    "enqueue_reorder",
    "enqueue_transfers",
    "prepare_transfers",
]


class PreparedTransfer(NamedTuple):
    """A transfer with the kernels of its launches."""

    transfer: Transfer
    launches: tuple[PreparedLaunch, ...]


def enqueue_reorder(  # noqa: PLR0913, PLR0917 - public: a queue, two operands, their descriptors
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
    check_attr(attr)
    source = device_operand(queue, src, src_desc, "src")
    target = device_operand(queue, dst, dst_desc, "dst")
    transfers = prepare_transfers(queue, source, target)
    return enqueue_transfers(queue, transfers, (source.memory, target.memory), wait_for)


def check_attr(attr: Any) -> None:
    """Refuse scales, zero points and accumulation, which devices do not do yet."""
    if attr is not None:
        msg = (
            f"attr is {short_repr(attr)}: scales and zero points are not supported on devices; "
            "reorder on the CPU, or scale in a kernel"
        )
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
        msg = (
            f"the queue has no context any more ({error}); "
            "keep the Context as long as its queues are used"
        )
        raise MemdescError(msg) from None


def prepare_transfers(
    queue: cl.CommandQueue, src: DeviceOperand, dst: DeviceOperand
) -> tuple[PreparedTransfer, ...]:
    """Check two operands against each other, plan their transfers and build the kernels.

    Nothing is allocated: an operand without memory stands for what will be.
    """
    check_pair(src, dst)
    transfers = plan_transfers(
        src.spec(dst),
        dst.spec(src),
        queue.device.max_work_group_size,
        is_aligned=src.is_aligned and dst.is_aligned,
    )
    context = queue.context
    return tuple(
        PreparedTransfer(transfer, tuple(prepare(context, launch) for launch in transfer.launches))
        for transfer in transfers
    )


def enqueue_transfers(
    queue: cl.CommandQueue,
    transfers: Sequence[PreparedTransfer],
    memory: tuple[Any, Any],
    wait_for: Sequence[cl.Event] | None,
) -> cl.Event:
    """Enqueue prepared transfers from the first memory to the second."""
    # all buffers are allocated before the first transfer starts; the runtime keeps them until
    # the kernels that use them are done
    between = [
        cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, transfer.dst.desc.nbytes)
        for transfer, _ in transfers[:-1]
    ]
    waiting = None if wait_for is None else list(wait_for)
    events: list[cl.Event] = []
    operands = pairwise([memory[0], *between, memory[1]])
    for (transfer, launches), (src, dst) in zip(transfers, operands, strict=True):
        if transfer.region is not None:
            events = [_copy_pixels(queue, (src, dst), transfer.region, waiting)]
        else:
            events = [launch.enqueue(queue, src, dst, waiting) for launch in launches]
        waiting = events or waiting
    return events[0] if len(events) == 1 else cl.enqueue_marker(queue, wait_for=waiting)


def _copy_pixels(
    queue: cl.CommandQueue,
    memory: tuple[Any, Any],
    region: tuple[int, int],
    wait_for: Sequence[cl.Event] | None,
) -> cl.Event:
    """Copy pixels between an image and a linear buffer, as they are."""
    copy: Any = cl.enqueue_copy  # its types know no offset, and one of the two is an image
    src, dst = memory
    event: cl.Event = copy(
        queue, dst, src, offset=0, origin=(0, 0, 0), region=(*region, 1), wait_for=wait_for
    )
    return event
