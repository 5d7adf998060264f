"""Flat bytes as numpy arrays: over elements, over logical dims, or over blocks in memory order."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError, MemoryDesc
from memdesc.errors import NotBlockedError
from memdesc.layout import memory_order
from memdesc.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memdesc import Block

# The arrays of this many descriptors are kept: finding one takes longer than making a view.
_MAX_KEPT = 512


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
    return _plain(desc) is not None


def logical_array(data: NDArray[np.uint8], desc: MemoryDesc) -> NDArray[Any]:
    """Return the array whose axes are the dims: a view if plain, otherwise often a copy."""
    plain = _plain(desc)
    if plain is not None:
        return plain.over(data, desc.dtype.numpy, desc)
    values = bits_of(data, desc)
    whole = _whole_blocks(desc)
    if not desc.nelems:
        array = np.zeros(desc.dims, values.dtype)
    elif whole is None:
        array = values[desc.layout.offsets()]
    else:
        blocks, padded, elements, dims, order = whole
        array = blocks.over(values, values.dtype, desc).reshape(padded)[elements]
        array = array.reshape(dims).transpose(order)
    return np.ascontiguousarray(array).view(desc.dtype.numpy)


def write_logical(data: NDArray[np.uint8], desc: MemoryDesc, array: NDArray[Any]) -> None:
    """Write the elements of an array whose axes are the dims; padding and gaps do not change."""
    values = bits_of(data, desc)
    bits = np.ascontiguousarray(array).view(values.dtype)
    values[desc.layout.offsets()] = bits & 15 if desc.dtype.is_packed else bits
    write_back(values, data, desc)


def physical_array(data: NDArray[np.uint8], desc: MemoryDesc) -> NDArray[Any]:
    """Return a view with one axis for each block, in memory order."""
    return _physical(desc, desc.spelling).over(data, desc.dtype.numpy, desc)


class Strided(NamedTuple):
    """A strided array over the elements of a descriptor; strides and start are in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int

    def over(self, buffer: NDArray[Any], dtype: np.dtype[Any], desc: MemoryDesc) -> NDArray[Any]:
        """Return the array over a buffer of a descriptor."""
        try:
            return np.ndarray(self.shape, dtype, buffer, self.start, self.strides)
        except ValueError:
            # an array without elements, or with one element that is repeated
            raise MemdescError(
                f"{desc!r} has dims that span more bytes than a numpy array may have; see .data"
            ) from None


@lru_cache(_MAX_KEPT)
def _plain(desc: MemoryDesc) -> Strided | None:
    """Return the array over the dims; None if no strided array is."""
    layout = desc.layout
    has_strides = len(layout.blocks) == len(layout.axes) == layout.ndims and not layout.xor
    if not has_strides or desc.dtype.is_packed:
        return None
    return _strided(desc, desc.dims, desc.blocks)


@lru_cache(_MAX_KEPT)
def _physical(desc: MemoryDesc, _spelling: str) -> Strided:
    """Return the array over the blocks; equal layouts may spell the place of unit dims apart."""
    if desc.dtype.is_packed:
        raise NotBlockedError(
            f"two {desc.dtype} elements share a byte, so no numpy array shows their blocks; see "
            ".elements"
        )
    if desc.layout.has_partial_blocks:
        raise NotBlockedError(f"{desc!r} ends inside a block, so its blocks are not an n-d array")
    return _over_blocks(desc, sorted(desc.blocks, key=memory_order))


@lru_cache(_MAX_KEPT)
def _whole_blocks(desc: MemoryDesc) -> tuple[Strided, list[int], Any, list[int], Any] | None:
    """Return the array of the blocks and what leads from it to the dims; None if some are partial.

    This is the padded size of each axis, the part of the axes with elements, the dims in the order
    of the axes, and the place of each dim among them.
    """
    layout = desc.layout
    if layout.has_partial_blocks or layout.xor:
        return None
    padded = [axis.padded for axis in layout.axes]
    elements = tuple(slice(layout.axis_size(k)) for k in range(len(layout.axes)))
    order = [dim for axis in layout.axes for dim in axis.dims]
    dims = [layout.dims[dim] for dim in order]
    return _over_blocks(desc, layout.blocks), padded, elements, dims, np.argsort(order)


def _over_blocks(desc: MemoryDesc, blocks: Sequence[Block]) -> Strided:
    return _strided(desc, [block.extent for block in blocks], blocks)


def _strided(desc: MemoryDesc, extents: Sequence[int], blocks: Sequence[Block]) -> Strided:
    itemsize = desc.dtype.bits_dtype.itemsize
    # numpy may refuse the stride of a loop with one step, or of an array without elements
    strides = tuple(
        block.stride * itemsize if extent > 1 and desc.nelems else itemsize
        for extent, block in zip(extents, blocks, strict=True)
    )
    return Strided(tuple(extents), strides, desc.offset0 * itemsize if desc.nelems else 0)
