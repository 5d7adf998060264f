"""The public functions that enqueue reorders, into memory that exists or that they allocate.

Device memory that callers pass is used in place; host memory is copied to the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array
from pyopencl.tools import first_arg_dependent_memoize

from memdesc import DataType, FormatTag, ImageDesc, MemdescError, MemoryDesc, data_type, memory_desc
from memdesc.errors import short_repr
from reorder.memory.inputs import as_memory, check_axes, from_pixels, result_desc
from reorder.memory.memory import Memory
from reorder.opencl.allocation import allocate, allocate_buffer
from reorder.opencl.device_memory import DeviceMemory, events_of, record_event
from reorder.opencl.execution import enqueue_transfers, transfers_between
from reorder.opencl.image_formats import supported_format
from reorder.opencl.operands import Unallocated, array_desc, array_type, check_queue, checked_events
from reorder.values.attr import Attr, check_beta

LayoutLike = str | FormatTag | MemoryDesc | ImageDesc

# tuples, since a union of types is made anew in each call
_HOST = (Memory, np.ndarray)
_WITH_QUEUE = (DeviceMemory, cl.array.Array)
_DESCS = (MemoryDesc, ImageDesc)
_IN_PLACE = (cl.Buffer, cl.Image, cl.SVMPointer)
# Buffers of at most this many bytes are created with their content, without a queue: a reorder
# of 16 KiB takes 45 us instead of 255 on a CPU. 512 MB take 7 times as long this way on an H200.
_SMALL = 1 << 16


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
        The queue on which it runs, in-order or out-of-order.
    src, dst : pyopencl.Buffer, pyopencl.array.Array, pyopencl.SVMPointer or pyopencl.Image
        The memory. A Buffer, SVM, or an Array counted from its lowest element, has at least the
        `min_nbytes` of its descriptor; an Image may be larger than its descriptor. The `events`
        of an Array are waited for; an Array passed as dst then carries the returned event.
    src_desc, dst_desc : MemoryDesc or ImageDesc
        With the same dims and any data types.
    attr : Attr, optional
        Scales, zero points, accumulation into dst.
    wait_for : sequence of pyopencl.Event, optional
        Events that must be complete before src is read and dst written.

    Returns
    -------
    pyopencl.Event
        Complete when dst is written. Its padding is zero; its gaps are untouched.

    Raises
    ------
    MemdescError
        If the descriptors do not fit each other, the memory or the device; then nothing
        is enqueued.

    Notes
    -----
    *Law*: dst equals the result of `execute_reference` for the same descriptors, bit for bit,
    except that a NaN in an image of f16 may have another payload.

    Examples
    --------
    >>> src = cl.array.to_device(queue, np.arange(6, dtype=np.int8))
    >>> dst = cl.array.zeros(queue, 6, np.int8)
    >>> rows, columns = (memdesc.memory_desc((2, 3), "s8", tag) for tag in ("ab", "ba"))
    >>> opencl.enqueue_reorder(queue, src, rows, dst, columns).wait()
    >>> dst.get()
    array([0, 3, 1, 4, 2, 5], dtype=int8)
    """
    events = _checked(queue, wait_for)
    _, event = _enqueue(queue, Source(src, src_desc), (dst, dst_desc), events, attr)
    return event


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
        The queue on which it runs.
    src : ndarray, Memory, pyopencl.Buffer, pyopencl.array.Array or DeviceMemory
        The tensor; the axes of an array are its logical dims. Host memory is copied
        before the call returns; the rest happens on the device.
    image_desc : ImageDesc
        The image to make, with the dims of src; elements are converted to its dtype.
    src_desc : str, FormatTag, MemoryDesc or ImageDesc, optional
        For an array whose axes are in memory order: the layout they spell, such as
        ``"nhwc"``. A Buffer needs a MemoryDesc, an Image an ImageDesc.
    channel_type : int or str, optional
        One of `pyopencl.channel_type`, if the dtype leaves a choice: ``"UNSIGNED_INT32"``
        (MACE) or ``"UNORM_INT8"`` (clDNN) for u8, ``"SIGNED_INT32"`` for s8.
    wait_for : sequence of pyopencl.Event, optional
        Events that must be complete before src is read.

    Returns
    -------
    image : pyopencl.Image
        With image_desc.width x image_desc.height pixels.
    event : pyopencl.Event
        Complete when the image is written.

    Raises
    ------
    MemdescError
        If the device does not support such an image, or src does not fit; then nothing is
        enqueued.

    Examples
    --------
    >>> x = np.zeros((1, 17, 5, 4), np.float32)
    >>> image_desc = memdesc.image_desc(x.shape, "f32", "in_out_channel")
    >>> image, event = opencl.pack(queue, x, image_desc)
    >>> image.width, image.height
    (20, 5)
    """
    events = _checked(queue, wait_for, image_desc)
    target = Unallocated(supported_format(queue, image_desc, channel_type)), image_desc
    return _enqueue(queue, as_source(src, src_desc), target, events)


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
        Written starting at its first pixel; pixels beyond `image_desc` are untouched.

    Returns
    -------
    pyopencl.Event
        Complete when the image is written.

    Raises
    ------
    MemdescError
        If the image has another format or is too small, or src does not fit; then nothing
        is enqueued.

    Examples
    --------
    >>> x = np.zeros((1, 17, 5, 4), np.float32)
    >>> image_desc = memdesc.image_desc(x.shape, "f32", "in_out_channel")
    >>> image, event = opencl.pack(queue, x, image_desc)
    >>> opencl.enqueue_pack(queue, x + 1, image, image_desc, wait_for=[event]).wait()
    """
    events = _checked(queue, wait_for, image_desc)
    _, event = _enqueue(queue, as_source(src, src_desc), (image, image_desc), events)
    return event


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
    queue, wait_for
        As for `pack`.
    image : pyopencl.Image
        The image; it may be larger than its descriptor. Padding lanes are not read.
    image_desc : ImageDesc
        What it holds.
    desc : str, FormatTag or MemoryDesc
        The layout of the buffer; a MemoryDesc of another dtype converts.

    Returns
    -------
    buffer : pyopencl.Buffer
        Of the descriptor's `nbytes`; bytes that hold no element are zero.
    event : pyopencl.Event
        Complete when the buffer is written.

    Raises
    ------
    MemdescError
        If the image does not fit its descriptor, or the descriptor does not fit the layout;
        then nothing is enqueued.

    Examples
    --------
    >>> x = np.zeros((1, 17, 5, 4), np.float32)
    >>> image_desc = memdesc.image_desc(x.shape, "f32", "in_out_channel")
    >>> image, event = opencl.pack(queue, x, image_desc)
    >>> buffer, event = opencl.unpack(queue, image, image_desc, "nhwc", wait_for=[event])
    >>> event.wait()
    >>> buffer.size == x.nbytes
    True
    """
    events = _checked(queue, wait_for, image_desc)
    target = Unallocated(), _unpacked(desc, image_desc, image_desc.dtype)
    return _enqueue(queue, Source(image, image_desc), target, events)


def enqueue_unpack(
    queue: cl.CommandQueue,
    image: cl.Image,
    image_desc: ImageDesc,
    dst: Any,
    desc: str | FormatTag | MemoryDesc,
    *,
    wait_for: Sequence[cl.Event] | None = None,
) -> cl.Event:
    """Unpack an image into existing memory.

    Parameters
    ----------
    queue, image, image_desc, wait_for
        As for `unpack`.
    dst : pyopencl.Buffer, pyopencl.array.Array or pyopencl.SVMPointer
        The memory, as for `enqueue_reorder`.
    desc : str, FormatTag or MemoryDesc
        The layout of dst. With a name, its elements have the type of the Array, or that of the
        image; a MemoryDesc of another dtype converts.

    Returns
    -------
    pyopencl.Event
        Complete when dst is written. Its padding is zero; its gaps are untouched.

    Raises
    ------
    MemdescError
        If the image does not fit its descriptor, or dst does not fit `desc`; then nothing is
        enqueued.

    Notes
    -----
    *Law*: dst holds what `unpack` writes into a new buffer.

    Examples
    --------
    >>> x = np.random.default_rng(0).random((1, 17, 5, 4), np.float32)
    >>> image_desc = memdesc.image_desc(x.shape, "f32", "in_out_channel")
    >>> image, event = opencl.pack(queue, x, image_desc)
    >>> y = cl.array.empty(queue, x.shape, np.float32)
    >>> event = opencl.enqueue_unpack(queue, image, image_desc, y, "nchw", wait_for=[event])
    >>> bool((y.get() == x).all())
    True
    """
    events = _checked(queue, wait_for, image_desc)
    dtype = image_desc.dtype
    if isinstance(dst, cl.array.Array) and not isinstance(desc, MemoryDesc):
        # as with `reorder(out=array)`
        dtype = array_type(dst.dtype, "dst")
    target = dst, _unpacked(desc, image_desc, dtype)
    _, event = _enqueue(queue, Source(image, image_desc), target, events)
    return event


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
    """Reorder on a device, as `reorder.reorder` does for device objects or with a queue.

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
        As for `enqueue_reorder`; also if no queue is given and no argument has one.

    Examples
    --------
    >>> x = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> memory = opencl.reorder_on_device(x, "ba", queue=queue)
    >>> memory.get().elements.view(np.float32)
    array([0., 3., 1., 4., 2., 5.], dtype=float32)
    """
    if queue is None:
        queue = _queue_of(x) or _queue_of(out)
    if queue is None:
        msg = "a pyopencl Buffer or Image has no queue; pass queue="
        raise MemdescError(msg)
    events = _checked(queue, wait_for)
    memory, known = out, None
    if isinstance(out, DeviceMemory):
        memory, known = out.data, out.desc
        events += events_of(queue, out)
    elif isinstance(out, _HOST):
        msg = "out is host memory, but the result stays on a device; copy it with .get()"
        raise MemdescError(msg)
    elif isinstance(out, cl.array.Array):
        known, dtype = _described(out, dst, dtype)
    elif out is not None and dst is None:
        msg = "the layout of out is not known; pass its descriptor as dst"
        raise MemdescError(msg)
    source = as_source(x, src)
    desc = result_desc(dst, dtype, source.desc, known)
    check_beta(attr, out)
    if memory is None:
        form = supported_format(queue, desc) if isinstance(desc, ImageDesc) else None
        memory = Unallocated(form)
    memory, event = _enqueue(queue, source, (memory, desc), events, attr)
    if isinstance(out, DeviceMemory):
        out.queue, out.event = queue, event
        return out
    return DeviceMemory(queue, memory, desc, event)


def _queue_of(memory: Any) -> cl.CommandQueue | None:
    return memory.queue if isinstance(memory, _WITH_QUEUE) else None


def _described(
    out: cl.array.Array, dst: LayoutLike | None, dtype: Any
) -> tuple[MemoryDesc | None, Any]:
    """Return the descriptor of an Array given as `out`, and the data type of the result.

    With a descriptor as dst, an Array is raw memory. With a name, the result has its data type.
    """
    if dst is None:
        return array_desc(out, "dst"), dtype
    if isinstance(dst, _DESCS):
        return None, dtype
    own = array_type(out.dtype, "dst")
    if dtype is not None and data_type(dtype) != own:
        msg = (
            f"out is an Array of {own}, but dtype is {data_type(dtype)}; to write raw bytes, pass "
            "a descriptor as dst"
        )
        raise MemdescError(msg)
    return None, own


def _checked(
    queue: cl.CommandQueue, wait_for: Sequence[cl.Event] | None, *image_descs: ImageDesc
) -> list[cl.Event]:
    """Check a queue, descriptors of images, and events; return the events."""
    check_queue(queue)
    for given in image_descs:
        if not isinstance(given, ImageDesc):
            msg = (  # type: ignore[unreachable] # callers without types
                f"image_desc must be an ImageDesc, not {short_repr(given)}; see memdesc.image_desc"
            )
            raise MemdescError(msg)
    return checked_events(queue, wait_for)


def _unpacked(
    desc: str | FormatTag | MemoryDesc, image_desc: ImageDesc, dtype: DataType
) -> MemoryDesc:
    """Return the descriptor of the elements of an image in a layout."""
    return desc if isinstance(desc, MemoryDesc) else memory_desc(image_desc.dims, dtype, desc)


def _enqueue(
    queue: cl.CommandQueue,
    source: Source,
    target: tuple[Any, MemoryDesc | ImageDesc],
    wait_for: list[cl.Event],
    attr: Attr | None = None,
) -> tuple[Any, cl.Event]:
    """Check everything, allocate dst if it is `Unallocated`, and enqueue a reorder into it.

    An Array's events are waited for, and it carries the event that is returned.
    """
    memory, desc = target
    transfers, (src, dst) = transfers_between(
        queue, (source.memory, memory), (source.desc, desc), attr
    )
    waiting = wait_for + source.events(queue) + events_of(queue, memory)
    if isinstance(memory, Unallocated):
        memory = dst = allocate(queue.context, desc, memory.form)
        if isinstance(desc, MemoryDesc) and _has_gaps(desc):
            waiting.append(cl.enqueue_fill(queue, dst, np.zeros(1, np.uint8), desc.nbytes))
    if source.host is not None:
        src = _upload(queue, source.host)
    event = enqueue_transfers(queue, transfers, (src, dst), waiting or None)
    record_event(memory, event)
    return memory, event


@lru_cache(maxsize=1024)
def _has_gaps(desc: MemoryDesc) -> bool:
    """Whether a buffer has bits outside the elements, which no kernel writes."""
    ends_in_byte = desc.padded_nelems * desc.dtype.bits % 8 == 0
    is_full = desc.is_dense and not desc.offset0 and desc.extra is None and ends_in_byte
    return desc.nbytes > 0 and not is_full


class Source(NamedTuple):
    """A tensor to be read on a device.

    If the tensor is in host memory, that is `host`, and `memory` is not allocated yet. `owner` is
    the DeviceMemory that the memory belongs to, if any.
    """

    memory: Any
    desc: MemoryDesc | ImageDesc
    host: Memory | None = None
    owner: DeviceMemory | None = None

    def events(self, queue: cl.CommandQueue) -> list[cl.Event]:
        """Return what must be complete before a queue reads the tensor."""
        return events_of(queue, self.memory if self.owner is None else self.owner)


def as_source(src: Any, desc: LayoutLike | None) -> Source:
    """Describe a tensor; nothing is copied or checked against a queue yet."""
    if isinstance(src, DeviceMemory):
        if desc is not None:
            msg = "src_desc describes plain memory; a DeviceMemory has its own descriptor"
            raise MemdescError(msg)
        return Source(src.data, src.desc, None, src)
    if isinstance(src, cl.array.Array):
        known = array_desc(src, "src") if desc is None else _required_desc(desc, src)
        return Source(src, known)
    if isinstance(src, _IN_PLACE):
        return Source(src, _required_desc(desc, src))
    host = (
        from_pixels(src, desc)
        if isinstance(desc, ImageDesc)
        else as_memory(_without_gaps(src, desc), desc)
    )
    return Source(Unallocated(), host.desc, host)


def _upload(queue: cl.CommandQueue, host: Memory) -> cl.Buffer:
    """Return a buffer with the content of host memory, copied before the call returns.

    A copy on the caller's queue would wait for everything in that queue.
    """
    nbytes = host.desc.min_nbytes
    if not nbytes:
        return allocate_buffer(queue.context, 0)
    data = host.data[:nbytes]
    if nbytes <= _SMALL:
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(queue.context, flags, hostbuf=data)
    buffer = allocate_buffer(queue.context, nbytes, cl.mem_flags.READ_ONLY)
    cl.enqueue_copy(_copies(queue.context, queue.device), buffer, data)
    return buffer


@first_arg_dependent_memoize
def _copies(context: cl.Context, device: cl.Device) -> cl.CommandQueue:
    """Return the queue for copies from the host."""
    return cl.CommandQueue(context, device)


def _required_desc(desc: LayoutLike | None, memory: Any) -> MemoryDesc | ImageDesc:
    if isinstance(desc, MemoryDesc | ImageDesc):
        return desc
    is_image = isinstance(memory, cl.Image)
    kind = "Image" if is_image else "Buffer" if isinstance(memory, cl.Buffer) else "SVM"
    needed = "an ImageDesc" if is_image else "a MemoryDesc"
    msg = f"src is a pyopencl {kind}, whose layout is not known; pass src_desc=, {needed}"
    raise MemdescError(msg)


def _without_gaps(x: Any, desc: LayoutLike | None) -> Any:
    """Copy an array that has large gaps, which would otherwise be copied to the device too."""
    if isinstance(x, np.ndarray) and not isinstance(desc, MemoryDesc) and x.size:
        low, high = np.lib.array_utils.byte_bounds(x)
        if high - low > x.nbytes:
            if isinstance(desc, str | FormatTag):
                check_axes(x, desc)  # which no longer sees it in the copy
            return np.ascontiguousarray(x)
    return x
