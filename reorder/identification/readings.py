"""What bytes look like in each type of one size: evidence where nobody knows the type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memdesc import DataType, memory_desc
from memdesc.dtypes import DATA_TYPES
from memdesc.immutable import immutable
from memdesc.tuples import NamedTuple
from reorder.api import reorder
from reorder.memory.memory import Memory
from reorder.values.formats import FLOATS, FORMATS, INTEGERS, FloatFormat

if TYPE_CHECKING:
    from numpy.typing import NDArray


# How many elements are read; the magnitudes that values of tensors usually have.
_SAMPLES = 4096
_LEAST, _MOST = 1e-6, 1e6
# the share of the magnitudes that a range leaves out at each end
_TAIL = 0.05
# few files have these types: they are tried only if a caller names them
_RARE = ("f8_e5m2fnuz", "f8_e4m3fnuz", "f4_e2m1")


@immutable
class TypeReading(NamedTuple):
    """What bytes look like in a type. Zeros, which look the same in every type, are left out.

    Parameters
    ----------
    dtype : DataType
        The type.
    ordinary : float
        The share of the elements that are ordinary numbers: normal ones for a float, with a
        magnitude from 1e-6 to 1e6.
    least, most : float
        The range of the magnitudes, without the 5 % at each end; NaN if none is finite.

    Examples
    --------
    >>> x = np.arange(1, 33, dtype=np.int32)
    >>> found = reorder.identify(x, dims=(4, 8), dtype="f32")
    >>> [(str(each.dtype), each.ordinary) for each in found.readings]
    [('f32', 0.0), ('s32', 1.0), ('u32', 1.0)]
    """

    dtype: DataType
    ordinary: float
    least: float
    most: float


def number_types() -> list[DataType]:
    """Return the types of numbers that are tried if the caller names none."""
    return [DATA_TYPES[name] for name in (*FLOATS, *INTEGERS) if name not in _RARE]


def readings(data: NDArray[np.uint8], bits: int) -> list[TypeReading]:
    """Return what the elements of a width look like in each type of numbers of this width.

    Elements of 4 bits look the same in every type, and so do bytes that are all zero.
    """
    if bits < np.iinfo(np.uint8).bits:
        return []
    words = data[: data.size * 8 // bits * bits // 8].view(f"u{bits // 8}")
    words = words[words != 0]
    if words.size > _SAMPLES:
        words = words[np.random.default_rng(0).integers(0, words.size, _SAMPLES)]
    return [_reading(kind, words) for kind in number_types() if kind.bits == bits and words.size]


def _reading(kind: DataType, words: NDArray[np.unsignedinteger]) -> TypeReading:
    memory = Memory(memory_desc(words.shape, kind), words.view(np.uint8))
    magnitudes = np.abs(reorder(memory, "plain", dtype="f64").numpy())
    form = FORMATS[kind.name]
    normal = 2.0 ** (1 - form.bias) if isinstance(form, FloatFormat) else 0.0
    is_ordinary = (magnitudes >= max(_LEAST, normal)) & (magnitudes <= _MOST)
    finite = magnitudes[np.isfinite(magnitudes)]
    least, most = np.quantile(finite, (_TAIL, 1 - _TAIL)) if finite.size else (np.nan, np.nan)
    return TypeReading(kind, float(is_ordinary.mean()), float(least), float(most))
