"""numpy makes the arrays that notations describe: the same strides, offsets and DLPack fields."""

from __future__ import annotations

import ctypes

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memdesc import MemoryDesc, UnsupportedFormatError, array_desc, from_notation, to_notation
from reorder.memory.dlpack import _tensor_in
from tests import strategies


@given(strategies.descs(max_ndims=5))
def test_numpy_makes_the_array_that_is_written(desc: MemoryDesc) -> None:
    try:
        text = to_notation(desc, "numpy")
    except UnsupportedFormatError:
        return
    arguments = eval(f"dict({text})", {})  # noqa: S307 - a string that was made here
    buffer = np.zeros(desc.min_nbytes, np.uint8)
    x = np.ndarray(**arguments, buffer=buffer) if desc.nelems else None
    if x is None:
        return
    assert x.shape == desc.dims
    start = x.__array_interface__["data"][0] - buffer.__array_interface__["data"][0]
    size = desc.dtype.numpy.itemsize
    assert start == desc.offset0 * size
    assert x.strides == tuple(stride * size for stride in desc.strides)


@given(
    strategies.dims(1, 4, 256, zero=False),
    st.sampled_from(("f32", "u8", "s16", "f64", "boolean")),
    st.data(),
)
def test_dlpack_holds_the_fields_that_are_written(
    dims: tuple[int, ...], dtype: str, data: st.DataObject
) -> None:
    desc = data.draw(strategies.strided_descs(dims, dtype, source=False))
    try:
        text = to_notation(desc, "numpy")
    except UnsupportedFormatError:
        return
    arguments = eval(f"dict({text})", {})  # noqa: S307 - a string that was made here
    x = np.ndarray(**arguments, buffer=np.zeros(desc.min_nbytes, np.uint8))
    capsule = x.__dlpack__()
    tensor = _tensor_in(capsule)
    assert tensor is not None
    shape, strides = (
        tuple((ctypes.c_int64 * tensor.ndim).from_address(part))
        for part in (tensor.shape, tensor.strides)
    )
    kind = (tensor.code, tensor.bits, tensor.lanes)
    fields = f"ndim={tensor.ndim}, dtype={kind}, shape={shape}, strides={strides}"
    assert from_notation(fields, "dlpack") == array_desc(x)
