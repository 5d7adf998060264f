"""Pack tensors into images, and unpack them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyopencl as cl

from memdesc import FormatTag, ImageDesc, MemoryDesc, memory_desc
from reorder.opencl.enqueue import check_queue, enqueue_operands
from reorder.opencl.image_formats import channel_type_of, check_format, check_size, image_format
from reorder.opencl.inputs import Layout, check_image_desc, new_buffer, source_operand
from reorder.opencl.operands import Operand, check_types, operand
from reorder.opencl.schedule.placement import Raster

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["enqueue_pack", "pack", "unpack"]


def pack(
    queue: cl.CommandQueue,
    src: Any,
    image_desc: ImageDesc,
    *,
    src_desc: Layout | None = None,
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
        What to make, of the dims of src and its dtype; f32 and f16 are converted.
    src_desc : str, FormatTag, MemoryDesc or ImageDesc, optional
        For an array whose axes are in memory order: the layout they spell, such as
        ``"nhwc"``. A Buffer needs a MemoryDesc, an Image an ImageDesc.
    channel_type : int or str, optional
        Of `pyopencl.channel_type`, where the dtype leaves a choice: ``"UNSIGNED_INT32"``
        (MACE) or ``"UNORM_INT8"`` (clDNN) for u8, ``"SIGNED_INT32"`` for s8.
    wait_for : sequence of pyopencl.Event, optional
        What must have happened before src is read.

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
    """
    check_queue(queue)
    check_image_desc(image_desc)
    form = image_format(image_desc, channel_type)
    check_size(image_desc, queue.device)
    check_format(queue.context, form)
    target = Operand(
        None,
        image_desc.desc,
        Raster.of(image_desc),
        channel_type_of(image_desc, form, "dst"),
        is_aligned=True,
    )
    source, waiting = source_operand(queue, src, src_desc, target, wait_for)
    check_types(source, target)
    # what was released is seen before its address is given to something new
    image = cl.create_image(
        queue.context, cl.mem_flags.READ_WRITE, form, shape=(image_desc.width, image_desc.height)
    )
    return image, enqueue_operands(queue, source, target._replace(handle=image), waiting)


def enqueue_pack(
    queue: cl.CommandQueue,
    src: Any,
    image: cl.Image,
    image_desc: ImageDesc,
    *,
    src_desc: Layout | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> cl.Event:
    """Pack a tensor into an image that the caller has; it may be larger than needed.

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
    """
    check_queue(queue)
    check_image_desc(image_desc)
    target = operand(queue, image, image_desc, "dst")
    source, waiting = source_operand(queue, src, src_desc, target, wait_for)
    return enqueue_operands(queue, source, target, waiting)


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
        What lies in it.
    desc : str, FormatTag or MemoryDesc
        The layout of the buffer; a MemoryDesc of f32 or f16 converts.
    wait_for : sequence of pyopencl.Event, optional
        What must have happened before the image is read.

    Returns
    -------
    buffer : pyopencl.Buffer
        Of the descriptor's `nbytes`; its padding is zero.
    event : pyopencl.Event
        Done when the buffer is.

    Raises
    ------
    MemdescError
        If the image does not fit its descriptor, or that the layout; nothing is enqueued then.
    """
    check_queue(queue)
    check_image_desc(image_desc)
    source = operand(queue, image, image_desc, "src")
    target = (
        desc
        if isinstance(desc, MemoryDesc)
        else memory_desc(image_desc.dims, image_desc.dtype, desc)
    )
    buffer, checked = new_buffer(queue, target, source)
    return buffer, enqueue_operands(queue, source, checked, wait_for)
