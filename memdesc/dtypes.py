"""Data types: oneDNN's name, the width in bits, the numpy (or ml_dtypes) dtype.

Sources: oneDNN 3.13 `dnnl_data_type_t`; ml_dtypes 0.6 for what numpy lacks. Two
4-bit elements share a byte, the even one in the low nibble.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from memdesc.errors import MemdescError, short_repr

if TYPE_CHECKING:
    from typing import Any

__all__ = ["DATA_TYPES", "DataType", "data_type"]


@dataclass(frozen=True, slots=True)
class DataType:
    """A numeric type of elements in memory.

    Parameters
    ----------
    name : str
        oneDNN's name, such as ``f32`` or ``bf16``.
    bits : int
        Width of one element in bits: 4, 8, 16, 32 or 64.
    numpy : numpy.dtype
        The dtype of logical arrays. For 4-bit types it holds one element a byte.

    Examples
    --------
    >>> from memdesc import data_type
    >>> data_type("bf16").bits, data_type("bf16").numpy.name
    (16, 'bfloat16')
    """

    name: str
    bits: int
    numpy: np.dtype[Any]

    def __repr__(self) -> str:
        return f"data_type({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return data_type, (self.name,)

    @property
    def is_packed(self) -> bool:
        """Whether two elements share a byte."""
        return self.bits == 4  # noqa: PLR2004 - the one packed width there is

    @property
    def bits_dtype(self) -> np.dtype[Any]:
        """The unsigned dtype of the storage unit: one element, or a byte of two."""
        return np.dtype(f"u{max(self.bits, 8) // 8}")

    def nbytes(self, count: int) -> int:
        """Return how many bytes `count` elements take, rounded up to whole bytes."""
        return (count * self.bits + 7) // 8


DATA_TYPES: dict[str, DataType] = {
    name: DataType(name, bits, np.dtype(numpy))
    for name, bits, numpy in (
        ("f64", 64, np.float64),
        ("f32", 32, np.float32),
        ("f16", 16, np.float16),
        ("bf16", 16, ml_dtypes.bfloat16),
        ("f8_e5m2", 8, ml_dtypes.float8_e5m2),
        ("f8_e4m3", 8, ml_dtypes.float8_e4m3fn),
        ("e8m0", 8, ml_dtypes.float8_e8m0fnu),
        ("f4_e2m1", 4, ml_dtypes.float4_e2m1fn),
        ("s64", 64, np.int64),
        ("s32", 32, np.int32),
        ("s8", 8, np.int8),
        ("u8", 8, np.uint8),
        ("s4", 4, ml_dtypes.int4),
        ("u4", 4, ml_dtypes.uint4),
    )
}

_BY_NUMPY = {dtype.numpy: dtype for dtype in DATA_TYPES.values()}
# of numpy's strings only the full names: its "u4" has 32 bits and its "f8" 64
_BY_NAME = {**{dtype.numpy.name: dtype for dtype in DATA_TYPES.values()}, **DATA_TYPES}


def data_type(spec: object) -> DataType:
    """Look up a data type by oneDNN's name or by its numpy or ml_dtypes dtype.

    Parameters
    ----------
    spec : DataType, str, numpy.dtype or scalar type
        ``"f32"``, ``numpy.float32``, ``"float32"``, ``ml_dtypes.bfloat16``, ...

    Raises
    ------
    MemdescError
        If there is no such type; the message lists the legal names.

    Examples
    --------
    >>> import numpy as np
    >>> import memdesc
    >>> memdesc.data_type(np.int8)
    data_type('s8')
    """
    if isinstance(spec, DataType):
        return spec
    if isinstance(spec, str):
        found = _BY_NAME.get(spec)
    else:
        # np.dtype(None) is float64, but an argument forgotten is not a choice
        try:
            dtype = None if spec is None else np.dtype(spec)  # type: ignore[call-overload] # numpy decides
        except (TypeError, ValueError):
            dtype = None
        if dtype is not None and not dtype.isnative:
            msg = f"dtype {dtype.str!r} is not in native byte order; convert with x.astype(x.dtype.newbyteorder('='))"
            raise MemdescError(msg)
        found = _BY_NUMPY.get(dtype) if dtype is not None else None
    if found is None:
        msg = f"unknown data type {short_repr(spec)}; the types are {', '.join(DATA_TYPES)}, or their numpy dtypes"
        raise MemdescError(msg)
    return found
