"""Images and buffers: the formats of images, what devices support, what this library allocates.

pyopencl does not tell whether an object was released, and some runtimes crash if they are asked
about a released one, so memory that is allocated here records its release. Memory that callers
allocated is left to pyopencl and the runtime.
"""

from __future__ import annotations

from typing import Any

import pyopencl as cl
import pyopencl.array
from pyopencl.tools import first_arg_dependent_memoize

from memdesc import DataType, ImageDesc, MemdescError, MemoryDesc
from memdesc.errors import OutOfMemoryError, short_repr

# dtype of a lane -> channel types that can hold it, the default first. MACE keeps 8-bit data in
# lanes of 32 bits; clDNN reads `image_2d_rgba` as fractions of 255.
_CHANNEL_TYPES = {
    "f32": ("FLOAT",),
    "f16": ("HALF_FLOAT",),
    "s32": ("SIGNED_INT32",),
    "s8": ("SIGNED_INT8", "SIGNED_INT32"),
    "u8": ("UNSIGNED_INT8", "UNSIGNED_INT32", "UNORM_INT8"),
}
_ORDERS = {4: "RGBA", 2: "RG", 1: "R"}
# the kind of an image -> the type of its object
_OBJECTS = {"2d": "IMAGE2D", "3d": "IMAGE3D", "array": "IMAGE2D_ARRAY"}


def image_format(image: ImageDesc, channel_type: int | str | None = None) -> cl.ImageFormat:
    """Return the format of an image: of a `pyopencl.channel_type` or its name, or the default."""
    names = _legal(image.dtype)
    channel = names[0] if channel_type is None else channel_type
    name = channel if isinstance(channel, str) else name_of(cl.channel_type, channel)
    if name not in names:
        raise MemdescError(
            f"channel_type {short_repr(channel_type)} ({name}) cannot hold {image.dtype}; "
            f"use {' or '.join(names)}"
        )
    return cl.ImageFormat(
        getattr(cl.channel_order, _ORDERS[image.channels]), getattr(cl.channel_type, name)
    )


def supported_format(
    queue: cl.CommandQueue, image: ImageDesc, channel_type: int | str | None = None
) -> cl.ImageFormat:
    """Return the format of an image; refuse a format or size that the device does not support."""
    form = image_format(image, channel_type)
    check_size(image, queue)
    if (form.channel_order, form.channel_data_type) not in _supported(queue.context, image.kind):
        raise MemdescError(
            f"the devices of the context have no images of {' '.join(_names_of(form))}; "
            "use another dtype or channel_type, or a buffer of .desc"
        )
    return form


def channel_type_of(image: ImageDesc, form: cl.ImageFormat, operand: str) -> str:
    """Return the channel type of a caller's image; refuse a format that cannot hold the dtype."""
    names = _legal(image.dtype)
    order, name = _names_of(form)
    if order != _ORDERS[image.channels] or name not in names:
        legal = " or ".join(f"{_ORDERS[image.channels]} {legal}" for legal in names)
        raise MemdescError(f"{operand} has the format {order} {name}, but {image!r} needs {legal}")
    return name


def check_size(image: ImageDesc, queue: cl.CommandQueue) -> None:
    """Refuse an image that the device of a queue cannot hold, or a device without images."""
    device = queue.device
    limits, is_supported, is_listed = _limits(queue.context, device, image.kind)
    if is_supported and is_listed and image.fits(*limits):
        return
    name = device.name.strip()
    if not is_supported:
        raise MemdescError(
            f"device {name!r} has no images; "
            "reorder into a buffer of image.desc instead, the same pixels row by row"
        )
    sizes = zip(("width", "height", "depth"), limits, strict=True)
    over = [
        f"{side} {getattr(image, side)} is more than the {most} allowed"
        for side, most in sizes
        if getattr(image, side) > most
    ]
    if over:
        raise MemdescError(
            f"{image!r} does not fit on device {name!r}: {' and '.join(over)}; split a dim, or use "
            "a buffer of .desc"
        )
    if not is_listed:
        raise MemdescError(
            f"device {name!r} is a sub-device that the context of the queue does not list: PoCL "
            "ends the process when images are copied there; reorder into a buffer of image.desc"
        )


@first_arg_dependent_memoize
def _limits(
    context: cl.Context, device: cl.Device, kind: str
) -> tuple[tuple[int, int, int], bool, bool]:
    """Return a device's largest image, whether it has images, and whether a context includes it."""
    if kind == "3d":
        largest = device.image3d_max_width, device.image3d_max_height, device.image3d_max_depth
    else:
        slices = device.image_max_array_size if kind == "array" else 1
        largest = device.image2d_max_width, device.image2d_max_height, slices
    return largest, bool(device.image_support), device in context.devices


def object_type(kind: str) -> Any:
    """Return OpenCL's type of the objects of a kind of images, a number."""
    return getattr(cl.mem_object_type, _OBJECTS[kind])


def check_writable(image: ImageDesc, queue: cl.CommandQueue) -> None:
    """Refuse an image that kernels of the queue's device cannot write."""
    extension = "cl_khr_3d_image_writes"
    if image.kind == "3d" and extension not in queue.device.extensions:
        raise MemdescError(
            f"device {queue.device.name.strip()!r} lacks {extension}, so its kernels cannot write "
            f"{image!r}; use an array of images, or a buffer of .desc"
        )


def _legal(dtype: DataType) -> tuple[str, ...]:
    if dtype.name not in _CHANNEL_TYPES:
        raise MemdescError(
            f"OpenCL has no image of {dtype} lanes; images hold {', '.join(_CHANNEL_TYPES)}"
        )
    return _CHANNEL_TYPES[dtype.name]


def _names_of(form: cl.ImageFormat) -> tuple[str, str]:
    """Return the names of the order and the type of the channels."""
    order = name_of(cl.channel_order, form.channel_order)
    return order, name_of(cl.channel_type, form.channel_data_type)


def name_of(constants: Any, value: object) -> str:
    """Return the name of an OpenCL constant of a class, or its number."""
    return str(constants.to_string(value, "%#x")) if isinstance(value, int) else "?"


@first_arg_dependent_memoize
def _supported(context: cl.Context, kind: str) -> frozenset[tuple[int, int]]:
    flags = cl.mem_flags.READ_WRITE
    formats = cl.get_supported_image_formats(context, flags, object_type(kind))
    return frozenset((form.channel_order, form.channel_data_type) for form in formats)


class AllocatedBuffer(cl.Buffer):
    """A buffer that records its release."""

    is_released = False

    def release(self) -> None:
        """Give the memory back to the runtime, once the commands that use it have finished."""
        cl.MemoryObject.release(self)
        self.is_released = True


class AllocatedImage(cl.Image):
    """An image that records its release; pyopencl's classes do not allow a common second base."""

    is_released = False
    release = AllocatedBuffer.release


ALLOCATED = (AllocatedBuffer, AllocatedImage)


def allocate(
    context: cl.Context, desc: MemoryDesc | ImageDesc, form: cl.ImageFormat | None
) -> cl.Buffer | cl.Image:
    """Return a buffer for a MemoryDesc, or an image of a format for an ImageDesc."""
    if not isinstance(desc, ImageDesc):
        return allocate_buffer(context, desc.nbytes)
    size = cl.ImageDescriptor()
    size.image_type = object_type(desc.kind)
    size.shape = desc.shape[-2::-1]  # type: ignore[assignment] # as many sides as the image has
    if desc.kind == "array":
        size.array_size = desc.depth
    try:
        return AllocatedImage(context, cl.mem_flags.READ_WRITE, form, desc=size)  # type: ignore[arg-type] # an image has a format
    except cl.Error as error:
        raise _refused(context, f"{desc!r} of {desc.nbytes} bytes", error) from None


def allocate_buffer(
    context: cl.Context, nbytes: int, flags: int = cl.mem_flags.READ_WRITE
) -> cl.Buffer:
    """Return a buffer of at least one byte, since OpenCL has no empty ones; fails as `allocate`."""
    try:
        return AllocatedBuffer(context, flags, max(nbytes, 1))
    except cl.Error as error:
        raise _refused(context, f"a buffer of {nbytes} bytes", error) from None


def _refused(context: cl.Context, what: str, error: cl.Error) -> MemdescError:
    """Return the error for memory that the runtime refuses to allocate."""
    most = min(device.max_mem_alloc_size for device in context.devices)
    names = ", ".join(repr(device.name.strip()) for device in context.devices)
    return OutOfMemoryError(
        f"{what} cannot be allocated on {names}, whose largest buffer has {most} bytes: {error}; "
        "reorder parts of the tensor"
    )


def check_not_released(memory: Any, name: str) -> None:
    """Refuse memory that this library allocated if it was released, or an array in it."""
    if isinstance(memory, cl.array.Array):
        memory = memory.base_data
    if isinstance(memory, ALLOCATED) and memory.is_released:
        raise released_error(memory, name)


def is_released_error(error: cl.Error) -> bool:
    """Whether an error of the runtime means that memory was released."""
    return bool(error.code == cl.status_code.INVALID_MEM_OBJECT)


def released_error(memory: Any, name: str) -> MemdescError:
    """Return the error for released memory."""
    noun = "an Image" if isinstance(memory, cl.Image) else "a Buffer"
    return MemdescError(
        f"{name} is {noun} that was released; nothing can be read from it or written to it"
    )
