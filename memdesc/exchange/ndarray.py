"""numpy's arrays: the arguments of `numpy.ndarray`, with strides and offset in bytes.

Source: numpy 2, `numpy.ndarray`. The offset is that of the element at index 0.
"""

from __future__ import annotations

import ast
import warnings
from typing import TYPE_CHECKING

import numpy as np

from memdesc.create import memory_desc
from memdesc.dtypes import data_type
from memdesc.errors import UnsupportedFormatError, short_repr
from memdesc.exchange.expressions import arguments, integer, integers
from memdesc.exchange.strided import strides_of
from memdesc.exchange.system import System, cannot

if TYPE_CHECKING:
    from memdesc.desc import MemoryDesc
    from memdesc.dtypes import DataType
    from memdesc.exchange.system import Given

__all__ = ["SYSTEM"]

_NAME = "numpy"


def _write(desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    if desc.dtype.is_packed:
        raise cannot(_NAME, desc, f"an array of {desc.dtype} holds one element a byte, not two")
    size = desc.dtype.numpy.itemsize
    strides = tuple(stride * size for stride in strides_of(_NAME, desc))
    offset = f", offset={desc.offset0 * size}" if desc.offset0 else ""
    return (f"shape={desc.dims}, dtype='{desc.dtype.numpy.name}', strides={strides}{offset}",)


def _read(given: Given) -> MemoryDesc:
    text = given.text
    reason = "it is shape=(2, 3), dtype='float32', strides=(12, 4), offset=0, in bytes"
    found = arguments(_NAME, text, ("shape", "dtype", "strides", "offset"), reason)
    values = {
        key: integers(_NAME, text, found[key]) for key in found if key in {"shape", "strides"}
    }
    dtype = given.type(_dtype(found["dtype"]) if "dtype" in found else None)
    if dtype.is_packed:
        msg = f"{short_repr(text)}: an array of {dtype} holds one element a byte, and memory two"
        raise UnsupportedFormatError(msg)
    offset = integer(_NAME, text, found["offset"]) if "offset" in found else 0
    size = dtype.numpy.itemsize
    for nbytes in (offset, *values.get("strides", ())):
        if nbytes % size:
            msg = f"{short_repr(text)}: {nbytes} bytes are no whole elements of {size} bytes"
            raise UnsupportedFormatError(msg)
    strides = values.get("strides")
    return memory_desc(
        given.sizes(values.get("shape")),
        dtype,
        strides=None if strides is None else [stride // size for stride in strides],
        offset0=offset // size,
    )


def _dtype(node: ast.expr) -> DataType:
    """Return the data type of numpy's name: `'float32'`, `'<f4'`, `np.float32`, `numpy.int8`."""
    text = str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node)
    name = text.removeprefix("np.").removeprefix("numpy.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return data_type(np.dtype(name))
    # no such type, a broken structure, or a name that goes out of use
    except (TypeError, ValueError, SyntaxError, Warning):
        return data_type(name)


SYSTEM = System("numpy", "the arguments of numpy.ndarray", _write, _read)
