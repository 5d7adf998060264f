"""What a caller passes as a tensor: an array or raw bytes, as memory with a descriptor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import FormatTag, MemdescError, MemoryDesc, array_desc, data_type, memory_desc
from memdesc.errors import shown
from memdesc.names import resolve
from reorder.dlpack import from_dlpack, is_exporter
from reorder.memory import Memory
from reorder.tables import pack

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["as_memory"]


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
        msg = f"x must be a Memory, a numpy array or a tensor with DLPack, not {type(x).__name__}; for raw bytes give src=, a MemoryDesc"
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
    lowest = x[tuple(slice(-1 if step < 0 else 0, None) if size else slice(None) for size, step in zip(x.shape, x.strides, strict=True))]
    count = desc.layout.last + 1 if desc.nelems else 0
    return Memory(desc, np.lib.stride_tricks.as_strided(lowest, (count,), (x.itemsize,), writeable=False), zero_pad=False)


def _logical(x: NDArray[Any], src: str | FormatTag) -> NDArray[Any]:
    """Return a view, or for blocked layouts a copy, whose axes are the logical dims."""
    if not isinstance(src, str | FormatTag):
        msg = f"src must be a name, a FormatTag or a MemoryDesc, not {shown(src)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    tag = src if isinstance(src, FormatTag) else resolve(src, (), data_type(x.dtype).bits)
    if x.ndim != len(tag.digits):
        msg = (
            f"src '{src}' spells {len(tag.digits)} axes in memory order, but x has {x.ndim}: {x.shape}; "
            f"for a flat buffer give src=memory_desc(dims, dtype, '{src}')"
        )
        raise MemdescError(msg)
    for digit, size in zip(tag.digits, x.shape, strict=True):
        if digit.extent and digit.extent != size:
            msg = f"src '{src}' has a block of {digit.extent}, but that axis of x has {size}: {x.shape}"
            raise MemdescError(msg)
    if any(len(dims) > 1 for dims in tag.axes):
        msg = f"src '{src}' cuts several dims as one index, whose sizes x does not tell; give src=, a MemoryDesc"
        raise MemdescError(msg)
    order = sorted(range(x.ndim), key=lambda k: (tag.digits[k].axis, -tag.digits[k].step))
    sizes = [1] * len(tag.axes)
    for digit, size in zip(tag.digits, x.shape, strict=True):
        sizes[digit.axis] *= size
    return x.transpose(order).reshape(sizes)
