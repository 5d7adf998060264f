"""Scales of quantised tensors: which elements share one, and which scale uses a range best."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import DataType, MemdescError
from memdesc.errors import short_repr
from memdesc.int64 import checked_ints
from memdesc.layout import dim_name
from reorder.values.attr import GROUPED_DIMS
from reorder.values.formats import FLOATS, INTEGERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray


# bits of the narrowest float that can be quantised, and of the widest float to quantise to
_MIN_SRC_BITS, _MAX_DST_BITS = 16, 8


def check_quantized_types(given: DataType, wanted: DataType) -> None:
    """Refuse a type that cannot be quantised, or one that cannot hold the result."""
    if given.name not in FLOATS or given.bits < _MIN_SRC_BITS:
        raise MemdescError(f"quantize takes floats of {_MIN_SRC_BITS} bits or more, not {given}")
    is_float = wanted.name in FLOATS and wanted.bits <= _MAX_DST_BITS
    # the zero points of unsigned types must fit into s32
    is_integer = wanted.name in INTEGERS and (
        INTEGERS[wanted.name].is_signed or INTEGERS[wanted.name].high <= INTEGERS["s32"].high
    )
    if not (is_float or is_integer):
        raise MemdescError(f"quantize makes s4 to s64, u4 to u16, f8 or f4, not {wanted}")


def axes_of(axis: int | Iterable[int] | None) -> tuple[int, ...]:
    """Return the dims that a caller named: one number, several, or None."""
    return () if axis is None else checked_ints("axis", (axis,) if isinstance(axis, int) else axis)


def split_dims(
    dims: tuple[int, ...],
    axis: int | Iterable[int] | None,
    groups: tuple[int, ...],
    letters: str | None = None,
) -> tuple[int, list[int], list[int]]:
    """Return the mask and, for each dim, the number of scales and how many elements share one."""
    axes, ndims = axes_of(axis), len(dims)
    for dim in axes:
        if not -ndims <= dim < ndims:
            raise MemdescError(f"axis {dim} is not one of the dims 0 to {ndims - 1} of {dims}")
    mask = sum({1 << dim % ndims for dim in axes})
    sizes = checked_ints("groups", groups)
    if sizes and (len(sizes) != GROUPED_DIMS or min(sizes) < 1 or ndims < GROUPED_DIMS):
        raise MemdescError(
            f"groups {short_repr(groups)} must be two sizes of 1 or more, for the last two of the "
            f"dims {dims}"
        )
    shared = [*(1,) * (ndims - len(sizes)), *sizes]
    for dim, (size, group) in enumerate(zip(dims, shared, strict=True)):
        if group > 1 and not mask >> dim & 1:
            raise MemdescError(
                f"groups {sizes}: a group of {group} needs {dim_name(dim, letters)} among the axes"
            )
        if size % group:
            raise MemdescError(
                f"groups {sizes}: {group} does not divide {dim_name(dim, letters)} of size {size}"
            )
    missing = [dim for dim in range(ndims - GROUPED_DIMS, ndims) if sizes and not mask >> dim & 1]
    if missing:
        raise MemdescError(
            f"groups {sizes} are along the last two dims, which must both be among the axes: "
            f"{dim_name(missing[0], letters)} is not; its group of 1 has a scale for each element"
        )
    counts = [
        size // group if mask >> dim & 1 else 1
        for dim, (size, group) in enumerate(zip(dims, shared, strict=True))
    ]
    return (
        mask,
        counts,
        [size // count if count else 0 for size, count in zip(dims, counts, strict=True)],
    )


def find_ranges(
    values: NDArray[Any], counts: list[int], sizes: list[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lowest and highest of each scale's values and 0; refuse NaN and infinities."""
    shape = [size for pair in zip(counts, sizes, strict=True) for size in pair]
    if not prod(shape):
        return np.zeros(counts), np.zeros(counts)
    grouped = values.reshape(shape)
    within = tuple(range(1, len(shape), 2))
    with np.errstate(invalid="ignore"):  # the check below refuses NaN
        low, high = (
            np.asarray(reduce(grouped, axis=within), np.float64) for reduce in (np.min, np.max)
        )
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        bad = np.argwhere(~np.isfinite(values.astype(np.float64)))[0]
        raise MemdescError(
            f"x{bad.tolist()} is {values[tuple(bad)]}; only finite values can be quantised"
        )
    return np.minimum(low, 0), np.maximum(high, 0)


def choose_scales(
    low: NDArray[np.float64], high: NDArray[np.float64], name: str, wide: Any, *, is_symmetric: bool
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return scales and zero points that map ranges of values onto the range of a type."""
    least, most = INTEGERS[name] if name in INTEGERS else (-FLOATS[name].max, FLOATS[name].max)
    # halves, since the difference of two f64 may be infinite
    whole = (high / 2 - low / 2) / ((most - least) / 2)
    span = np.maximum(high, -low) / most if is_symmetric else whole
    scales = span.astype(wide)
    # any scale will do if all values are 0, or too small for a scale
    scales = np.where((scales == 0) | ~np.isfinite(scales), wide(1), scales)
    points = np.zeros(low.shape, np.int64)
    if not is_symmetric:
        points = np.clip(np.rint(least - low / scales.astype(np.float64)), least, most).astype(
            np.int64
        )
    return scales, points
