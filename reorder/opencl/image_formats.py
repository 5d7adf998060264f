"""Image formats: the channel types that hold a lane of each data type, and what devices support."""

from __future__ import annotations

from typing import Any

import pyopencl as cl
from pyopencl.tools import first_arg_dependent_memoize

from memdesc import DataType, ImageDesc, MemdescError
from memdesc.errors import short_repr

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
    given = names[0] if channel_type is None else channel_type
    name = given if isinstance(given, str) else name_of(cl.channel_type, given)
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


def name_of(kind: Any, value: object) -> str:
    """Return the name of an OpenCL constant of a kind, or its number."""
    return str(kind.to_string(value, "%#x")) if isinstance(value, int) else "?"


@first_arg_dependent_memoize
def _supported(context: cl.Context, kind: str) -> frozenset[tuple[int, int]]:
    flags = cl.mem_flags.READ_WRITE
    formats = cl.get_supported_image_formats(context, flags, object_type(kind))
    return frozenset((form.channel_order, form.channel_data_type) for form in formats)
