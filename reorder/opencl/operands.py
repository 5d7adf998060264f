"""Device memory that callers pass, checked against its descriptor."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array

from memdesc import ImageDesc, MemdescError, MemoryDesc
from memdesc.errors import short_repr
from reorder.opencl.addresses import ON_HOST, place_of
from reorder.opencl.allocation import (
    allocate_buffer,
    check_not_released,
    is_released_error,
    released_error,
)
from reorder.opencl.arrays import first_byte
from reorder.opencl.image_formats import (
    channel_type_of,
    check_size,
)
from reorder.opencl.kernel.placement import ImageShape
from reorder.opencl.kernel.transfers import OperandSpec

if TYPE_CHECKING:
    from memdesc import DataType, Extra

__all__ = [
    "VECTOR_NBYTES",
    "DeviceOperand",
    "Unallocated",
    "check_usable",
    "device_operand",
]

_LINEAR = (cl.Buffer, cl.SVMPointer)
# where vectors may start
VECTOR_NBYTES = 16
_INT32_NBYTES = 4


class Unallocated(NamedTuple):
    """Stands for memory that is allocated later: a buffer, or an image of a format."""

    form: cl.ImageFormat | None = None


class DeviceOperand(NamedTuple):
    """An operand of a reorder on a device.

    `desc` describes an image as its dense linear buffer. `is_aligned` says whether vectors may be
    read from the start of the memory. `memory` is the Buffer, SVM or Image, and `place` where it
    lies, as `place_of` says; None until it is allocated.
    """

    desc: MemoryDesc
    image: ImageShape | None = None
    channel_type: str = ""
    is_aligned: bool = True
    memory: Any = None
    place: tuple[int, int] | None = None

    @property
    def dtype(self) -> DataType:
        """Type of the elements or lanes."""
        return self.desc.dtype

    def spec(self, other: DeviceOperand) -> OperandSpec:
        """Return what launches depend on, beside the other operand of a reorder."""
        is_fraction = (self.channel_type or other.channel_type) == "UNORM_INT8"
        return OperandSpec(self.desc, self.image, is_fraction)


def device_operand(
    queue: cl.CommandQueue, memory: Any, desc: MemoryDesc | ImageDesc, name: str
) -> DeviceOperand:
    """Check a buffer, array or image against its descriptor.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where it will be used.
    memory : pyopencl.Buffer, SVMPointer, Image, array.Array or Unallocated
        The memory.
    desc : MemoryDesc or ImageDesc
        What it holds. The bytes of an array count from its lowest element.
    name : str
        What messages call it: ``src`` or ``dst``.

    Raises
    ------
    MemdescError
        If it is no such memory, was released, belongs to another context, is too small,
        or may not be read (src) or written (dst).
    """
    if isinstance(desc, ImageDesc):
        return _image_operand(queue, memory, desc, name)
    if not isinstance(desc, MemoryDesc):
        msg = f"{name}_desc must be a MemoryDesc or an ImageDesc, not {short_repr(desc)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    if isinstance(memory, Unallocated):
        return DeviceOperand(desc)
    skipped = 0
    if isinstance(memory, cl.array.Array):
        skipped, memory = first_byte(memory), _memory_of(queue, memory)
    if not isinstance(memory, _LINEAR):
        msg = f"{name} must be a pyopencl Buffer, Array or SVM for {desc!r}, not {_kind(memory)}"
        raise MemdescError(msg)
    check_usable(queue, memory, name)
    place = place_of(memory)
    itemsize, min_nbytes = _needs(desc)
    if skipped % itemsize:
        msg = (
            f"{name} is an array that starts at byte {skipped} of its buffer, "
            f"no multiple of the {itemsize} bytes of {desc.dtype}; copy it"
        )
        raise MemdescError(msg)
    nbytes = int(memory.size or 0) - skipped
    if nbytes < min_nbytes:
        msg = (
            f"{name} has {nbytes} bytes, but {desc!r} touches {min_nbytes} (allocate {desc.nbytes})"
        )
        raise MemdescError(msg)
    if skipped:
        elements = skipped * 8 // desc.dtype.bits
        moved = replace(desc.layout, offset0=desc.offset0 + elements)
        desc = MemoryDesc(desc.dtype, moved, extra=_moved_extra(desc, skipped, name))
    is_aligned = place[0] != ON_HOST or _is_aligned(place[1], itemsize, name)
    return DeviceOperand(desc, None, "", is_aligned, memory, place)


def _moved_extra(desc: MemoryDesc, skipped: int, name: str) -> Extra | None:
    """Return the compensation of an array: numbers of 4 bytes, at multiples of 4 of its buffer."""
    if desc.compensation_spans and skipped % _INT32_NBYTES:
        msg = (
            f"{name} is an array that starts at byte {skipped} of its buffer, no multiple of the "
            f"{_INT32_NBYTES} bytes of a compensation; copy it"
        )
        raise MemdescError(msg)
    return desc.extra


@lru_cache(maxsize=1024)
def _needs(desc: MemoryDesc) -> tuple[int, int]:
    """Return the bytes of an element, and those that a buffer must have."""
    return desc.dtype.bits_dtype.itemsize, desc.min_nbytes


def _memory_of(queue: cl.CommandQueue, array: cl.array.Array) -> Any:
    """Return the memory of an array; those without elements may have none."""
    if array.base_data is None:
        return allocate_buffer(queue.context, 0)
    return array.base_data


def _image_operand(
    queue: cl.CommandQueue, memory: Any, desc: ImageDesc, name: str
) -> DeviceOperand:
    shape = ImageShape.of(desc)
    if isinstance(memory, Unallocated) and memory.form is not None:
        return DeviceOperand(desc.desc, shape, channel_type_of(desc, memory.form, name))
    if not isinstance(memory, cl.Image):
        msg = (
            f"{name} must be a pyopencl Image for {desc!r}, not {_kind(memory)}; "
            "a buffer of the same pixels has the descriptor .desc"
        )
        raise MemdescError(msg)
    check_usable(queue, memory, name)
    if memory.type != cl.mem_object_type.IMAGE2D:
        msg = f"{name} is an image of 1 or 3 dimensions, or an array of images; {desc!r} has 2"
        raise MemdescError(msg)
    check_size(desc, queue)
    channel_type = channel_type_of(desc, memory.format, name)
    for dimension in ("width", "height"):
        needed = getattr(desc, dimension)
        if getattr(memory, dimension) < needed:
            size = f"{memory.width} x {memory.height}"
            msg = f"{name} is an image of {size} pixels, but {desc!r} has {dimension} {needed}"
            raise MemdescError(msg)
    return DeviceOperand(desc.desc, shape, channel_type, memory=memory, place=place_of(memory))


def check_usable(queue: cl.CommandQueue, memory: Any, name: str) -> None:
    """Refuse memory that was released, is of another context, or that kernels may not access.

    Raises
    ------
    MemdescError
        With the name of the operand.
    """
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
        msg = (
            f"{name} belongs to another context than the queue; "
            "copy it through the host, or use a queue of its context"
        )
        raise MemdescError(msg)
    if name == "dst" and flags & cl.mem_flags.READ_ONLY:
        msg = "dst was created READ_ONLY, so kernels may not write it; create it READ_WRITE"
        raise MemdescError(msg)
    if name == "src" and flags & cl.mem_flags.WRITE_ONLY:
        msg = "src was created WRITE_ONLY, so kernels may not read it; create it READ_WRITE"
        raise MemdescError(msg)


def _check_usable_svm(queue: cl.CommandQueue, memory: cl.SVMPointer, name: str) -> None:
    """Refuse shared virtual memory that was released, or that a device does not share."""
    if not memory.svm_ptr:
        msg = f"{name} is shared virtual memory that was released"
        raise MemdescError(msg)
    shared = int(queue.device.svm_capabilities)
    # an array of numpy is SVM if its base is, or if the device shares all memory of the host
    base = memory.mem if isinstance(memory, cl.SVM) else memory
    while isinstance(base, np.ndarray):
        base = base.base
    if shared & cl.device_svm_capabilities.FINE_GRAIN_SYSTEM or (
        shared and isinstance(base, cl.SVMPointer)
    ):
        return
    has = "shares memory only with what cl.csvm_empty and others allocate" if shared else "has none"
    msg = (
        f"{name} is shared virtual memory, of which device {queue.device.name.strip()!r} {has}; "
        "use a Buffer"
    )
    raise MemdescError(msg)


def _is_aligned(address: int, itemsize: int, name: str) -> bool:
    """Whether vectors may be read from an address of the host."""
    if address % itemsize:
        msg = (
            f"{name} uses host memory at {address:#x}, "
            f"no multiple of the {itemsize} bytes of an element; copy it"
        )
        raise MemdescError(msg)
    return address % VECTOR_NBYTES == 0


def _kind(memory: object) -> str:
    return f"{type(memory).__module__}.{type(memory).__qualname__}"
