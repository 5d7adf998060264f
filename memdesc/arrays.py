"""Describe the memory of arrays."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc.desc import MemoryDesc
from memdesc.dtypes import data_type
from memdesc.errors import MemdescError, short_repr
from memdesc.layout import dim_name

if TYPE_CHECKING:
    from numpy.typing import NDArray


def array_desc(array: NDArray[Any]) -> MemoryDesc:
    """Describe the memory of a numpy array; its axes are the logical dims.

    Element 0 of the described buffer is the lowest address that the array touches,
    so `offset0` is not 0 if a stride is negative.

    Parameters
    ----------
    array : ndarray
        Of any shape and strides.

    Raises
    ------
    MemdescError
        If memdesc has no such data type, the array holds unpacked 4-bit elements, or a stride
        is not a multiple of the element size.

    Examples
    --------
    >>> import numpy as np
    >>> import memdesc
    >>> memdesc.array_desc(np.zeros((3, 4), np.float32)[:, ::-1])
    memory_desc((3, 4), 'f32', strides=(4, -1), offset0=3)
    """
    if not isinstance(array, np.ndarray):
        msg = f"a numpy array is needed, not {short_repr(array)}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    return _array_desc(array.shape, array.strides, array.dtype)


@lru_cache(maxsize=4096)
def _array_desc(
    shape: tuple[int, ...], strides: tuple[int, ...], kind: np.dtype[Any]
) -> MemoryDesc:
    dtype = data_type(kind)
    if dtype.is_packed:
        msg = (
            f"a numpy array of {kind.name} holds one element per byte, but memory of {dtype} "
            "holds two; reorder() packs them"
        )
        raise MemdescError(msg)
    steps = []
    skipped = 0
    is_empty = 0 in shape
    for dim, (size, nbytes) in enumerate(zip(shape, strides, strict=True)):
        # numpy allows any stride for a dim of size 1, and for all dims if one has size 0
        if size > 1 and not is_empty and nbytes % kind.itemsize:
            msg = (
                f"{dim_name(dim)} has a stride of {nbytes} bytes, "
                f"not a multiple of the {kind.itemsize}-byte element; copy the array"
            )
            raise MemdescError(msg)
        steps.append(nbytes // kind.itemsize)
        skipped += 0 if is_empty else (size - 1) * max(-steps[-1], 0)
    return MemoryDesc(shape, dtype, strides=steps, offset0=skipped)
