"""What a caller passes as a tensor: an array, raw bytes or the pixels of an image, as memory with a descriptor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import FormatTag, MemdescError, MemoryDesc, array_desc, data_type, memory_desc
from memdesc.errors import short_repr
from memdesc.names import resolve
from reorder.memory.dlpack import from_dlpack, is_exporter
from reorder.memory.elements import pack
from reorder.memory.memory import Memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import ImageDesc

__all__ = ["as_memory", "from_pixels", "to_pixels"]


def as_memory(x: Any, src: str | FormatTag | MemoryDesc | None) -> Memory:
    """Return a tensor as memory, without copying but for unpacked 4-bit elements."""
    if isinstance(x, Memory):
        if src is not None:
            msg = "src describes an ndarray; a Memory has its own descriptor"
            raise MemdescError(msg)
        return x
    if isinstance(src, MemoryDesc):
        return Memory(src, x, zero_pad=False)
    if not isinstance(x, np.ndarray) and is_exporter(x):
        x = from_dlpack(x, "x")
    if not isinstance(x, np.ndarray):
        msg = (
            f"x must be a Memory, a numpy array or a tensor with DLPack, not {type(x).__name__}; "
            "for raw bytes give src=, a MemoryDesc"
        )
        raise MemdescError(msg)
    x = np.asarray(x)  # a matrix has two axes whatever is asked of it
    if src is not None:
        x = _logical(x, src)
    if data_type(x.dtype).is_packed:
        packed = Memory(memory_desc(x.shape, x.dtype))
        bits = np.zeros(2 * packed.nbytes, np.uint8)
        bits[: x.size] = np.ascontiguousarray(x).view(np.uint8).reshape(-1) & 15
        pack(bits, packed.data, packed.desc)
        return packed
    desc = array_desc(x)
    if x.flags.c_contiguous:
        return Memory.attached(desc, x.reshape(-1).view(np.uint8))
    x = x.view(desc.dtype.bits_dtype)  # numpy does not know all types of ml_dtypes by their letters
    # the memory from the lowest address that x touches; its bytes in between are not read
    lowest = x[
        tuple(
            slice(-1 if step < 0 else 0, None) if size else slice(None)
            for size, step in zip(x.shape, x.strides, strict=True)
        )
    ]
    count = desc.layout.last + 1 if desc.nelems else 0
    return Memory(
        desc,
        np.lib.stride_tricks.as_strided(lowest, (count,), (x.itemsize,), writeable=False),
        zero_pad=False,
    )


def _logical(x: NDArray[Any], src: str | FormatTag) -> NDArray[Any]:
    """Return a view, or for blocked layouts a copy, whose axes are the logical dims."""
    if not isinstance(src, str | FormatTag):
        msg = (  # type: ignore[unreachable] # callers without types
            f"src must be a name, a FormatTag or a MemoryDesc, not {short_repr(src)}"
        )
        raise MemdescError(msg)
    tag = src if isinstance(src, FormatTag) else resolve(src, (), data_type(x.dtype).bits)
    if x.ndim != len(tag.digits):
        msg = (
            f"src '{src}' spells {len(tag.digits)} axes in memory order, but x has {x.ndim}: "
            f"{x.shape}; "
            f"for a flat buffer give src=memory_desc(dims, dtype, '{src}')"
        )
        raise MemdescError(msg)
    for digit, size in zip(tag.digits, x.shape, strict=True):
        if digit.extent and digit.extent != size:
            msg = (
                f"src '{src}' has a block of {digit.extent}, but that axis of x has {size}: "
                f"{x.shape}"
            )
            raise MemdescError(msg)
    if any(len(dims) > 1 for dims in tag.axes):
        msg = (
            f"src '{src}' cuts several dims as one index, whose sizes x does not tell; give src=, "
            "a MemoryDesc"
        )
        raise MemdescError(msg)
    order = sorted(range(x.ndim), key=lambda k: (tag.digits[k].axis, -tag.digits[k].step))
    sizes = [1] * len(tag.axes)
    for digit, size in zip(tag.digits, x.shape, strict=True):
        sizes[digit.axis] *= size
    return x.transpose(order).reshape(sizes)


def to_pixels(memory: Memory, image: ImageDesc) -> NDArray[Any]:
    """Return memory of `image.desc` as its pixels, without copying: (height, width, channels)."""
    flat = memory.elements[: image.desc.padded_nelems]
    return flat.view(image.dtype.numpy).reshape(image.height, image.width, image.channels)


def from_pixels(pixels: Any, image: ImageDesc) -> Memory:
    """Return pixels as memory of `image.desc`; only larger images and other strides are copied.

    Raises
    ------
    MemdescError
        If they are no array of (height, width, channels), at least as large as the image,
        of the dtype of its lanes or of its bits.
    """
    shape = (image.height, image.width, image.channels)
    if not isinstance(pixels, np.ndarray) or pixels.dtype not in {
        image.dtype.numpy,
        image.dtype.bits_dtype,
    }:
        given = (
            f"an array of {pixels.dtype}"
            if isinstance(pixels, np.ndarray)
            else type(pixels).__name__
        )
        msg = f"x is {given}, but {image!r} has pixels of {image.dtype}: an array of shape {shape}"
        raise MemdescError(msg)
    if (
        pixels.ndim != 3
        or pixels.shape[2] != shape[2]
        or pixels.shape[0] < shape[0]
        or pixels.shape[1] < shape[1]
    ):
        msg = (
            f"x has shape {pixels.shape}, but {image!r} has pixels of (height, width, channels) "
            f"{shape}, or larger"
        )
        raise MemdescError(msg)
    # what lies in tail lanes is not read, so it need not be zero
    return Memory(image.desc, np.ascontiguousarray(pixels[: shape[0], : shape[1]]), zero_pad=False)
