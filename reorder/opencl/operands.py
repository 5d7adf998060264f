"""What a caller passes as device memory: checked once, at the border."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyopencl as cl
import pyopencl.array

from memdesc import ImageDesc, MemdescError, MemoryDesc, OverlapError, memory_desc
from memdesc.errors import short_repr
from reorder.memory.buffers import are_apart
from reorder.opencl.handles import check_alive
from reorder.opencl.image_formats import channel_type_of, check_size, lane_element
from reorder.opencl.schedule.placement import Raster

if TYPE_CHECKING:
    from memdesc import DataType

__all__ = ["Operand", "array_operand", "check_apart", "check_types", "operand"]

_VECTOR_NBYTES = 16


class Operand(NamedTuple):
    """A side of a reorder on a device.

    `desc` describes an image as its dense linear buffer.
    """

    handle: Any
    desc: MemoryDesc
    image: Raster | None
    channel_type: str
    is_aligned: bool

    @property
    def dtype(self) -> DataType:
        """Type of the elements or lanes."""
        return self.desc.dtype

    def element(self, other: Operand) -> str:
        """Return what kernels call the elements of this side, beside those of the other."""
        return lane_element(self.dtype, self.channel_type or other.channel_type)


def operand(
    queue: cl.CommandQueue, memory: Any, desc: MemoryDesc | ImageDesc, side: str
) -> Operand:
    """Check a buffer, array or image against its descriptor.

    Parameters
    ----------
    queue : pyopencl.CommandQueue
        Where it will be used.
    memory : pyopencl.Buffer, pyopencl.Image or pyopencl.array.Array
        The memory.
    desc : MemoryDesc or ImageDesc
        What lies in it. The bytes of an array count from its first element.
    side : str
        What messages call it: ``src`` or ``dst``.

    Raises
    ------
    MemdescError
        If it is none, was released, belongs to another context, is too small, or may
        not be read (src) or written (dst).
    """
    if isinstance(desc, ImageDesc):
        return _image(queue, memory, desc, side)
    if not isinstance(desc, MemoryDesc):
        msg = f"{side}_desc must be a MemoryDesc or an ImageDesc, not {short_repr(desc)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    skipped = 0
    if isinstance(memory, cl.array.Array):
        skipped, memory = memory.offset, memory.base_data
    if not isinstance(memory, cl.Buffer):
        msg = f"{side} must be a pyopencl Buffer or Array for {desc!r}, not {_kind(memory)}"
        raise MemdescError(msg)
    _check_usable(queue, memory, side)
    itemsize = desc.dtype.bits_dtype.itemsize
    if skipped % itemsize:
        msg = f"{side} is an array that starts at byte {skipped} of its buffer, no multiple of the {itemsize} bytes of {desc.dtype}; copy it"
        raise MemdescError(msg)
    if memory.size - skipped < desc.min_nbytes:
        msg = f"{side} has {memory.size - skipped} bytes, but {desc!r} touches {desc.min_nbytes} (allocate {desc.nbytes})"
        raise MemdescError(msg)
    if skipped:
        elements = skipped * 8 // desc.dtype.bits
        desc = MemoryDesc(desc.dtype, replace(desc.layout, offset0=desc.offset0 + elements))
    return Operand(memory, desc, None, "", _is_aligned(memory, itemsize, side))


def array_operand(
    queue: cl.CommandQueue, array: cl.array.Array, side: str
) -> tuple[cl.Buffer, MemoryDesc]:
    """Return an array as its buffer and a descriptor of it: logical dims are its axes."""
    itemsize = array.dtype.itemsize
    if any(step % itemsize for step in array.strides) or array.offset % itemsize:
        msg = f"{side} is an array of strides {array.strides} and offset {array.offset} bytes, no multiples of its {itemsize}-byte elements"
        raise MemdescError(msg)
    if not isinstance(array.base_data, cl.Buffer):
        msg = (
            f"{side} is an array in {_kind(array.base_data)}; only arrays in buffers are reordered"
        )
        raise MemdescError(msg)
    _check_usable(queue, array.base_data, side)
    strides = [step // itemsize for step in array.strides]
    return array.base_data, memory_desc(
        array.shape, array.dtype, strides=strides, offset0=array.offset // itemsize
    )


def _image(queue: cl.CommandQueue, memory: Any, desc: ImageDesc, side: str) -> Operand:
    if not isinstance(memory, cl.Image):
        msg = f"{side} must be a pyopencl Image for {desc!r}, not {_kind(memory)}; a buffer of the same pixels has the descriptor .desc"
        raise MemdescError(msg)
    _check_usable(queue, memory, side)
    if memory.type != cl.mem_object_type.IMAGE2D:
        msg = f"{side} is an image of 1 or 3 dimensions, or an array of images; {desc!r} has 2"
        raise MemdescError(msg)
    check_size(desc, queue.device)
    channel_type = channel_type_of(desc, memory.format, side)
    for name, has, needs in (
        ("width", memory.width, desc.width),
        ("height", memory.height, desc.height),
    ):
        if has < needs:
            msg = f"{side} is an image of {memory.width} x {memory.height} pixels, but {desc!r} has {name} {needs}"
            raise MemdescError(msg)
    return Operand(memory, desc.desc, Raster(desc.width, desc.channels), channel_type, True)  # noqa: FBT003 - no buffer to align


def _check_usable(queue: cl.CommandQueue, memory: cl.MemoryObjectHolder, side: str) -> None:
    context = queue.context
    check_alive(context, memory, side)
    if memory.context != context:
        msg = f"{side} belongs to another context than the queue; copy it through the host, or use a queue of its context"
        raise MemdescError(msg)
    forbidden, name = (
        (cl.mem_flags.READ_ONLY, "READ_ONLY")
        if side == "dst"
        else (cl.mem_flags.WRITE_ONLY, "WRITE_ONLY")
    )
    if memory.flags & forbidden:
        msg = f"{side} was created {name}, so kernels may not {'write' if side == 'dst' else 'read'} it; create it READ_WRITE"
        raise MemdescError(msg)


def _is_aligned(buffer: cl.Buffer, itemsize: int, side: str) -> bool:
    """Whether vectors of 16 bytes may be read from a buffer's start; a caller's host memory may start anywhere."""
    if not buffer.flags & cl.mem_flags.USE_HOST_PTR:
        return True
    at = _host_address(buffer)
    if at % itemsize:
        msg = f"{side} uses host memory at {at:#x}, no multiple of the {itemsize} bytes of an element; copy it"
        raise MemdescError(msg)
    return at % _VECTOR_NBYTES == 0


def _host_address(buffer: cl.Buffer) -> int:
    found = buffer.hostbuf
    return int(found.__array_interface__["data"][0]) if hasattr(found, "__array_interface__") else 1


def check_types(src: Operand, dst: Operand) -> None:
    """Refuse dims and data types that no reorder on a device leads between."""
    if src.desc.dims != dst.desc.dims:
        msg = f"src has dims {src.desc.dims}, dst has dims {dst.desc.dims}; a reorder keeps the dims (see permute_axes, reshape, submemory)"
        raise MemdescError(msg)
    has_image = src.image is not None or dst.image is not None
    if src.dtype != dst.dtype and not (
        has_image and {src.dtype.name, dst.dtype.name} == {"f32", "f16"}
    ):
        msg = f"src is {src.dtype}, dst is {dst.dtype}: on a device only f32 and f16 are converted, into or out of an image"
        raise MemdescError(msg)
    if (
        src.channel_type
        and dst.channel_type
        and src.channel_type != dst.channel_type
        and "UNORM_INT8" in {src.channel_type, dst.channel_type}
    ):
        msg = f"src is an image of {src.channel_type}, dst of {dst.channel_type}: fractions and integers meet in a buffer only"
        raise MemdescError(msg)


def check_apart(src: Operand, dst: Operand) -> None:
    """Refuse buffers that share a byte that dst writes.

    Raises
    ------
    OverlapError
        Unless the bytes are proven disjoint by bounded work.
    """
    (src_root, src_at), (dst_root, dst_at) = _root(src.handle), _root(dst.handle)
    if src_root != dst_root or not dst.desc.nelems:
        return
    if src.image is None and dst.image is None and are_apart(src.desc, dst.desc, dst_at - src_at):
        return
    msg = (
        f"src and dst share device memory: {src.desc.min_nbytes} bytes from byte {src_at} and {dst.desc.min_nbytes} from byte {dst_at} "
        "of one buffer, and dst would overwrite what is still to be read; reorder into another buffer"
    )
    raise OverlapError(msg)


def _root(memory: Any) -> tuple[int, int]:
    """Return the buffer or image that a sub-buffer, or an image of a buffer, is a part of, and where it starts."""
    parent = memory.associated_memobject
    return (memory.int_ptr, 0) if parent is None else (parent.int_ptr, memory.offset)


def _kind(memory: object) -> str:
    return f"{type(memory).__module__}.{type(memory).__qualname__}"
