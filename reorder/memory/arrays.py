"""Flat bytes as numpy arrays: over elements, over logical dims, or over blocks in memory order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import Block, MemdescError, MemoryDesc
from memdesc.errors import NotBlockedError
from memdesc.layout import memory_order

if TYPE_CHECKING:
    from numpy.typing import NDArray


def bits_of(data: NDArray[np.uint8], desc: MemoryDesc) -> NDArray[Any]:
    """Return the bits of the elements as integers: a view, or for 4-bit elements a copy."""
    if desc.dtype.is_packed:
        return np.stack([data & 15, data >> 4], axis=1).reshape(-1)
    itemsize = desc.dtype.bits_dtype.itemsize
    return data[: len(data) // itemsize * itemsize].view(desc.dtype.bits_dtype)


def write_back(elements: NDArray[Any], data: NDArray[np.uint8], desc: MemoryDesc) -> None:
    """Write back what `bits_of` returned if it was a copy, as it is for 4-bit elements."""
    if desc.dtype.is_packed:
        data[:] = elements[0::2] | elements[1::2] << 4


def is_plain(desc: MemoryDesc) -> bool:
    """Whether a strided numpy array over the dims can describe the elements."""
    layout = desc.layout
    has_strides = len(layout.blocks) == len(layout.axes) == layout.ndims and not layout.xor
    return has_strides and not desc.dtype.is_packed


def logical_array(data: NDArray[np.uint8], desc: MemoryDesc) -> NDArray[Any]:
    """Return the array whose axes are the dims.

    It is a view if the layout is plain, or if the elements happen to be in row-major order; else a
    copy.
    """
    values = bits_of(data, desc)
    if is_plain(desc):
        loops = [
            block._replace(extent=size) for block, size in zip(desc.blocks, desc.dims, strict=True)
        ]
        return _strided(values, desc, loops).view(desc.dtype.numpy)
    if not desc.nelems:
        array = np.zeros(desc.dims, values.dtype)
    elif desc.layout.has_partial_blocks or desc.layout.xor:
        array = values[desc.layout.offsets()]
    else:
        array = _from_whole_blocks(values, desc)
    return np.ascontiguousarray(array).view(desc.dtype.numpy)


def write_logical(data: NDArray[np.uint8], desc: MemoryDesc, array: NDArray[Any]) -> None:
    """Write the elements of an array whose axes are the dims; padding and gaps do not change."""
    values = bits_of(data, desc)
    bits = np.ascontiguousarray(array).view(values.dtype)
    values[desc.layout.offsets()] = bits & 15 if desc.dtype.is_packed else bits
    write_back(values, data, desc)


def physical_array(data: NDArray[np.uint8], desc: MemoryDesc) -> NDArray[Any]:
    """Return a view with one axis for each block, in memory order.

    Fails with a `NotBlockedError` for 4-bit types, and for views that end inside a block.
    """
    if desc.dtype.is_packed:
        raise NotBlockedError(
            f"two {desc.dtype} elements share a byte, so no numpy array shows their blocks; see "
            ".elements"
        )
    if desc.layout.has_partial_blocks:
        raise NotBlockedError(f"{desc!r} ends inside a block, so its blocks are not an n-d array")
    loops = sorted(desc.blocks, key=memory_order)
    return _strided(bits_of(data, desc), desc, loops).view(desc.dtype.numpy)


def _from_whole_blocks(values: NDArray[Any], desc: MemoryDesc) -> NDArray[Any]:
    """Return the logical array of a layout whose blocks are all whole."""
    layout = desc.layout
    padded = _strided(values, desc, list(layout.blocks)).reshape(
        [axis.padded for axis in layout.axes]
    )
    data = padded[tuple(slice(layout.axis_size(k)) for k in range(len(layout.axes)))]
    order = [dim for axis in layout.axes for dim in axis.dims]
    return data.reshape([layout.dims[dim] for dim in order]).transpose(np.argsort(order))


def _strided(values: NDArray[Any], desc: MemoryDesc, loops: list[Block]) -> NDArray[Any]:
    """Return a view of elements with one axis for each block."""
    start = values[desc.offset0 :] if desc.nelems else values[:0]
    # numpy may refuse the stride of a loop with one step, or of an array without elements
    strides = [
        loop.stride * values.itemsize if loop.extent > 1 and desc.nelems else values.itemsize
        for loop in loops
    ]
    try:
        return np.lib.stride_tricks.as_strided(
            start, [loop.extent for loop in loops], strides, writeable=values.flags.writeable
        )
    except ValueError:
        # an array without elements, or with one element that is repeated
        raise MemdescError(
            f"{desc!r} has dims that span more bytes than a numpy array may have; see .data"
        ) from None
