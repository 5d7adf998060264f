"""Compensation of int8 weights: sums of the stored elements, stored after them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from memdesc.layout import memory_order
from reorder.values.compensation import FACTORS, compensation_layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import MemoryDesc


def compensation(data: NDArray[np.uint8], desc: MemoryDesc) -> dict[str, NDArray[np.int32]]:
    """Return the sums after the elements of flat bytes, by name, over the padded dims of the masks.

    A copy if another dim lies between the blocks of a dim of its mask, otherwise a view.
    """
    return {name: blocks.reshape(shape) for name, (blocks, shape) in _spans(data, desc).items()}


def compensate(
    data: NDArray[np.uint8], desc: MemoryDesc, elements: NDArray[np.int8] | None = None
) -> None:
    """Write the compensation after the elements: their sums times -128 (``s8s8``) or -1.

    A backend may pass the elements as an array over the dims.
    """
    extra = desc.extra
    if extra is None or not desc.nelems:
        return
    if elements is None:
        elements = data.view(np.int8)[desc.layout.offsets()]
    for name, (blocks, _) in _spans(data, desc).items():
        sums = _sums(elements, desc, extra.masks[name])
        blocks[...] = (sums * np.int32(FACTORS[name])).reshape(blocks.shape)


def _spans(
    data: NDArray[np.uint8], desc: MemoryDesc
) -> dict[str, tuple[NDArray[np.int32], tuple[int, ...]]]:
    """Return for each compensation a view with one axis per block, and the padded dims.

    The axes are in index order: dim by dim, the largest step first.
    """
    spans = {}
    for name, (start, shape) in desc.compensation_spans.items():
        assert desc.extra is not None  # noqa: S101 - for the type checker: there are spans
        flat = data[start : start + 4 * prod(shape)].view(np.int32)
        blocks = compensation_layout(desc.layout, desc.extra.masks[name]).blocks
        order = sorted(range(len(blocks)), key=lambda k: memory_order(blocks[k]))
        in_memory = flat.reshape([blocks[k].extent for k in order])
        spans[name] = in_memory.transpose(np.argsort(order)), shape
    return spans


def _sums(elements: NDArray[np.int8], desc: MemoryDesc, mask: int) -> NDArray[np.int32]:
    """Sum over the dims outside a mask; the result is over the padded dims inside it."""
    kept = [dim for dim in range(desc.ndims) if mask >> dim & 1]
    others = tuple(dim for dim in range(desc.ndims) if dim not in kept)
    padded = np.zeros([desc.padded_dims[dim] for dim in kept], np.int32)
    padded[tuple(slice(desc.dims[dim]) for dim in kept)] = elements.sum(others, np.int32)
    return padded
