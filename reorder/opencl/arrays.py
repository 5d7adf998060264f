"""Arrays of pyopencl: where they lie in their buffer, and their descriptors."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from memdesc import MemdescError, MemoryDesc, data_type, memory_desc

if TYPE_CHECKING:
    import numpy as np
    import pyopencl.array as cl_array

__all__ = ["array_desc", "first_byte"]


def array_desc(array: cl_array.Array, name: str) -> MemoryDesc:
    """Return the descriptor of an array from its lowest element on: logical dims are its axes."""
    return _array_desc(
        array.dtype, tuple(array.shape), tuple(array.strides), int(array.offset), name
    )


@lru_cache(maxsize=1024)
def _array_desc(
    of: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...], offset: int, name: str
) -> MemoryDesc:
    itemsize = of.itemsize
    if any(stride % itemsize for stride in strides) or offset % itemsize:
        msg = (
            f"{name} is an array of strides {strides} and offset {offset} bytes, "
            f"no multiples of its {itemsize}-byte elements"
        )
        raise MemdescError(msg)
    if (dtype := data_type(of)).is_packed:
        msg = (
            f"{name} is an array of {dtype}, one element a byte; memory of {dtype} holds two: "
            "pack them on the host, or describe the bytes by a MemoryDesc"
        )
        raise MemdescError(msg)
    offset0 = (offset - _lowest(shape, strides, offset)) // itemsize
    strides = tuple(stride // itemsize for stride in strides)
    return memory_desc(shape, dtype, strides=strides, offset0=offset0)


def first_byte(array: cl_array.Array) -> int:
    """Return the byte of its buffer at which the lowest element of an array starts."""
    return _lowest(array.shape, array.strides, int(array.offset))


def _lowest(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> int:
    if 0 in shape:
        return offset
    return offset + sum(
        min(stride, 0) * (extent - 1) for stride, extent in zip(strides, shape, strict=True)
    )
