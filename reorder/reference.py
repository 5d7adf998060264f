"""The definition of a reorder, by offset tables in numpy: total, slow, the oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reorder.attr import bind
from reorder.buffers import flat_bytes
from reorder.convert import convert
from reorder.plan import check_pair

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import Layout, MemoryDesc
    from reorder.attr import Attr

__all__ = ["execute_reference", "offsets", "pack", "unpack"]


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


def execute_reference(src_desc: MemoryDesc, dst_desc: MemoryDesc, src: Any, dst: Any, attr: Attr | None = None) -> None:
    """Reorder by definition: zero all of dst that is described, then convert each element.

    How an element is converted is said in `reorder.convert`.

    Parameters
    ----------
    src_desc, dst_desc : MemoryDesc
        Of the same dims.
    src, dst : buffer
        As for `execute`.
    attr : Attr, optional
        Scales, zero points, accumulation.

    Raises
    ------
    MemdescError
        If there is no such reorder, or a buffer does not fit; nothing is written then.
    """
    check_pair(src_desc, dst_desc)
    bound = bind(attr, src_desc, dst_desc)
    data = flat_bytes(dst, dst_desc, "dst", write=True)
    values = unpack(flat_bytes(src, src_desc, "src", write=False), src_desc)
    out = unpack(data, dst_desc)
    at = offsets(dst_desc.layout)
    moved = convert(values[offsets(src_desc.layout)], src_desc.dtype, dst_desc.dtype, bound, out[at] if bound.beta else None)
    out[offsets(dst_desc.layout, padded=True)] = 0
    out[at] = moved
    pack(out, data, dst_desc)
