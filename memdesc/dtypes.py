"""Data types: name, width in bits, numpy (or ml_dtypes) dtype, and aliases.

Sources: oneDNN 3.13 `dnnl_data_type_t`; ml_dtypes 0.6 for types that numpy lacks. Two
4-bit elements share a byte, the even one in the low nibble. What the bits of a type mean
is defined in `reorder/values/formats.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from operator import index as to_int
from types import MappingProxyType
from typing import Any, ClassVar, Self, cast

import numpy as np

from memdesc.checked import Checked
from memdesc.errors import MemdescError, short_repr
from memdesc.immutable import immutable
from memdesc.int64 import checked_int
from memdesc.lazy import import_lock

BYTE_BITS = 8


@immutable
class DataType(Checked):
    """The type of an element in memory: a row of the table of types.

    Get one with `data_type`; no others can be made.

    Parameters
    ----------
    name : str
        oneDNN's name if it has the type, such as ``f32`` or ``bf16``.
    bits : int
        Width of one element in bits: 4, 8, 16, 32 or 64.
    numpy : numpy.dtype
        The dtype of logical arrays. For 4-bit types it holds one element per byte.

    Raises
    ------
    MemdescError
        If the table has no such row.

    Examples
    --------
    >>> memdesc.data_type("bf16").bits, memdesc.data_type("bf16").numpy.name
    (16, 'bfloat16')
    """

    __slots__ = ("bits", "name", "numpy")
    name: str
    bits: int
    numpy: np.dtype[Any]
    # in messages: how to get another one
    _another: ClassVar[str] = "data_type(name) returns another"

    def __new__(cls, name: str, bits: int, numpy: np.dtype[Any]) -> Self:
        """Return the row with these values, so that equal types are the same object."""
        row = DATA_TYPES.get(name) if isinstance(name, str) else None
        if (
            row is None
            or not isinstance(numpy, np.dtype)
            or (checked_int("bits", bits), numpy) != (row.bits, row.numpy)
        ):
            raise MemdescError(
                f"there is no data type {short_repr(name)} of {short_repr(bits)} bits and "
                f"{short_repr(numpy)}; get one by data_type(name), names are "
                f"{', '.join(DATA_TYPES)}"
            )
        return cast("Self", row)

    def __getattr__(self, name: str) -> Any:
        # called where a slot is empty: that of a type of ml_dtypes, which is slow to load
        if name != "numpy":
            msg = f"a DataType has no attribute {name!r}"
            raise AttributeError(msg, name=name, obj=self)
        with import_lock:
            import ml_dtypes

        dtype = np.dtype(getattr(ml_dtypes, _ML_NAMES[self.name]))
        object.__setattr__(self, name, dtype)
        return dtype

    def __repr__(self) -> str:
        return f"data_type({self.name!r})"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return data_type, (self.name,)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The same as `numpy`, under the name where numpy looks: `np.zeros(m.shape, m.dtype)`."""
        return self.numpy

    @property
    def is_packed(self) -> bool:
        """Whether two elements share a byte."""
        return self.bits == 4  # noqa: PLR2004 - the one packed width there is

    @property
    def bits_dtype(self) -> np.dtype[Any]:
        """The unsigned dtype of what is stored: an element, or a byte with two of them."""
        return np.dtype(f"u{max(self.bits, 8) // 8}")

    def nbytes(self, count: int) -> int:
        """Return how many bytes `count` elements take, rounded up to whole bytes."""
        return (to_int(count) * self.bits + 7) // 8


# Name, bits, and the names in numpy or ml_dtypes, XLA (xla_data.proto), MLIR and OpenVINO, - for
# none; then other names, of OpenVINO, OpenCL and C. The number in a name counts bits, as in
# OpenVINO's i8 (numpy's np.dtype("i8") has 8 bytes). MLIR's i8 has no sign, its i1 no known width.
_TABLE = """
f64         64 float64         f64        f64        f64     fp64 double
f32         32 float32         f32        f32        f32     fp32 float
f16         16 float16         f16        f16        f16     fp16 half
bf16        16 bfloat16        bf16       bf16       bf16
f8_e5m2     8  float8_e5m2     f8e5m2     f8E5M2     f8e5m2  f8e5m2
f8_e4m3     8  float8_e4m3fn   f8e4m3fn   f8E4M3FN   f8e4m3  f8e4m3 f8_e4m3fn
f8_e5m2fnuz 8  float8_e5m2fnuz f8e5m2fnuz f8E5M2FNUZ -
f8_e4m3fnuz 8  float8_e4m3fnuz f8e4m3fnuz f8E4M3FNUZ -
e8m0        8  float8_e8m0fnu  f8e8m0fnu  f8E8M0FNU  f8e8m0  f8e8m0
f4_e2m1     4  float4_e2m1fn   f4e2m1fn   f4E2M1FN   f4e2m1  f4e2m1
s64         64 int64           s64        i64        i64     i64
s32         32 int32           s32        i32        i32     i32
s16         16 int16           s16        i16        i16     i16
s8          8  int8            s8         i8         i8      i8
s4          4  int4            s4         i4         i4      i4
u64         64 uint64          u64        ui64       u64
u32         32 uint32          u32        ui32       u32
u16         16 uint16          u16        ui16       u16
u8          8  uint8           u8         ui8        u8
u4          4  uint4           u4         ui4        u4
boolean     8  bool_           pred       -          boolean
"""
ROWS = [row.split() for row in _TABLE.strip().splitlines()]
# types of ml_dtypes
_ML_NAMES = {name: numpy_name for name, _, numpy_name, *_ in ROWS if not hasattr(np, numpy_name)}


_BY_NAME: dict[str, DataType] = {}
# read-only, like every public table
DATA_TYPES = MappingProxyType(_BY_NAME)


def add_row(name: str, bits: int, numpy: Any) -> None:
    """Add a row to `DATA_TYPES`, before any module derives another table from it."""
    dtype = object.__new__(DataType)
    object.__setattr__(dtype, "name", name)
    object.__setattr__(dtype, "bits", bits)
    if name not in _ML_NAMES:
        object.__setattr__(dtype, "numpy", np.dtype(numpy))
    _BY_NAME[name] = dtype


for _row in ROWS:
    add_row(_row[0], int(_row[1]), _row[2].strip("_"))

# Of numpy's names only the full ones are read, such as "uint8", which are also torch's: in numpy,
# "u4" has 32 bits and "f8" has 64.
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        alias: name
        for name, _, numpy_name, _, _, _, *others in ROWS
        for alias in (numpy_name.strip("_"), *others)
    }
)
_BY_NUMPY = {dtype.numpy: dtype for dtype in DATA_TYPES.values() if dtype.name not in _ML_NAMES}

_TORCH = "torch."
# Further names of integers in torch. In C and numpy the same words mean other widths.
_TORCH_INTEGERS = {"long": "s64", "int": "s32", "short": "s16"}
# numpy's short strings, which count bytes
_NUMPY_STRING = r"[<>=|]?(\?|[bfiu][0-9]{1,2})"
_COMPLEX = "move real and imaginary parts, x.view(np.float64), which has twice as many elements"
# data types without a row -> what to use instead
_INSTEAD = {
    **dict.fromkeys(("fp8", "float8"), "did you mean 'f8_e4m3' or 'f8_e5m2'?"),
    "complex64": "move it as a type of the same width, x.view(np.uint64)",
    "complex128": _COMPLEX,
    "complex": _COMPLEX,
    "float8_e4m3": "f8_e4m3 is float8_e4m3fn, whose highest exponent is for numbers, not infinities"
    "; convert with x.astype(ml_dtypes.float8_e4m3fn)",
}
# Longer strings are not compared with the names: that is slow and finds nothing.
_MAX_SUGGESTED = 24


def data_type(spec: object) -> DataType:
    """Look up a data type by its name, or by a dtype of numpy, ml_dtypes or torch.

    Strings count bits: ``"i8"`` is s8, ``"u4"`` has four bits. A `numpy.dtype` is numpy's:
    ``numpy.dtype("i8")`` has eight bytes and is s64.

    Parameters
    ----------
    spec : DataType, str, numpy.dtype, scalar type or torch.dtype
        ``"f32"``, ``numpy.float32``, ``"float32"``, ``"fp32"``, ``"torch.float32"``,
        ``torch.float32``, ``ml_dtypes.bfloat16``, ...

    Raises
    ------
    MemdescError
        If there is no such type; the message lists the types and suggests similar names.

    Examples
    --------
    >>> memdesc.data_type(np.int8), memdesc.data_type("i8"), memdesc.data_type(np.dtype("i8"))
    (data_type('s8'), data_type('s8'), data_type('s64'))
    """
    if isinstance(spec, DataType):
        return spec
    name = _name_in(spec)
    dtype = _by_numpy(spec) if name is None else DATA_TYPES.get(ALIASES.get(name, name))
    if dtype is None:
        raise MemdescError(
            f"unknown data type {short_repr(spec)}; the types are {', '.join(DATA_TYPES)}, "
            f"or their numpy dtypes{_hint(spec, name)}"
        )
    return dtype


def _name_in(spec: object) -> str | None:
    """Return the name given by a string or a torch.dtype; None for anything else."""
    if isinstance(spec, str):
        name = spec.removeprefix(_TORCH)
        return name if name == spec else _TORCH_INTEGERS.get(name, name)
    given_type = type(spec)
    if (given_type.__module__, given_type.__name__) == ("torch", "dtype"):
        return str(spec).removeprefix(_TORCH)
    return None


def _by_numpy(spec: Any) -> DataType | None:
    """Return the data type of `numpy.dtype(spec)`; None if numpy refuses it."""
    # np.dtype(None) is float64, but None is more likely to be a forgotten argument
    if spec is None:
        return None
    try:
        dtype = np.dtype(spec)
    except Exception:  # noqa: BLE001 - numpy parses strings and calls repr() of objects
        return None
    if not dtype.isnative:
        raise MemdescError(
            f"dtype {dtype.str!r} is not in native byte order; "
            "convert with x.astype(x.dtype.newbyteorder('='))"
        )
    return _BY_NUMPY.get(dtype) or _by_ml_dtypes().get(dtype)


@cache
def _by_ml_dtypes() -> dict[np.dtype[Any], DataType]:
    return {DATA_TYPES[name].numpy: DATA_TYPES[name] for name in _ML_NAMES}


def _hint(spec: Any, name: str | None) -> str:
    """Return the end of the message for an unknown type: what to do about it."""
    if name is not None and re.fullmatch(_NUMPY_STRING, name):
        with suppress(TypeError):
            if dtype := _by_numpy(np.dtype(name)):
                return (
                    f"; numpy's {name!r} is {dtype.name!r}; strings here count bits, "
                    f"or pass np.dtype({name!r})"
                )
    word = name or getattr(spec, "name", None) or getattr(spec, "__name__", None)
    if isinstance(word, str) and word in _INSTEAD:
        return f"; {_INSTEAD[word]}"
    if name is None or len(name) > _MAX_SUGGESTED:
        return ""
    from difflib import get_close_matches  # only needed for a wrong name

    near = get_close_matches(name.lower(), [*DATA_TYPES, *ALIASES], cutoff=0.5)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
