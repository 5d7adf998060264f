"""Pack tensors into images, unpack them, and reorder on a device whatever is passed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pyopencl.array

from memdesc import FormatTag, ImageDesc, MemdescError, MemoryDesc, image_desc, memory_desc
from memdesc.errors import shown
from reorder.memory import Memory
from reorder.opencl.device_memory import DeviceMemory
from reorder.opencl.enqueue import check_attr, check_queue, enqueue_operands
from reorder.opencl.formats import channel_type_of, check_format, check_size, image_format
from reorder.opencl.operands import Operand, array_operand, check_types, operand
from reorder.opencl.sides import Raster
from reorder.pixels import from_pixels
from reorder.sources import as_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reorder.attr import Attr

__all__ = ["enqueue_pack", "pack", "reorder_on_device", "unpack"]

_READ_WRITE = cl.mem_flags.READ_WRITE
Layout = str | FormatTag | MemoryDesc | ImageDesc


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
    _check_image_desc(image_desc)
    form = image_format(image_desc, channel_type)
    check_size(image_desc, queue.device)
    check_format(queue.context, form)
    target = Operand(None, image_desc.desc, Raster.of(image_desc), channel_type_of(image_desc, form, "dst"), is_aligned=True)
    source, waiting = _source(queue, src, src_desc, target, wait_for)
    check_types(source, target)
    # what was released is seen before its address is given to something new
    image = cl.create_image(queue.context, _READ_WRITE, form, shape=(image_desc.width, image_desc.height))
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
    _check_image_desc(image_desc)
    target = operand(queue, image, image_desc, "dst")
    source, waiting = _source(queue, src, src_desc, target, wait_for)
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
    _check_image_desc(image_desc)
    source = operand(queue, image, image_desc, "src")
    target = desc if isinstance(desc, MemoryDesc) else memory_desc(image_desc.dims, image_desc.dtype, desc)
    buffer, checked = _new_buffer(queue, target, source)
    return buffer, enqueue_operands(queue, source, checked, wait_for)


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
    source, waiting = _source(queue, x, src, target, wait_for)
    if target is None:
        assert isinstance(desc, MemoryDesc)  # noqa: S101 - for the type checker: images are packed above
        memory, target = _new_buffer(queue, desc, source)
    return DeviceMemory(queue, memory, desc, enqueue_operands(queue, source, target, waiting))


def _queue_of(memory: Any) -> cl.CommandQueue | None:
    return memory.queue if isinstance(memory, DeviceMemory | cl.array.Array) else None


def _agreed(dst: Layout | None, own: MemoryDesc | ImageDesc) -> MemoryDesc | ImageDesc:
    if dst is None or dst == own:
        return own
    if isinstance(dst, str | FormatTag) and isinstance(own, MemoryDesc) and memory_desc(own.dims, own.dtype, dst) == own:
        return own
    msg = f"out is {own!r}, but dst asks for {shown(dst)}"
    raise MemdescError(msg)


def _wanted(x: Any, src: Layout | None, dst: Layout | None, memory: Any) -> MemoryDesc | ImageDesc:
    """Return the descriptor of the result; a name takes the dims and the dtype of the tensor."""
    if isinstance(dst, MemoryDesc | ImageDesc):
        return dst
    if isinstance(memory, cl.array.Array) and dst is None:
        return memory_desc(memory.shape, memory.dtype, strides=[step // memory.dtype.itemsize for step in memory.strides])
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
    return desc.with_dtype(dtype) if isinstance(desc, MemoryDesc) else image_desc(desc.dims, dtype, desc.name)


def _source(
    queue: cl.CommandQueue, src: Any, desc: Layout | None, target: Operand | None, wait_for: Sequence[cl.Event] | None
) -> tuple[Operand, list[cl.Event] | None]:
    """Return a tensor as memory of the device, and what to wait for before it is read."""
    waiting = None if wait_for is None else list(wait_for)
    if isinstance(src, DeviceMemory):
        if desc is not None:
            msg = "src_desc describes plain memory; a DeviceMemory has its own descriptor"
            raise MemdescError(msg)
        waiting = [*(waiting or []), *([src.event] if src.event is not None else [])]
        return operand(queue, src.data, src.desc, "src"), waiting
    if isinstance(src, cl.array.Array):
        if desc is None:
            buffer, own = array_operand(queue, src, "src")
            waiting = [*(waiting or []), *src.events]
            return operand(queue, buffer, own, "src"), waiting
        return operand(queue, src, _described(desc, src), "src"), [*(waiting or []), *src.events]
    if isinstance(src, cl.Buffer | cl.Image):
        return operand(queue, src, _described(desc, src), "src"), waiting
    memory = from_pixels(src, desc) if isinstance(desc, ImageDesc) else as_memory(_compact(src, desc), desc)
    if target is not None:
        # before anything is copied
        check_types(Operand(None, memory.desc, None, "", is_aligned=True), target)
    flags = cl.mem_flags.READ_ONLY
    buffer = cl.Buffer(queue.context, flags, max(memory.desc.min_nbytes, 1))
    if memory.desc.min_nbytes:
        cl.enqueue_copy(queue, buffer, memory.data[: memory.desc.min_nbytes])
    return operand(queue, buffer, memory.desc, "src"), waiting


def _described(desc: Layout | None, memory: Any) -> MemoryDesc | ImageDesc:
    if isinstance(desc, MemoryDesc | ImageDesc):
        return desc
    kind, needed = ("Image", "an ImageDesc") if isinstance(memory, cl.Image) else ("Buffer", "a MemoryDesc")
    msg = f"src is a pyopencl {kind}, which does not say what it holds; give src_desc=, {needed}"
    raise MemdescError(msg)


def _compact(x: Any, desc: Layout | None) -> Any:
    """Return an array without large gaps, which would be copied to the device as well."""
    if isinstance(x, np.ndarray) and not isinstance(desc, MemoryDesc) and x.size:
        low, high = np.lib.array_utils.byte_bounds(x)
        if high - low > x.nbytes:
            return np.ascontiguousarray(x)
    return x


def _new_buffer(queue: cl.CommandQueue, desc: MemoryDesc, source: Operand) -> tuple[cl.Buffer, Operand]:
    check_types(source, Operand(None, desc, None, "", is_aligned=True))
    buffer = cl.Buffer(queue.context, _READ_WRITE, max(desc.nbytes, 1))
    return buffer, operand(queue, buffer, desc, "dst")


def _check_image_desc(image_desc: Any) -> None:
    if not isinstance(image_desc, ImageDesc):
        msg = f"image_desc must be an ImageDesc, not {shown(image_desc)}; see memdesc.image_desc"
        raise MemdescError(msg)
