"""Device memory, queues and events that callers pass, checked against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pyopencl.array

from memdesc import ImageDesc, MemdescError, MemoryDesc, data_type
from memdesc.desc import desc_of, strided_desc
from memdesc.errors import OverlapError, short_repr
from memdesc.tuples import NamedTuple
from reorder.memory.buffers import are_disjoint
from reorder.opencl.kernel.access import VECTOR
from reorder.opencl.kernel.transfers import OperandSpec
from reorder.opencl.memory_objects import (
    allocate_buffer,
    channel_type_of,
    check_not_released,
    check_size,
    check_writable,
    is_released_error,
    name_of,
    object_type,
    released_error,
    supported_format,
)
from reorder.opencl.runtimes import check_process
from reorder.plan.plan import check_same_dims, check_types

if TYPE_CHECKING:
    from memdesc import DataType
    from reorder.values.attr import Attr

_LINEAR = (cl.Buffer, cl.SVMPointer)
_INT32_NBYTES = 4
# The allocation that stands for all memory with addresses on the host: buffers over an array, and
# SVM. Its bytes are numbered by address. No memory object has this pointer.
ON_HOST = 0
_LISTS = (list, tuple)
# the flag that rules out a use of memory
_FORBIDDEN = {"read": "WRITE_ONLY", "write": "READ_ONLY"}


class DeviceOperand(NamedTuple):
    """An operand of a reorder on a device: what launches depend on, and its memory.

    `memory` is the Buffer, SVM or Image, and `place` is its `place_of`; both are None until it is
    allocated. `is_aligned` says whether vectors may be read from the start of the memory.
    """

    spec: OperandSpec
    memory: Any = None
    place: tuple[int, int] | None = None
    is_aligned: bool = True

    @property
    def desc(self) -> MemoryDesc:
        """The descriptor; for an image, that of its dense linear buffer."""
        return self.spec.desc


def device_operand(
    queue: cl.CommandQueue,
    memory: Any,
    desc: MemoryDesc | ImageDesc,
    name: str,
    use: str = "",
) -> DeviceOperand:
    """Check memory that a queue will use against its descriptor.

    The bytes of an Array count from its lowest element. Messages call the memory `name`. It is
    refused if kernels may not `use` it: "read" or "write" it.
    """
    if isinstance(desc, ImageDesc):
        return _image_operand(queue, memory, desc, name, use)
    skipped = 0
    if isinstance(memory, cl.array.Array):
        skipped, memory = first_byte(memory), memory.base_data
        if memory is None:  # an array without elements has none
            memory = allocate_buffer(queue.context, 0)
    if not isinstance(memory, _LINEAR):
        raise MemdescError(
            f"{name} must be a pyopencl Buffer, Array or SVM for {desc!r}, not {class_of(memory)}"
        )
    _check_usable(queue, memory, name, use)
    place = place_of(memory)
    itemsize = desc.dtype.bits_dtype.itemsize
    sums = [(_INT32_NBYTES, "a compensation")] if desc.compensation_spans else []
    for multiple, what in ((itemsize, desc.dtype), *sums):
        if skipped % multiple:
            raise MemdescError(
                f"{name} is an array that starts at byte {skipped} of its buffer, "
                f"not a multiple of the {multiple} bytes of {what}; copy it"
            )
    nbytes = int(memory.size or 0) - skipped
    if nbytes < desc.min_nbytes:
        raise MemdescError(
            f"{name} has {nbytes} bytes, but {desc!r} touches {desc.min_nbytes} "
            f"(allocate {desc.nbytes})"
        )
    if skipped:
        elements = skipped * 8 // desc.dtype.bits
        desc = desc_of(desc.dtype, desc.layout.shifted(elements), desc.extra)
    address = place[1] if place[0] == ON_HOST else 0
    if address % itemsize:
        raise MemdescError(
            f"{name} uses host memory at {address:#x}, "
            f"not a multiple of the {itemsize} bytes of an element; copy it"
        )
    return DeviceOperand(OperandSpec(desc), memory, place, address % VECTOR == 0)


def new_operand(
    queue: cl.CommandQueue, desc: MemoryDesc | ImageDesc, channel_type: Any, name: str
) -> tuple[DeviceOperand, cl.ImageFormat | None]:
    """Return an operand whose memory is allocated later, and the format of an image."""
    if not isinstance(desc, ImageDesc):
        return DeviceOperand(OperandSpec(desc)), None
    form = supported_format(queue, desc, channel_type)
    check_writable(desc, queue)
    return DeviceOperand(OperandSpec.of(desc, channel_type_of(desc, form, name))), form


def _image_operand(
    queue: cl.CommandQueue, memory: Any, desc: ImageDesc, name: str, use: str
) -> DeviceOperand:
    if use == "write":
        check_writable(desc, queue)
    if not isinstance(memory, cl.Image):
        raise MemdescError(
            f"{name} must be a pyopencl Image for {desc!r}, not {class_of(memory)}; "
            "a buffer of the same pixels has the descriptor .desc"
        )
    _check_usable(queue, memory, name, use)
    if memory.type != object_type(desc.kind):
        held = name_of(cl.mem_object_type, memory.type)
        wanted = name_of(cl.mem_object_type, object_type(desc.kind))
        raise MemdescError(f"{name} is an {held}, but {desc!r} is an {wanted}")
    check_size(desc, queue)
    channel_type = channel_type_of(desc, memory.format, name)
    sizes = {"width": memory.width, "height": memory.height}
    if desc.kind != "2d":
        sizes["depth"] = memory.array_size if desc.kind == "array" else memory.depth
    for dimension, size in sizes.items():
        needed = getattr(desc, dimension)
        if size < needed:
            shape = " x ".join(map(str, sizes.values()))
            raise MemdescError(f"{name} has {shape} pixels, but {desc!r} has {dimension} {needed}")
    return DeviceOperand(OperandSpec.of(desc, channel_type), memory, place_of(memory))


def _check_usable(queue: cl.CommandQueue, memory: Any, name: str, use: str) -> None:
    """Refuse memory that was released, has another context, or that kernels may not access."""
    if isinstance(memory, cl.SVMPointer):
        _check_usable_svm(queue, memory, name)
        return
    check_not_released(memory, name)
    try:
        context, flags = memory.context, memory.flags
    except cl.Error as error:
        if is_released_error(error):
            raise released_error(memory, name) from None
        raise
    # comparing the objects takes longer
    if context.int_ptr != queue.context.int_ptr:
        raise MemdescError(
            f"{name} belongs to another context than the queue; "
            "copy it through the host, or use a queue of its context"
        )
    flag = _FORBIDDEN.get(use)
    if flag is not None and flags & getattr(cl.mem_flags, flag):
        raise MemdescError(
            f"{name} was created {flag}, so kernels may not {use} it; create it READ_WRITE"
        )


def _check_usable_svm(queue: cl.CommandQueue, memory: cl.SVMPointer, name: str) -> None:
    """Refuse shared virtual memory that was released, or that the device does not share."""
    if not memory.svm_ptr:
        raise MemdescError(f"{name} is shared virtual memory that was released")
    shared = int(queue.device.svm_capabilities)
    # a numpy array is SVM if it was allocated as such, or if the device shares all host memory
    shares_all = shared & cl.device_svm_capabilities.FINE_GRAIN_SYSTEM
    if shares_all or (shared and is_allocated_svm(memory)):
        return
    has = "shares memory only with what cl.csvm_empty and others allocate" if shared else "has none"
    raise MemdescError(
        f"{name} is shared virtual memory, but device {queue.device.name.strip()!r} {has}; use a "
        "Buffer"
    )


def is_allocated_svm(memory: cl.SVMPointer) -> bool:
    """Whether shared virtual memory was allocated as such; it is not if it is any numpy array."""
    base = memory.mem if isinstance(memory, cl.SVM) else memory
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, cl.SVMPointer)


def class_of(memory: object) -> str:
    """Return the name of a value's class with that of its module."""
    return f"{type(memory).__module__}.{type(memory).__qualname__}"


def check_operands(src: DeviceOperand, dst: DeviceOperand, attr: Attr | None) -> None:
    """Refuse operands and attributes that do not fit each other, or that may share bytes."""
    check_types(src.desc, dst.desc, attr)
    check_same_dims(src.desc, dst.desc)
    types = src.spec.channel_type, dst.spec.channel_type
    if all(types) and types[0] != types[1] and "UNORM_INT8" in types:
        raise MemdescError(
            f"x is an image of {types[0]}, out of {types[1]}: fractions become "
            "integers only in a buffer; reorder into a buffer first"
        )
    flags = getattr(dst.memory, "flags", 0)
    if attr is not None and attr.beta and flags & cl.mem_flags.WRITE_ONLY:
        raise MemdescError(
            f"out was created WRITE_ONLY, so kernels may not read it, but beta={attr.beta} adds to "
            "what it holds; create it READ_WRITE, or leave out beta"
        )
    _check_disjoint(src, dst)


def _check_disjoint(src: DeviceOperand, dst: DeviceOperand) -> None:
    """Refuse operands that share memory; memory that is not allocated yet is not shared."""
    if src.place is None or dst.place is None or not dst.desc.nelems:
        return
    distance = dst.place[1] - src.place[1]
    is_apart = not -dst.memory.size < distance < src.memory.size
    if src.place[0] != dst.place[0] or is_apart:
        return
    has_image = src.spec.image is not None or dst.spec.image is not None
    if not has_image and are_disjoint(src.desc, dst.desc, distance):
        return
    raise OverlapError(
        f"x and out share device memory: {src.desc.min_nbytes} bytes from byte {src.place[1]} "
        f"and {dst.desc.min_nbytes} from byte {dst.place[1]} of one buffer, and out would "
        "overwrite what is still to be read; reorder into another buffer"
    )


def place_of(memory: Any) -> tuple[int, int]:
    """Return the allocation that contains memory, and the byte of it where the memory starts."""
    if isinstance(memory, cl.SVMPointer):
        return ON_HOST, int(memory.svm_ptr)
    try:
        parent = memory.associated_memobject
    except cl.Error as error:
        if not is_released_error(error):
            raise
        raise MemdescError(
            "x or out is a part of a Buffer that was released; keep the whole Buffer as long as "
            "its parts are used"
        ) from None
    whole, start = (memory, 0) if parent is None else (parent, memory.offset)
    if whole.flags & cl.mem_flags.USE_HOST_PTR:
        return ON_HOST, start + int(whole.get_host_array((1,), np.uint8).ctypes.data)
    return whole.int_ptr, start


def array_desc(array: cl.array.Array, name: str) -> MemoryDesc:
    """Return the descriptor of an array, starting at its lowest element: its axes are the dims."""
    array_type(array.dtype, name)
    return strided_desc(tuple(array.shape), tuple(array.strides), array.dtype)


def array_type(of: np.dtype[Any], name: str) -> DataType:
    """Return the data type of an array; refuse elements of a type that memory holds packed."""
    dtype = data_type(of)
    if dtype.is_packed:
        raise MemdescError(
            f"{name} is an array of {dtype}, one element per byte; memory of {dtype} holds two: "
            "pack them on the host, or describe the bytes by a MemoryDesc"
        )
    return dtype


def first_byte(array: cl.array.Array) -> int:
    """Return the byte of the buffer where the lowest element of an array starts."""
    offset = int(array.offset)
    if 0 in array.shape:
        return offset
    steps = zip(array.strides, array.shape, strict=True)
    return offset + sum(min(stride, 0) * (extent - 1) for stride, extent in steps)


def check_desc(desc: object, name: str) -> None:
    """Refuse what is not a descriptor of a buffer or an image."""
    if not isinstance(desc, MemoryDesc | ImageDesc):
        raise MemdescError(f"{name} must be a MemoryDesc or an ImageDesc, not {short_repr(desc)}")


def check_queue(queue: Any) -> None:
    """Refuse anything but a command queue, one whose context is gone, and any after a fork."""
    check_process()
    if not isinstance(queue, cl.CommandQueue):
        raise MemdescError(f"queue must be a pyopencl.CommandQueue, not {short_repr(queue)}")
    try:
        queue.context  # noqa: B018 - the attribute raises if the context is gone
    except cl.Error as error:
        # Intel's queues do not keep their context
        raise MemdescError(
            f"the queue has no context any more ({error}); "
            "keep the Context as long as its queues are used"
        ) from None


def checked_events(queue: cl.CommandQueue, wait_for: Any) -> list[cl.Event]:
    """Return the events of `wait_for`; refuse anything else, and events of other contexts."""
    if wait_for is None:
        return []
    events: list[Any] = list(wait_for) if isinstance(wait_for, _LISTS) else [None]
    context = queue.context.int_ptr
    for event in events:
        if not isinstance(event, cl.Event):
            raise MemdescError(
                f"wait_for must be a list of pyopencl.Event, not {short_repr(wait_for)}"
            )
        try:
            own = event.context.int_ptr  # type: ignore[attr-defined] # pyopencl's stubs lack it
        except cl.Error:
            # its context is gone, which Intel's events do not prevent
            own = None
        if own != context:
            raise MemdescError(
                "wait_for has an event of another context than the queue; "
                "wait for it on the host: event.wait()"
            )
    return events
