"""DLPack: the fields of a `DLTensor`, with strides in elements and the offset in bytes.

Source: DLPack 1.1, `dlpack.h`.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from memdesc.create import memory_desc
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import UnsupportedFormatError, short_repr
from memdesc.exchange.expressions import arguments, integer, integers
from memdesc.exchange.strided import strides_of
from memdesc.exchange.system import System, cannot, not_understood

if TYPE_CHECKING:
    from memdesc.desc import MemoryDesc
    from memdesc.dtypes import DataType
    from memdesc.exchange.system import Given

__all__ = ["CODES", "SYSTEM"]

_NAME = "DLPack"

# data type -> DLDataTypeCode
CODES: dict[str, int] = {
    **dict.fromkeys(("s64", "s32", "s16", "s8", "s4"), 0),
    **dict.fromkeys(("u64", "u32", "u16", "u8", "u4"), 1),
    **dict.fromkeys(("f64", "f32", "f16"), 2),
    "bf16": 4,
    "boolean": 6,
    "f8_e4m3": 10,
    "f8_e4m3fnuz": 11,
    "f8_e5m2": 12,
    "f8_e5m2fnuz": 13,
    "e8m0": 14,
    "f4_e2m1": 17,
}
_TYPES = {(code, DATA_TYPES[name].bits, 1): DATA_TYPES[name] for name, code in CODES.items()}
_FIELDS = ("ndim", "dtype", "shape", "strides", "byte_offset")


def _write(desc: MemoryDesc, _letters: str) -> tuple[str, ...]:
    strides = strides_of(_NAME, desc)
    bits = desc.offset0 * desc.dtype.bits
    if bits % 8:
        raise cannot(_NAME, desc, f"element {desc.offset0} starts inside a byte")
    kind = (CODES[desc.dtype.name], desc.dtype.bits, 1)
    shape = f"ndim={desc.ndims}, dtype={kind}, shape={desc.dims}"
    return (f"{shape}, strides={strides}, byte_offset={bits // 8}",)


def _read(given: Given) -> MemoryDesc:
    text = given.text
    reason = f"it is {_FIELDS[0]}=2, dtype=(2, 32, 1), shape=(2, 3), strides=(3, 1), byte_offset=0"
    found = arguments(_NAME, text, _FIELDS, reason)
    dtype = given.type(_dtype(text, found["dtype"]) if "dtype" in found else None)
    dims = given.sizes(integers(_NAME, text, found["shape"]) if "shape" in found else None)
    if "ndim" in found and integer(_NAME, text, found["ndim"]) != len(dims):
        raise not_understood(_NAME, text, f"ndim is not {len(dims)}, the length of shape")
    nbytes = integer(_NAME, text, found["byte_offset"]) if "byte_offset" in found else 0
    if nbytes * 8 % dtype.bits:
        msg = f"{short_repr(text)}: byte {nbytes} is no start of an element of {dtype.bits} bits"
        raise UnsupportedFormatError(msg)
    strides = found.get("strides")
    # NULL stands for row-major
    is_null = strides is None or ast.unparse(strides) in {"None", "NULL"}
    return memory_desc(
        dims,
        dtype,
        strides=None if is_null or strides is None else integers(_NAME, text, strides),
        offset0=nbytes * 8 // dtype.bits,
    )


def _dtype(text: str, node: ast.expr) -> DataType:
    """Return the data type of code, bits and lanes."""
    kind = integers(_NAME, text, node)
    if kind not in _TYPES:
        msg = f"{short_repr(text)} has the type (code, bits, lanes) {kind}, which is none here"
        raise UnsupportedFormatError(msg)
    return _TYPES[kind]


SYSTEM = System("dlpack", "the fields of a DLTensor", _write, _read)
