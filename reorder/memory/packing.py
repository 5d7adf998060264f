"""Elements of flat bytes as unsigned integers of their bits; two 4-bit elements share a byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import MemoryDesc

__all__ = ["pack", "unpack"]


def unpack(data: NDArray[np.uint8], desc: MemoryDesc) -> NDArray[Any]:
    """Return the elements of flat bytes as integers of their bits; 4-bit ones as a copy."""
    if desc.dtype.is_packed:
        return np.stack([data & 15, data >> 4], axis=1).reshape(-1)
    itemsize = desc.dtype.bits_dtype.itemsize
    return data[: len(data) // itemsize * itemsize].view(desc.dtype.bits_dtype)


def pack(elements: NDArray[Any], data: NDArray[np.uint8], desc: MemoryDesc) -> None:
    """Write back 4-bit elements that `unpack` copied; others are views already."""
    if desc.dtype.is_packed:
        data[:] = elements[0::2] | elements[1::2] << 4
