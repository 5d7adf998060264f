"""Pack tensors into images, and unpack them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memdesc import FormatTag, ImageDesc, MemoryDesc, memory_desc
from reorder.opencl.enqueue import enqueue_into, enqueue_into_new
from reorder.opencl.image_formats import supported_format
from reorder.opencl.queues import check_queue, checked_events
from reorder.opencl.sources import LayoutLike, Source, as_source, check_image_desc

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyopencl as cl

__all__ = ["enqueue_pack", "pack", "unpack"]


def pack(
    queue: cl.CommandQueue,
    src: Any,
    image_desc: ImageDesc,
    *,
    src_desc: LayoutLike | None = None,
    channel_type: int | str | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> tuple[cl.Image, cl.Event]:
    """Allocate an image and pack a tensor into it.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where it runs.
    src : ndarray, Memory, pyopencl.Buffer, pyopencl.array.Array or DeviceMemory
        The tensor; the axes of an array are its logical dims. Host memory is copied
        before the call returns; the rest happens on the device.
    image_desc : ImageDesc
        What to make, of the dims of src; of another dtype, the elements are converted.
    src_desc : str, FormatTag, MemoryDesc or ImageDesc, optional
        For an array whose axes are in memory order: the layout they spell, such as
        ``"nhwc"``. A Buffer needs a MemoryDesc, an Image an ImageDesc.
    channel_type : int or str, optional
        Of `pyopencl.channel_type`, where the dtype leaves a choice: ``"UNSIGNED_INT32"``
        (MACE) or ``"UNORM_INT8"`` (clDNN) for u8, ``"SIGNED_INT32"`` for s8.
    wait_for : sequence of pyopencl.Event, optional
        Events that must be complete before src is read.

    Returns
    -------
    image : pyopencl.Image
        Of image_desc.width x image_desc.height pixels.
    event : pyopencl.Event
        Done when the image is.

    Raises
    ------
    MemdescError
        If the device has no such image, or src does not fit; nothing is enqueued then.

    Examples
    --------
    >>> import numpy as np, pyopencl as cl, memdesc
    >>> from reorder import opencl
    >>> device = next(d.device for d in opencl.devices() if d.works)
    >>> context = cl.Context([device])
    >>> queue = cl.CommandQueue(context)
    >>> x = np.zeros((1, 17, 5, 4), np.float32)
    >>> image_desc = memdesc.image_desc(x.shape, "f32", "in_out_channel")
    >>> image, event = opencl.pack(queue, x, image_desc)
    >>> image.width, image.height
    (20, 5)
    """
    check_queue(queue)
    check_image_desc(image_desc)
    events = checked_events(queue, wait_for)
    form = supported_format(queue, image_desc, channel_type)
    return enqueue_into_new(queue, as_source(src, src_desc), (image_desc, form), events)


def enqueue_pack(
    queue: cl.CommandQueue,
    src: Any,
    image: cl.Image,
    image_desc: ImageDesc,
    *,
    src_desc: LayoutLike | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> cl.Event:
    """Pack a tensor into an existing image, which may be larger than needed.

    Parameters
    ----------
    queue, src, image_desc, src_desc, wait_for
        As for `pack`.
    image : pyopencl.Image
        Written from its first pixel on; pixels beyond `image_desc` stay as they are.

    Returns
    -------
    pyopencl.Event
        Done when the image is.

    Raises
    ------
    MemdescError
        If the image has another format or is too small, or src does not fit; nothing
        is enqueued then.

    Examples
    --------
    >>> import numpy as np, pyopencl as cl, memdesc
    >>> from reorder import opencl
    >>> device = next(d.device for d in opencl.devices() if d.works)
    >>> context = cl.Context([device])
    >>> queue = cl.CommandQueue(context)
    >>> x = np.zeros((1, 17, 5, 4), np.float32)
    >>> image_desc = memdesc.image_desc(x.shape, "f32", "in_out_channel")
    >>> image, event = opencl.pack(queue, x, image_desc)
    >>> opencl.enqueue_pack(queue, x + 1, image, image_desc, wait_for=[event]).wait()
    """
    check_queue(queue)
    check_image_desc(image_desc)
    events = checked_events(queue, wait_for)
    return enqueue_into(queue, as_source(src, src_desc), (image, image_desc), events)


def unpack(
    queue: cl.CommandQueue,
    image: cl.Image,
    image_desc: ImageDesc,
    desc: str | FormatTag | MemoryDesc,
    *,
    wait_for: Sequence[cl.Event] | None = None,
) -> tuple[cl.Buffer, cl.Event]:
    """Allocate a buffer and unpack an image into it.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where it runs.
    image : pyopencl.Image
        The image; it may be larger than its descriptor. Tail lanes are not read.
    image_desc : ImageDesc
        What it holds.
    desc : str, FormatTag or MemoryDesc
        The layout of the buffer; a MemoryDesc of another dtype converts.
    wait_for : sequence of pyopencl.Event, optional
        Events that must be complete before the image is read.

    Returns
    -------
    buffer : pyopencl.Buffer
        Of the descriptor's `nbytes`; its padding is zero.
    event : pyopencl.Event
        Complete when the buffer is written.

    Raises
    ------
    MemdescError
        If the image does not fit its descriptor, or that the layout; nothing is enqueued then.

    Examples
    --------
    >>> import numpy as np, pyopencl as cl, memdesc
    >>> from reorder import opencl
    >>> device = next(d.device for d in opencl.devices() if d.works)
    >>> context = cl.Context([device])
    >>> queue = cl.CommandQueue(context)
    >>> x = np.zeros((1, 17, 5, 4), np.float32)
    >>> image_desc = memdesc.image_desc(x.shape, "f32", "in_out_channel")
    >>> image, event = opencl.pack(queue, x, image_desc)
    >>> buffer, event = opencl.unpack(queue, image, image_desc, "nhwc", wait_for=[event])
    >>> event.wait()
    >>> buffer.size == x.nbytes
    True
    """
    check_queue(queue)
    check_image_desc(image_desc)
    events = checked_events(queue, wait_for)
    dst = (
        desc
        if isinstance(desc, MemoryDesc)
        else memory_desc(image_desc.dims, image_desc.dtype, desc)
    )
    return enqueue_into_new(queue, Source(image, image_desc), (dst, None), events)
