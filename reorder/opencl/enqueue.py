"""The public functions that enqueue reorders, into memory that exists or that they allocate.

Device memory that callers pass is used in place; host memory is copied to the device.

A repeated call takes one look-up, then one launch, as in `reorder.calls` on the CPU. Its key is its
named arguments and, for each memory, what kernels depend on. The long way checks everything, raises
all errors, and leaves what it has found; a call that fits nothing goes the long way. What a runtime
says about a Buffer or an Image never changes, so the object carries it. Objects in a key stand for
themselves, by `id`: what is found keeps descriptors and attributes alive, but no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array
from numpy.typing import NDArray
from pyopencl.tools import first_arg_dependent_memoize

from memdesc import ImageDesc, MemdescError, MemoryDesc, data_type
from memdesc.errors import short_repr
from memdesc.tags import FormatTag
from memdesc.tuples import NamedTuple
from reorder.memory.buffers import address_of
from reorder.memory.inputs import as_memory, check_axes, from_pixels, result_desc
from reorder.memory.memory import Memory
from reorder.opencl.device_memory import DeviceMemory, events_of, record_event
from reorder.opencl.execution import Prepared, PreparedLaunch, enqueue_transfers, prepare_transfers
from reorder.opencl.kernel.transfers import OperandSpec
from reorder.opencl.memory_objects import ALLOCATED, allocate, allocate_buffer
from reorder.opencl.operands import (
    DeviceOperand,
    array_desc,
    array_type,
    check_desc,
    check_queue,
    checked_events,
    device_operand,
    new_operand,
)
from reorder.opencl.runtimes import state
from reorder.values.attr import Attr, check_beta

LayoutLike = str | FormatTag | MemoryDesc | ImageDesc
# the memory that kernels get, its allocation, its part of a key, and the events that it carries
Side = tuple[Any, int, tuple[Any, ...], Sequence[cl.Event]]

# tuples, because a union of types would be made anew in each call
_HOST = (Memory, np.ndarray)
_WITH_QUEUE = (DeviceMemory, cl.array.Array)
_DESCS = (MemoryDesc, ImageDesc)
_IN_PLACE = (cl.Buffer, cl.Image, cl.SVMPointer, cl.array.Array)
_enqueue: Callable[..., cl.Event] = cl.enqueue_nd_range_kernel
_UPLOAD = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
# set the fields of a DeviceMemory that need no checks
_set_queue, _set_data, _set_desc, _set_event, _set_known = (
    vars(DeviceMemory)[field].__set__ for field in ("queue", "data", "desc", "event", "known_event")
)


def enqueue_reorder(  # noqa: PLR0913 - public: a queue, two operands, their descriptors
    queue: cl.CommandQueue,
    x: Any,
    out: Any,
    *,
    src: MemoryDesc | ImageDesc,
    dst: MemoryDesc | ImageDesc,
    attr: Attr | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> cl.Event:
    """Enqueue a reorder from a buffer or image into another, on the queue's device.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        The queue on which it runs, in-order or out-of-order.
    x, out : pyopencl.Buffer, pyopencl.array.Array, pyopencl.SVMPointer or pyopencl.Image
        The memory to read, and to write. A Buffer, SVM, or an Array counted from its lowest
        element, has at least the `min_nbytes` of its descriptor; an Image may be larger than its
        descriptor. The `events` of an Array are waited for; an Array passed as `out` then carries
        the returned event.
    src, dst : MemoryDesc or ImageDesc
        What x and `out` hold: the same dims, any data types.
    attr : Attr, optional
        Scales, zero points, accumulation into `out`.
    wait_for : sequence of pyopencl.Event, optional
        Events that must be complete before x is read and `out` written.

    Returns
    -------
    pyopencl.Event
        Complete when `out` is written. Its padding is zero; its gaps are untouched.

    Raises
    ------
    MemdescError
        If descriptors, memory and device do not fit each other; then nothing is enqueued.

    Notes
    -----
    *Law*: `out` equals the result of `execute_reference` for the same descriptors, bit for bit,
    except that a NaN in an image of f16 may have another payload.

    Examples
    --------
    >>> x = cl.array.to_device(queue, np.arange(6, dtype=np.int8))
    >>> out = cl.array.zeros(queue, 6, np.int8)
    >>> rows, columns = (memdesc.memory_desc((2, 3), "s8", tag) for tag in ("ab", "ba"))
    >>> opencl.enqueue_reorder(queue, x, out, src=rows, dst=columns).wait()
    >>> out.get()
    array([0, 3, 1, 4, 2, 5], dtype=int8)
    """
    return _call(queue, "enqueue_reorder", x, out, dst, src, attr, wait_for)[1]


def pack(  # noqa: PLR0913 - all but the first three are named
    queue: cl.CommandQueue,
    x: Any,
    dst: str | ImageDesc,
    *,
    src: LayoutLike | None = None,
    attr: Attr | None = None,
    channel_type: int | str | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> tuple[cl.Image, cl.Event]:
    """Allocate an image and pack a tensor into it.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        The queue on which it runs.
    x : ndarray, Memory, pyopencl.Buffer, pyopencl.array.Array or DeviceMemory
        The tensor; the axes of an array are its logical dims. Host memory is copied
        before the call returns; the rest happens on the device.
    dst : ImageDesc or str
        The image to make, with the dims of x; elements are converted to its dtype. With the name
        of an image type, the dtype is that of x.
    src : str, FormatTag, MemoryDesc or ImageDesc, optional
        For an array whose axes are in memory order: the layout they spell, such as
        ``"nhwc"``. A Buffer needs a MemoryDesc, an Image an ImageDesc.
    attr : Attr, optional
        Scales and zero points.
    channel_type : int or str, optional
        One of `pyopencl.channel_type`, if the dtype leaves a choice: ``"UNSIGNED_INT32"``
        (MACE) or ``"UNORM_INT8"`` (clDNN) for u8, ``"SIGNED_INT32"`` for s8.
    wait_for : sequence of pyopencl.Event, optional
        Events that must be complete before x is read.

    Returns
    -------
    image : pyopencl.Image
        With dst.width x dst.height pixels.
    event : pyopencl.Event
        Complete when the image is written.

    Raises
    ------
    MemdescError
        If the device has no such images, or x does not fit; then nothing is enqueued.

    Examples
    --------
    >>> x = np.zeros((1, 17, 5, 4), np.float32)
    >>> image, event = opencl.pack(queue, x, "in_out_channel")
    >>> image.width, image.height
    (20, 5)
    """
    return _call(queue, "pack", x, None, dst, src, attr, wait_for, None, channel_type)[:2]


def enqueue_pack(  # noqa: PLR0913 - all but the first four are named
    queue: cl.CommandQueue,
    x: Any,
    image: cl.Image,
    dst: str | ImageDesc,
    *,
    src: LayoutLike | None = None,
    attr: Attr | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> cl.Event:
    """Pack a tensor into an existing image, which may be larger than needed.

    Parameters
    ----------
    queue, x, dst, src, attr, wait_for
        As for `pack`.
    image : pyopencl.Image
        Written starting at its first pixel; pixels beyond dst are untouched.

    Returns
    -------
    pyopencl.Event
        Complete when the image is written.

    Raises
    ------
    MemdescError
        If the image or x does not fit dst; then nothing is enqueued.

    Examples
    --------
    >>> x = np.zeros((1, 17, 5, 4), np.float32)
    >>> dst = memdesc.image_desc(x.shape, "f32", "in_out_channel")
    >>> image, event = opencl.pack(queue, x, dst)
    >>> opencl.enqueue_pack(queue, x + 1, image, dst, wait_for=[event]).wait()
    """
    return _call(queue, "enqueue_pack", x, image, dst, src, attr, wait_for)[1]


def unpack(
    queue: cl.CommandQueue,
    image: cl.Image,
    dst: str | FormatTag | MemoryDesc,
    src: ImageDesc,
    *,
    attr: Attr | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> tuple[cl.Buffer, cl.Event]:
    """Allocate a buffer and unpack an image into it.

    Parameters
    ----------
    queue, attr, wait_for
        As for `pack`.
    image : pyopencl.Image
        The image; it may be larger than its descriptor. Its padding lanes may hold anything.
    dst : str, FormatTag or MemoryDesc
        The layout of the buffer; a MemoryDesc of another dtype converts.
    src : ImageDesc
        What the image holds.

    Returns
    -------
    buffer : pyopencl.Buffer
        Of the descriptor's `nbytes`; bytes that hold no element are zero.
    event : pyopencl.Event
        Complete when the buffer is written.

    Raises
    ------
    MemdescError
        If the image does not fit src, or src does not fit dst; then nothing is enqueued.

    Examples
    --------
    >>> x = np.zeros((1, 17, 5, 4), np.float32)
    >>> pixels = memdesc.image_desc(x.shape, "f32", "in_out_channel")
    >>> image, event = opencl.pack(queue, x, pixels)
    >>> buffer, event = opencl.unpack(queue, image, "nhwc", pixels, wait_for=[event])
    >>> event.wait()
    >>> buffer.size == x.nbytes
    True
    """
    return _call(queue, "unpack", image, None, dst, src, attr, wait_for)[:2]


def enqueue_unpack(  # noqa: PLR0913 - all but the first five are named
    queue: cl.CommandQueue,
    image: cl.Image,
    out: Any,
    dst: str | FormatTag | MemoryDesc,
    src: ImageDesc,
    *,
    attr: Attr | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> cl.Event:
    """Unpack an image into existing memory.

    Parameters
    ----------
    queue, image, src, attr, wait_for
        As for `unpack`.
    out : pyopencl.Buffer, pyopencl.array.Array or pyopencl.SVMPointer
        The memory, as for `enqueue_reorder`.
    dst : str, FormatTag or MemoryDesc
        The layout of `out`. With a name, its elements have the type of the Array, or that of the
        image; a MemoryDesc of another dtype converts.

    Returns
    -------
    pyopencl.Event
        Complete when `out` is written. Its padding is zero; its gaps are untouched.

    Raises
    ------
    MemdescError
        If the image does not fit src, or `out` does not fit dst; then nothing is enqueued.

    Notes
    -----
    *Law*: `out` holds what `unpack` writes into a new buffer.

    Examples
    --------
    >>> x = np.random.default_rng(0).random((1, 17, 5, 4), np.float32)
    >>> pixels = memdesc.image_desc(x.shape, "f32", "in_out_channel")
    >>> image, event = opencl.pack(queue, x, pixels)
    >>> y = cl.array.empty(queue, x.shape, np.float32)
    >>> event = opencl.enqueue_unpack(queue, image, y, "nchw", pixels, wait_for=[event])
    >>> bool((y.get() == x).all())
    True
    """
    return _call(queue, "enqueue_unpack", image, out, dst, src, attr, wait_for)[1]


def reorder_on_device(  # noqa: PLR0913 - the arguments of `reorder.reorder`
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
    """Reorder on a device, as `reorder.reorder` does for device objects or with a queue."""
    if queue is None:
        if isinstance(x, _WITH_QUEUE):
            queue = x.queue
        if queue is None and isinstance(out, _WITH_QUEUE):
            queue = out.queue
        if queue is None:
            raise MemdescError("a pyopencl Buffer or Image has no queue; pass queue=")
    memory, event, desc = _call(queue, "reorder", x, out, dst, src, attr, wait_for, dtype)
    made: DeviceMemory = out if isinstance(out, DeviceMemory) else object.__new__(DeviceMemory)
    _set_queue(made, queue)
    if made is not out:
        _set_data(made, memory if out is None else out)
        _set_desc(made, desc)
    _set_event(made, event)
    _set_known(made, event)
    return made


# the most calls that a queue knows; then it forgets all of them
_MAX_CALLS = 512
# Host arrays of at most this many bytes become buffers with their content, without a queue: a
# reorder of 16 KiB takes 45 us instead of 255 on a CPU; on an H200, 512 MB take 7 times as long.
_SMALL = 1 << 16
# the allocation of memory that a call makes; no memory object has this pointer
_UNKNOWN = 0
_NO_EVENTS: tuple[cl.Event, ...] = ()


class _Queue(NamedTuple):
    """What a queue carries: its context, which Intel's queues do not keep, and known calls."""

    context: cl.Context
    pointer: int
    calls: dict[Any, _KnownCall]


class _Facts(NamedTuple):
    """What a Buffer or an Image carries: its context and allocation, its size, what keys have."""

    context: int
    allocation: int
    nbytes: int
    compared: tuple[Any, ...]


class _KnownCall(NamedTuple):
    """What runs equal calls, what their results take, and the `owners` of the ids in the key."""

    transfers: Prepared
    # the only launch, which is enqueued without further calls; None if there are several
    launch: PreparedLaunch | None
    desc: MemoryDesc | ImageDesc
    form: cl.ImageFormat | None
    owners: tuple[object, ...]


def _note_call(
    queue: cl.CommandQueue,
    names: tuple[object, ...],
    arguments: _Arguments,
    transfers: Prepared,
    result: tuple[MemoryDesc | ImageDesc, cl.ImageFormat | None],
) -> None:
    """Keep what a call with these `names` has run, for a result of a descriptor and a format."""
    owners = [arguments.dst, arguments.src, arguments.dtype, arguments.attr, arguments.channel_type]
    is_large = arguments.attr is not None and arguments.attr.is_large
    if is_large or type(queue) is not cl.CommandQueue:
        return
    carrier: Any = queue
    # objects of older versions of pyopencl carry nothing
    with suppress(AttributeError, LookupError, TypeError, cl.Error):
        if not hasattr(carrier, "memdesc_known"):
            context = queue.context
            carrier.memdesc_known = _Queue(context, context.int_ptr, {})
        held: _Queue = carrier.memdesc_known
        says = tuple(_SIDES[type(of)](of, queue, held)[2] for of in (arguments.x, arguments.out))
        owners += [of.desc for of in (arguments.x, arguments.out) if type(of) is DeviceMemory]
        launches = [launch for _, prepared in transfers for launch in prepared]
        is_single = len(launches) == len(transfers) == 1 and launches[0].reads
        launch = launches[0] if is_single else None
        if len(held.calls) >= _MAX_CALLS:
            held.calls.clear()
        held.calls[(names, *says)] = _KnownCall(transfers, launch, *result, tuple(owners))


def _facts_of(memory: Any) -> _Facts:
    """Ask what never changes; parts of buffers, and host memory, are always checked."""
    flags, nbytes = memory.flags, memory.size
    if memory.associated_memobject is not None or flags & cl.mem_flags.USE_HOST_PTR:
        raise LookupError
    compared: tuple[Any, ...] = flags, nbytes
    if isinstance(memory, cl.Image):
        form, size = memory.format, (memory.width, memory.height)
        compared += (memory.type, form.channel_order, form.channel_data_type, *size)
    facts = _Facts(memory.context.int_ptr, memory.int_ptr, nbytes, compared)
    memory.memdesc_facts = facts
    return facts


def _plain(memory: Any, queue: Any, held: _Queue) -> Side:  # noqa: ARG001 - as the others
    """Return a Buffer or an Image that was not released; the size of a caller's shows that."""
    # memory of this library that was released must not be queried
    is_ours = type(memory) in ALLOCATED
    if is_ours and memory.is_released:
        raise LookupError
    try:
        facts: _Facts = memory.memdesc_facts
    except AttributeError:
        facts = _facts_of(memory)
    if facts.context != held.pointer or not (is_ours or memory.size == facts.nbytes):
        raise LookupError
    return memory, facts.allocation, facts.compared, _NO_EVENTS


def _array(array: cl.array.Array, queue: Any, held: _Queue) -> Side:
    """Return the memory of an array; everything else that it says may have changed."""
    memory = array.base_data
    # an array without elements has no memory
    if memory is None or array.queue is not queue:
        raise LookupError
    data, allocation, compared, _ = _SIDES[type(memory)](memory, queue, held)
    says = compared, array.dtype, array.offset, array.strides, array.shape
    event: Any
    for event in array.events:
        # PoCL would wait forever for an event of another context
        if event.context.int_ptr != held.pointer:
            raise LookupError
    return data, allocation, says, array.events


def _device_memory(memory: DeviceMemory, queue: Any, held: _Queue) -> Side:
    """Return the memory of a DeviceMemory, and the event that fills it."""
    data, allocation, says, events = _SIDES[type(memory.data)](memory.data, queue, held)
    if memory.queue is not queue or events is not _NO_EVENTS:
        raise LookupError
    says = id(memory.desc), says
    event: Any = memory.event
    if event is None:
        return data, allocation, says, _NO_EVENTS
    if event is not memory.known_event:
        # as above
        if event.context.int_ptr != held.pointer:
            raise LookupError
        memory.known_event = event
    return data, allocation, says, (event,)


def _host(array: NDArray[Any], queue: Any, held: _Queue) -> Side:  # noqa: ARG001 - as the others
    """Return a small array whose bytes go into a buffer as they are."""
    dtype = array.dtype
    is_moved = dtype.kind in "fiu" and dtype.isnative and array.flags.c_contiguous
    if not is_moved or not 0 < array.nbytes <= _SMALL:
        raise LookupError
    return None, _UNKNOWN, (array.shape, dtype), _NO_EVENTS


_SIDES: Mapping[type, Callable[[Any, Any, _Queue], Side]] = MappingProxyType(
    {
        **dict.fromkeys((cl.Buffer, cl.Image, *ALLOCATED), _plain),
        cl.array.Array: _array,
        DeviceMemory: _device_memory,
        np.ndarray: _host,
        type(None): lambda *_: (None, _UNKNOWN, (), _NO_EVENTS),  # a result is allocated
    }
)


class _Arguments(NamedTuple):
    """What a function was given; messages call its operands as it does."""

    function: str
    x: Any
    out: Any
    dst: Any
    src: Any
    attr: Attr | None
    wait_for: Sequence[cl.Event] | None
    dtype: Any
    channel_type: Any

    @property
    def called(self) -> tuple[str, str]:
        """The names of src and of dst."""
        x = "image" if self.function.endswith("unpack") else "x"
        return x, "image" if self.function == "enqueue_pack" else "out"


def _call(  # noqa: C901, PLR0912, PLR0913, PLR0917 - each function takes a tenth of a launch
    queue: Any,
    function: str,
    x: Any,
    out: Any,
    dst: Any,
    src: Any,
    attr: Attr | None,
    wait_for: Sequence[cl.Event] | None,
    dtype: Any = None,
    channel_type: Any = None,
) -> tuple[Any, cl.Event, MemoryDesc | ImageDesc]:
    """Enqueue a reorder: without checks if it is known. Returns dst, the event, the descriptor."""
    names: tuple[object, ...] = (
        function,
        dst if type(dst) is str else id(dst),
        src if type(src) is str else id(src),
        id(attr),
    )
    if dtype is not None or channel_type is not None:
        names += tuple(name if type(name) is str else id(name) for name in (dtype, channel_type))
    event = None
    try:
        held = queue.memdesc_known
        src_memory, src_in, src_says, src_events = _SIDES[type(x)](x, queue, held)
        dst_memory, dst_in, dst_says, dst_events = _SIDES[type(out)](out, queue, held)
        call = held.calls[names, src_says, dst_says]
    except (AttributeError, LookupError, TypeError, cl.Error):
        call = None
    if call is not None and (src_in != dst_in or not src_in) and not state.is_forbidden:
        transfers, launch, desc, form, _ = call
        waiting: list[cl.Event] | None = None
        if src_events or dst_events or wait_for is not None:
            waiting = [*src_events, *dst_events, *checked_events(queue, wait_for)] or None
        if dst_memory is None:
            dst_memory = allocate(held.context, desc, form)
        try:
            if src_memory is None:
                src_memory = cl.Buffer(held.context, _UPLOAD, hostbuf=x)
            if launch is None:
                event = enqueue_transfers(queue, transfers, (src_memory, dst_memory), waiting)
            else:
                try:
                    kernel, src_before, dst_before = launch.idle.pop()
                except IndexError:
                    kernel, src_before, dst_before = launch.new(), _UNKNOWN, _UNKNOWN
                if src_before != src_in or not src_in:
                    kernel.set_arg(0, src_memory)
                if dst_before != dst_in or not dst_in:
                    kernel.set_arg(1, dst_memory)
                # by position: pyopencl takes longer for names
                event = _enqueue(queue, kernel, *launch.sizes, None, waiting)
                launch.idle.append((kernel, src_in, dst_in))
        except cl.Error:
            # for example, memory was released, for which the checks have a message
            event = None
    if call is None or event is None:
        arguments = _Arguments(function, x, out, dst, src, attr, wait_for, dtype, channel_type)
        return _run(queue, names, arguments)
    if type(out) is cl.array.Array:
        record_event(out, event)
    return dst_memory, event, desc


def _run(
    queue: cl.CommandQueue, names: tuple[object, ...], arguments: _Arguments
) -> tuple[Any, cl.Event, MemoryDesc | ImageDesc]:
    """Check everything, allocate dst if there is no `out`, and enqueue a reorder into it."""
    check_queue(queue)
    waiting = checked_events(queue, arguments.wait_for)
    if arguments.function == "enqueue_reorder":
        check_desc(arguments.src, "src")
        check_desc(arguments.dst, "dst")
    elif arguments.function.endswith("unpack"):
        _check_image_desc(arguments.src, "src")
    dst, of_out, dtype = _checked_out(arguments)
    src, src_desc, host = _source(arguments.x, arguments.src)
    makes_image = arguments.function in {"pack", "enqueue_pack"}
    if makes_image and not isinstance(arguments.dst, str):
        _check_image_desc(arguments.dst, "dst")
    desc = result_desc(arguments.dst, dtype, src_desc, of_out)
    if makes_image:
        _check_image_desc(desc, "dst")
    check_beta(arguments.attr, arguments.out)
    called, form = arguments.called, None
    if host is not None:
        src_operand = DeviceOperand(OperandSpec.of(src_desc))
    else:
        src_operand = device_operand(queue, src, src_desc, called[0], "read")
    if arguments.out is not None:
        dst_operand = device_operand(queue, dst, desc, called[1], "write")
    else:
        dst_operand, form = new_operand(queue, desc, arguments.channel_type, called[1])
    transfers = prepare_transfers(queue, src_operand, dst_operand, arguments.attr)
    waiting += events_of(queue, arguments.x) + events_of(queue, arguments.out)
    is_known = host is None or (
        isinstance(arguments.x, np.ndarray) and address_of(host.data) == address_of(arguments.x)
    )
    target = dst_operand.memory
    if arguments.out is None:
        dst = target = allocate(queue.context, desc, form)
        if isinstance(desc, MemoryDesc) and _has_gaps(desc):
            waiting.append(cl.enqueue_fill(queue, dst, np.zeros(1, np.uint8), desc.nbytes))
            is_known = False
    source = src_operand.memory if host is None else _upload(queue, host)
    event = enqueue_transfers(queue, transfers, (source, target), waiting or None)
    record_event(dst, event)
    if is_known:
        _note_call(queue, names, arguments, transfers, (desc, form))
    return dst, event, desc


def _checked_out(arguments: _Arguments) -> tuple[Any, MemoryDesc | ImageDesc | None, Any]:
    """Return the memory of `out`, its descriptor if it has one, and the data type of the result."""
    out, name, dtype = arguments.out, arguments.called[1], arguments.dtype
    if isinstance(out, DeviceMemory):
        return out.data, out.desc, dtype
    if isinstance(out, _HOST):
        raise MemdescError(
            f"{name} is host memory, but the result stays on a device; copy it with .get()"
        )
    if out is None and arguments.function.startswith("enqueue"):
        raise MemdescError(f"{name} is None; pass the memory to write, or `reorder` allocates it")
    if not isinstance(out, cl.array.Array):
        if out is not None and arguments.dst is None:
            raise MemdescError("the layout of out is not known; pass its descriptor as dst")
        return out, None, dtype
    if arguments.dst is None:
        return out, array_desc(out, "out"), dtype
    # with a descriptor as dst, an Array is raw memory; with a name, the result has its data type
    if not isinstance(arguments.dst, _DESCS):
        own = array_type(out.dtype, "out")
        if dtype is not None and data_type(dtype) != own:
            raise MemdescError(
                f"out is an Array of {own}, but dtype is {data_type(dtype)}; to write raw bytes, "
                "pass a descriptor as dst"
            )
        dtype = own
    return out, None, dtype


def _check_image_desc(desc: Any, name: str) -> None:
    if not isinstance(desc, ImageDesc):
        what = short_repr(desc)
        way = "see memdesc.image_desc"
        if isinstance(desc, str):
            way = f"an image does not say its dims, memdesc.image_desc(dims, dtype, {what}) does"
        raise MemdescError(f"{name} must be an ImageDesc, not {what}; {way}")


@lru_cache(maxsize=1024)
def _has_gaps(desc: MemoryDesc) -> bool:
    """Whether a buffer has bits outside the elements, which no kernel writes."""
    ends_in_byte = desc.padded_nelems * desc.dtype.bits % 8 == 0
    is_full = desc.is_dense and not desc.offset0 and desc.extra is None and ends_in_byte
    return desc.nbytes > 0 and not is_full


def _source(x: Any, desc: LayoutLike | None) -> tuple[Any, MemoryDesc | ImageDesc, Memory | None]:
    """Return the memory of a tensor on a device, its descriptor, and memory of the host."""
    if isinstance(x, DeviceMemory):
        if desc is not None:
            raise MemdescError("src describes plain memory; a DeviceMemory has its own descriptor")
        return x.data, x.desc, None
    if isinstance(x, cl.array.Array) and desc is None:
        return x, array_desc(x, "x"), None
    if isinstance(x, _IN_PLACE):
        if isinstance(desc, _DESCS):
            return x, desc, None
        if isinstance(x, cl.array.Array):
            raise MemdescError(
                f"src {short_repr(desc)} does not describe x, a pyopencl Array; pass a MemoryDesc, "
                "or leave out src"
            )
        is_image = isinstance(x, cl.Image)
        noun = "Image" if is_image else "Buffer" if isinstance(x, cl.Buffer) else "SVM"
        needed = "an ImageDesc" if is_image else "a MemoryDesc"
        raise MemdescError(
            f"x is a pyopencl {noun}, whose layout is not known; pass src=, {needed}"
        )
    if isinstance(desc, ImageDesc):
        host = from_pixels(x, desc)
    else:
        host = as_memory(_without_gaps(x, desc), desc)
    return None, host.desc, host


def _upload(queue: cl.CommandQueue, host: Memory) -> cl.Buffer:
    """Return a buffer with the content of host memory, copied by no queue that has other work."""
    nbytes = host.desc.min_nbytes
    if not nbytes:
        return allocate_buffer(queue.context, 0)
    data = host.data[:nbytes]
    if nbytes <= _SMALL:
        return cl.Buffer(queue.context, _UPLOAD, hostbuf=data)
    buffer = allocate_buffer(queue.context, nbytes, cl.mem_flags.READ_ONLY)
    cl.enqueue_copy(_copies(queue.context, queue.device), buffer, data)
    return buffer


@first_arg_dependent_memoize
def _copies(context: cl.Context, device: cl.Device) -> cl.CommandQueue:
    """Return the queue for copies from the host."""
    return cl.CommandQueue(context, device)


def _without_gaps(x: Any, desc: LayoutLike | None) -> Any:
    """Copy an array that has large gaps, which would otherwise be copied to the device too."""
    if isinstance(x, np.ndarray) and not isinstance(desc, MemoryDesc) and x.size:
        low, high = np.lib.array_utils.byte_bounds(x)
        if high - low > x.nbytes:
            if isinstance(desc, str | FormatTag):
                check_axes(x, desc)  # the copy no longer shows their order
            return np.ascontiguousarray(x)
    return x
