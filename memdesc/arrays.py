"""Describe the memory of arrays."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from memdesc.desc import MemoryDesc
from memdesc.dtypes import DataType, data_type
from memdesc.errors import MemdescError, short_repr
from memdesc.layout import dim_name


def array_desc(x: Any) -> MemoryDesc:
    """Describe the memory of an array or tensor; its axes are the logical dims.

    Element 0 of the described buffer is the lowest address that the array touches,
    so `offset0` is not 0 if a stride is negative.

    Parameters
    ----------
    x : ndarray, or tensor of torch, JAX or another library with DLPack
        Of any shape and strides. A tensor may be on any device; one without strides, such as
        JAX's, is row-major.

    Raises
    ------
    MemdescError
        If memdesc has no such data type, the array holds unpacked 4-bit elements, a stride is not
        a multiple of the element size, or the tensor is sparse.

    Examples
    --------
    >>> memdesc.array_desc(np.zeros((3, 4), np.float32)[:, ::-1])
    memory_desc((3, 4), 'f32', strides=(4, -1), offset0=3)
    """
    if isinstance(x, np.ndarray):
        return strided_desc(x.shape, x.strides, x.dtype)
    if not hasattr(x, "__dlpack__"):
        raise MemdescError(f"an array or a tensor is needed, not {short_repr(x)}")
    if (form := str(getattr(x, "layout", "strided"))).rpartition(".")[2] != "strided":
        raise MemdescError(
            f"a tensor of {form} has no strides; its values and indices are tensors that have"
        )
    shape, strides = tuple(map(int, x.shape)), getattr(x, "strides", None)
    if isinstance(strides, tuple):  # in bytes, as numpy's
        return strided_desc(shape, strides, np.dtype(x.dtype))
    dtype = data_type(x.dtype)
    _refuse_packed(dtype, f"a tensor of {x.dtype}")
    stride = getattr(x, "stride", None)
    steps = stride() if callable(stride) else None
    return MemoryDesc(shape, dtype, strides=steps)


def _refuse_packed(dtype: DataType, what: str) -> None:
    if dtype.is_packed:
        raise MemdescError(
            f"{what} holds one element per byte, but memory of {dtype} holds two; "
            "reorder() packs them"
        )


@lru_cache(maxsize=4096)
def strided_desc(
    shape: tuple[int, ...], strides: tuple[int, ...], kind: np.dtype[Any]
) -> MemoryDesc:
    """Describe an array of some strides in bytes, from its lowest element on."""
    dtype = data_type(kind)
    _refuse_packed(dtype, f"a numpy array of {kind.name}")
    steps = []
    skipped = 0
    is_empty = 0 in shape
    for dim, (size, nbytes) in enumerate(zip(shape, strides, strict=True)):
        # numpy allows any stride for a dim of size 1, and for all dims if one has size 0
        if size > 1 and not is_empty and nbytes % kind.itemsize:
            raise MemdescError(
                f"{dim_name(dim)} has a stride of {nbytes} bytes, "
                f"not a multiple of the {kind.itemsize}-byte element; copy the array"
            )
        steps.append(nbytes // kind.itemsize)
        skipped += 0 if is_empty else (size - 1) * max(-steps[-1], 0)
    return MemoryDesc(shape, dtype, strides=steps, offset0=skipped)
