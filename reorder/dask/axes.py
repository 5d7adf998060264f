"""The axes of an array of blocks, and the descriptor of a chunk of it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from memdesc import Axis, Layout, MemdescError, MemoryDesc
from memdesc.layout import memory_order

__all__ = ["ArrayAxis", "axes_of", "chunk_desc", "dims_of", "kind_of"]

# elements of a packed type in a byte
_PACKED = 2


class ArrayAxis(NamedTuple):
    """An axis of an array: the dim whose parts are its chunks, and the elements of a step along it.

    The dim is None where all steps must be in one chunk.
    """

    dim: int | None
    step: int
    extent: int


def axes_of(desc: MemoryDesc) -> list[ArrayAxis]:
    """Return the axes of the array of the blocks of a layout."""
    axes = []
    for block in sorted(desc.blocks, key=memory_order):
        dims = desc.axes[block.axis].dims
        is_outer = block.step == desc.layout.outer(block.axis).step and len(dims) == 1
        axes.append(ArrayAxis(dims[0] if is_outer else None, block.step, block.extent))
    if desc.dtype.is_packed:
        dim, step, extent = axes[-1]
        if extent % _PACKED:
            msg = (
                f"{desc!r} has {extent} elements along its innermost block, and two {desc.dtype} "
                "share a byte; take a layout where they are even, or dtype='u8'"
            )
            raise MemdescError(msg)
        axes[-1] = ArrayAxis(dim, step * _PACKED, extent // _PACKED)
    return axes


def dims_of(desc: MemoryDesc) -> list[ArrayAxis]:
    """Return the axes of the array over the logical dims."""
    return [ArrayAxis(dim, 1, size) for dim, size in enumerate(desc.dims)]


def kind_of(desc: MemoryDesc) -> np.dtype[Any]:
    """Return the dtype of the array of blocks: bytes of two elements for packed types."""
    return np.dtype(np.uint8) if desc.dtype.is_packed else desc.dtype.numpy


def chunk_desc(
    desc: MemoryDesc, at: tuple[tuple[int, int, int], ...]
) -> tuple[MemoryDesc, tuple[int, ...]]:
    """Return the descriptor of a chunk whose blocks lie as those of the whole, and its shape.

    `at` has each dim that is cut, with the start and the size of the chunk along it.
    """
    layout, extents = _chunk_layout(desc.layout, at)
    if desc.dtype.is_packed:
        extents = (*extents[:-1], extents[-1] // _PACKED)
    return MemoryDesc(desc.dtype, layout), extents


# Of layouts: descriptors are equal where strides of dims of size 1 differ, and so may the order of
# their blocks.
@lru_cache(maxsize=256)
def _chunk_layout(
    whole: Layout, at: tuple[tuple[int, int, int], ...]
) -> tuple[Layout, tuple[int, ...]]:
    """Return the layout of a chunk, and the extents of its blocks in memory order."""
    dims, axes = list(whole.dims), list(whole.axes)
    extents = {(block.axis, block.step): block.extent for block in whole.blocks}
    for dim, start, size in at:
        k = next(k for k, axis in enumerate(axes) if dim in axis.dims)
        is_last = start + size == dims[dim]
        dims[dim] = size
        axes[k] = Axis((dim,), axes[k].padded - start if is_last else size)
        step = whole.outer(k).step
        extents[k, step] = -(-axes[k].padded // step)
    order = [(block.axis, block.step) for block in sorted(whole.blocks, key=memory_order)]
    strides, stride = {}, 1
    for key in reversed(order):
        strides[key] = stride
        stride *= max(extents[key], 1)
    blocks = tuple(
        block._replace(
            extent=extents[block.axis, block.step], stride=strides[block.axis, block.step]
        )
        for block in whole.blocks
    )
    return Layout(tuple(dims), tuple(axes), blocks), tuple(extents[key] for key in order)
