"""Images in host memory: the pixels as an array, with no OpenCL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError
from reorder.memory import Memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import ImageDesc

__all__ = ["from_pixels", "to_pixels"]


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
    if not isinstance(pixels, np.ndarray) or pixels.dtype not in {image.dtype.numpy, image.dtype.bits_dtype}:
        given = f"an array of {pixels.dtype}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        msg = f"x is {given}, but {image!r} has pixels of {image.dtype}: an array of shape {shape}"
        raise MemdescError(msg)
    if pixels.ndim != 3 or pixels.shape[2] != shape[2] or pixels.shape[0] < shape[0] or pixels.shape[1] < shape[1]:  # noqa: PLR2004 - y, x, lane
        msg = f"x has shape {pixels.shape}, but {image!r} has pixels of (height, width, channels) {shape}, or larger"
        raise MemdescError(msg)
    # what lies in tail lanes is not read, so it need not be zero
    return Memory(image.desc, np.ascontiguousarray(pixels[: shape[0], : shape[1]]), zero_pad=False)
