"""Offset tables and unpacked bits: what the definition of a reorder is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import Layout, MemoryDesc

__all__ = ["offsets", "pack", "unpack"]


def offsets(layout: Layout, *, padded: bool = False) -> NDArray[np.int64]:
    """Return the offset of every logical index as an array over the dims.

    With `padded` the array runs over the padded extents, axis by axis.
    """
    total = np.full((1,) * layout.ndims, layout.offset0, dtype=np.int64)
    for axis, table in zip(layout.axes, layout.tables(padded=padded), strict=True):
        shape = [1] * layout.ndims
        if padded or len(axis.dims) == 1:
            shape[axis.dims[0]] = len(table)
            total = total + table.reshape(shape)
            continue
        # row-major over the dims of the axis, which need not be in rising order
        own = table.reshape([layout.dims[dim] for dim in axis.dims])
        own = own.transpose(np.argsort(axis.dims))
        for dim in axis.dims:
            shape[dim] = layout.dims[dim]
        total = total + own.reshape(shape)
    return total


def unpack(data: NDArray[np.uint8], desc: MemoryDesc) -> NDArray[Any]:
    """Return the elements of flat bytes as integers of their bits; 4-bit ones copied apart."""
    if desc.dtype.is_packed:
        return np.stack([data & 15, data >> 4], axis=1).reshape(-1)
    itemsize = desc.dtype.bits_dtype.itemsize
    return data[: len(data) // itemsize * itemsize].view(desc.dtype.bits_dtype)


def pack(elements: NDArray[Any], data: NDArray[np.uint8], desc: MemoryDesc) -> None:
    """Write 4-bit elements that `unpack` copied back; others are views already."""
    if desc.dtype.is_packed:
        data[:] = elements[0::2] | elements[1::2] << 4
