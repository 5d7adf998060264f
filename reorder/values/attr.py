"""Attr: scales, zero points and accumulation of a reorder, checked when made.

Names and meaning are oneDNN's (3.13, reorder primitive); groups are allowed for dst too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from math import isfinite
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from memdesc import MemdescError
from memdesc.errors import short_repr
from memdesc.int64 import checked_int, checked_ints
from memdesc.tags import MAX_NDIMS as _MAX_NDIMS
from reorder.values.formats import INTEGERS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


__all__ = ["F8_ROUNDINGS", "GROUPED_DIMS", "ROLES", "Attr", "Parameter"]

# in the order of the formula
ROLES = ("src_zero_point", "src_scale", "dst_scale", "dst_zero_point")
_LARGE_NBYTES = 1 << 16
_SCALE_TYPES = tuple(
    np.dtype(kind)
    for kind in (
        np.float32,
        np.float64,
        np.float16,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e8m0fnu,
        ml_dtypes.float8_e4m3fn,
    )
)
GROUPED_DIMS = 2
F8_ROUNDINGS = ("once", "onednn")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Attr:
    """What a reorder computes: scales, zero points, accumulation, and how it converts.

    `d = (src_scale * (x - src_zero_point) + beta * old) / dst_scale + dst_zero_point` in f32, or
    f64 where a side has 64 bits, each operation rounded; then d is converted to dst's type.
    Neutral values are no operations. Padding of dst stays 0 (oneDNN 3.13, reorder).

    Parameters
    ----------
    src_scale, dst_scale : float or array
        One number, or one for each index of the dims of a mask: f32, f64, f16, bf16,
        f8_e4m3 or e8m0. Finite and not 0.
    src_zero_point, dst_zero_point : int or array of int
        Likewise; for integer types only, and within their range.
    src_scale_mask, dst_scale_mask, src_zero_point_mask, dst_zero_point_mask : int, optional
        Bit d is set where the values differ along dim d. Values are row-major over
        those dims. 0 by default, which is one value.
    src_scale_groups, dst_scale_groups, src_zero_point_groups, dst_zero_point_groups : (int, int)
        How many neighbours along each of the last two dims share a value; the mask
        must name both dims, and the groups must divide their sizes.
    beta : float
        How much of the values that dst holds is added, as they are stored.
    saturate : bool
        Whether numbers beyond the largest one of a float dst, and infinities, become that
        number; by default they follow the type's rule (infinite, or NaN in f8_e4m3).
    f8_rounding : {"once", "onednn"}
        ``"onednn"`` rounds to f16 on the way to the f8 types, as oneDNN does.

    Raises
    ------
    MemdescError
        If no reorder can use a value; masks, lengths, groups and ranges are
        checked against the descriptors when a reorder is planned.

    Examples
    --------
    >>> import numpy as np, reorder
    >>> x = np.array([[0.5, -3.0], [1.0, 99.0]], np.float32)
    >>> attr = reorder.Attr(dst_scale=np.array([0.5, 1.0]), dst_scale_mask=1, dst_zero_point=3)
    >>> reorder.reorder(x, "ab", dtype="s8", attr=attr).numpy()
    array([[  4,  -3],
           [  4, 102]], dtype=int8)
    """

    src_scale: float | ArrayLike = 1.0
    dst_scale: float | ArrayLike = 1.0
    src_zero_point: int | ArrayLike = 0
    dst_zero_point: int | ArrayLike = 0
    beta: float = 0.0
    src_scale_mask: int | None = None
    dst_scale_mask: int | None = None
    src_zero_point_mask: int | None = None
    dst_zero_point_mask: int | None = None
    src_scale_groups: tuple[int, ...] = ()
    dst_scale_groups: tuple[int, ...] = ()
    src_zero_point_groups: tuple[int, ...] = ()
    dst_zero_point_groups: tuple[int, ...] = ()
    saturate: bool = False
    f8_rounding: str = "once"
    parameters: tuple[Parameter, ...] = field(init=False)
    _key: tuple[object, ...] = field(init=False)

    def __post_init__(self) -> None:
        parameters = (
            Parameter.of(
                role,
                *(getattr(self, f"{role}{part}") for part in ("", "_mask", "_groups")),
                is_scale="scale" in role,
            )
            for role in ROLES
        )
        kept = tuple(parameter for parameter in parameters if parameter is not None)
        for parameter in kept:
            # a caller's array may change later; these values are what was checked
            if parameter.values.size > 1:
                object.__setattr__(self, parameter.role, parameter.values)
        object.__setattr__(self, "beta", _checked_beta(self.beta))
        if not isinstance(self.saturate, bool):
            msg = (  # type: ignore[unreachable] # callers without types
                f"saturate must be True or False, not {short_repr(self.saturate)}"
            )
            raise MemdescError(msg)
        if self.f8_rounding not in F8_ROUNDINGS:
            msg = f"f8_rounding must be 'once' or 'onednn', not {short_repr(self.f8_rounding)}"
            raise MemdescError(msg)
        object.__setattr__(self, "parameters", kept)
        object.__setattr__(
            self,
            "_key",
            (*(parameter.key() for parameter in kept), self.beta, self.saturate, self.f8_rounding),
        )

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Attr) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def is_large(self) -> bool:
        """Whether its arrays are so large that no cache should keep it."""
        return sum(parameter.values.nbytes for parameter in self.parameters) > _LARGE_NBYTES

    def __reduce__(self) -> tuple[Any, ...]:
        return Attr, tuple(getattr(self, part.name) for part in fields(self) if part.init)

    def __repr__(self) -> str:
        parts = [str(parameter) for parameter in self.parameters]
        parts += [f"beta={self.beta}"] if self.beta else []
        parts += ["saturate=True"] if self.saturate else []
        parts += (
            [f"f8_rounding={self.f8_rounding!r}"] if self.f8_rounding != F8_ROUNDINGS[0] else []
        )
        return f"Attr({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Parameter:
    """Values of one role, row-major over the dims of a mask."""

    role: str
    values: NDArray[Any]
    mask: int
    groups: tuple[int, ...]

    @staticmethod
    def of(role: str, given: Any, mask: object, groups: Any, *, is_scale: bool) -> Parameter | None:
        """Check what was given; None where it changes nothing."""
        values = _checked_scales(role, given) if is_scale else _checked_points(role, given)
        sizes = checked_ints(f"{role}_groups", groups)
        bits = 0 if mask is None else checked_int(f"{role}_mask", mask)
        if not 0 <= bits < 1 << _MAX_NDIMS:
            msg = (
                f"{role}_mask is {bits}; bit d says that values differ along dim d, so it is 0 to "
                f"{(1 << _MAX_NDIMS) - 1}"
            )
            raise MemdescError(msg)
        if sizes and (len(sizes) != GROUPED_DIMS or min(sizes) < 1):
            msg = f"{role}_groups {sizes} must be two sizes of 1 or more, for the last two dims"
            raise MemdescError(msg)
        if values.size > 1 and not bits:
            msg = (
                f"{role} has {values.size} values; say by {role}_mask along which dims they "
                "differ, such as 2 for dim b"
            )
            raise MemdescError(msg)
        if values.size == 1 and not bits and values.reshape(-1)[0] == is_scale:
            return None
        return Parameter(role, values, bits, sizes)

    def key(self) -> tuple[object, ...]:
        """Return what two equal ones share."""
        return (
            self.role,
            self.mask,
            self.groups,
            self.values.shape,
            self.values.dtype.name,
            self.values.tobytes(),
        )

    def __str__(self) -> str:
        if self.values.size == 1 and not self.mask:
            return f"{self.role}={self.values.reshape(-1)[0]}"
        groups = f", {self.role}_groups={self.groups}" if self.groups else ""
        return (
            f"{self.role}={self.values.dtype.name}{list(self.values.shape)}, "
            f"{self.role}_mask={self.mask}{groups}"
        )


def _array(role: str, given: Any) -> NDArray[Any]:
    try:
        array = np.array(given)
    except (TypeError, ValueError, OverflowError):
        array = np.array(None)
    if not array.size or array.dtype.kind in "OSUMmb":
        what = "a number or an array of numbers"
        msg = (
            f"{role} must be {what}, not "
            f"{'an empty array' if not array.size else short_repr(given)}"
        )
        raise MemdescError(msg)
    array.flags.writeable = False
    return array


def _checked_scales(role: str, given: Any) -> NDArray[Any]:
    array = _array(role, given)
    if isinstance(given, np.ndarray | np.generic) and array.dtype not in _SCALE_TYPES:
        msg = (
            f"{role} is of {array.dtype}; scales are "
            f"{', '.join(kind.name for kind in _SCALE_TYPES)}"
        )
        raise MemdescError(msg)
    try:
        values = array.astype(np.float64).reshape(-1)
    except (TypeError, ValueError):
        values = np.array([np.nan])
    bad = np.flatnonzero(~np.isfinite(values) | (values == 0))
    if bad.size:
        msg = (
            f"{role} {short_repr(given) if values.size == 1 else f'value {bad[0]}'} is "
            f"{values[bad[0]]}; scales are finite and not 0"
        )
        raise MemdescError(msg)
    return array if array.dtype in _SCALE_TYPES else _frozen(values.reshape(array.shape))


def _checked_points(role: str, given: Any) -> NDArray[Any]:
    array = _array(role, given)
    name = array.dtype.name
    if array.dtype.kind not in "iu" and name not in {"int4", "uint4"}:
        msg = f"{role} must be integers, not {name}: {short_repr(given)}"
        raise MemdescError(msg)
    if array.dtype.kind == "u" and array.itemsize == 8 and array.max() > INTEGERS["s64"][1]:  # noqa: PLR2004 - bytes of uint64
        msg = f"{role} of {array.max()} is beyond s64"
        raise MemdescError(msg)
    return _frozen(array.astype(np.int64))


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def _checked_beta(given: Any) -> float:
    try:
        beta = float(given)
    except (TypeError, ValueError, OverflowError):
        msg = f"beta must be a number, not {short_repr(given)}"
        raise MemdescError(msg) from None
    if not isfinite(beta):
        msg = f"beta is {beta}; it must be finite"
        raise MemdescError(msg)
    return beta
