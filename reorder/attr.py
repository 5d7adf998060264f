"""Attr: scales, zero points and accumulation of a reorder, checked when made and when bound.

Names and meaning are oneDNN's (3.13, reorder primitive); groups are allowed for dst too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import lru_cache
from math import isfinite, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

from memdesc import Axis, Block, MemdescError
from memdesc.errors import shown
from memdesc.ints import checked_int, checked_ints
from memdesc.layout import dim_name
from memdesc.tags import MAX_NDIMS as _MAX_NDIMS
from reorder.formats import INTEGERS, working_type

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from memdesc import MemoryDesc

__all__ = ["ROLES", "Attr", "Bound", "Operand", "bind"]

# in the order of the formula
ROLES = ("src_zero_point", "src_scale", "dst_scale", "dst_zero_point")
_SCALE_TYPES = tuple(
    np.dtype(kind) for kind in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e8m0fnu, ml_dtypes.float8_e4m3fn)
)
_GROUPED_DIMS = 2
_F8_ROUNDINGS = ("once", "onednn")


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
        If a value is none that a reorder can use; masks, lengths, groups and ranges are
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
    _parameters: tuple[_Parameter, ...] = field(init=False)
    _key: tuple[object, ...] = field(init=False)

    def __post_init__(self) -> None:
        parameters = (
            _Parameter.of(role, *(getattr(self, f"{role}{part}") for part in ("", "_mask", "_groups")), is_scale="scale" in role)
            for role in ROLES
        )
        kept = tuple(parameter for parameter in parameters if parameter is not None)
        for parameter in kept:
            # a caller's array may change later; these values are what was checked
            if parameter.values.size > 1:
                object.__setattr__(self, parameter.role, parameter.values)
        object.__setattr__(self, "beta", _checked_beta(self.beta))
        if not isinstance(self.saturate, bool):
            msg = f"saturate must be True or False, not {shown(self.saturate)}"  # type: ignore[unreachable] # callers without types
            raise MemdescError(msg)
        if self.f8_rounding not in _F8_ROUNDINGS:
            msg = f"f8_rounding must be 'once' or 'onednn', not {shown(self.f8_rounding)}"
            raise MemdescError(msg)
        object.__setattr__(self, "_parameters", kept)
        object.__setattr__(self, "_key", (*(parameter.key() for parameter in kept), self.beta, self.saturate, self.f8_rounding))

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Attr) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> tuple[Any, ...]:
        return Attr, tuple(getattr(self, own.name) for own in fields(self) if own.init)

    def __repr__(self) -> str:
        parts = [str(parameter) for parameter in self._parameters]
        parts += [f"beta={self.beta}"] if self.beta else []
        parts += ["saturate=True"] if self.saturate else []
        parts += [f"f8_rounding={self.f8_rounding!r}"] if self.f8_rounding != _F8_ROUNDINGS[0] else []
        return f"Attr({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class _Parameter:
    """Values of one role, row-major over the dims of a mask."""

    role: str
    values: NDArray[Any]
    mask: int
    groups: tuple[int, ...]

    @staticmethod
    def of(role: str, given: Any, mask: object, groups: Any, *, is_scale: bool) -> _Parameter | None:
        """Check what was given; None where it changes nothing."""
        values = _checked_scales(role, given) if is_scale else _checked_points(role, given)
        sizes = checked_ints(f"{role}_groups", groups)
        bits = 0 if mask is None else checked_int(f"{role}_mask", mask)
        if not 0 <= bits < 1 << _MAX_NDIMS:
            msg = f"{role}_mask is {bits}; bit d says that values differ along dim d, so it is 0 to {(1 << _MAX_NDIMS) - 1}"
            raise MemdescError(msg)
        if sizes and (len(sizes) != _GROUPED_DIMS or min(sizes) < 1):
            msg = f"{role}_groups {sizes} must be two sizes of 1 or more, for the last two dims"
            raise MemdescError(msg)
        if values.size > 1 and not bits:
            msg = f"{role} has {values.size} values; say by {role}_mask along which dims they differ, such as 2 for dim b"
            raise MemdescError(msg)
        if values.size == 1 and not bits and values.reshape(-1)[0] == is_scale:
            return None
        return _Parameter(role, values, bits, sizes)

    def key(self) -> tuple[object, ...]:
        """Return what two equal ones share."""
        return self.role, self.mask, self.groups, self.values.shape, self.values.dtype.name, self.values.tobytes()

    def __str__(self) -> str:
        if self.values.size == 1 and not self.mask:
            return f"{self.role}={self.values.reshape(-1)[0]}"
        groups = f", {self.role}_groups={self.groups}" if self.groups else ""
        return f"{self.role}={self.values.dtype.name}{list(self.values.shape)}, {self.role}_mask={self.mask}{groups}"

    def operand(self, desc: MemoryDesc) -> Operand:
        """Lay the values out over the dims of a descriptor."""
        ndims = desc.ndims
        if self.mask >> ndims:
            msg = f"{self.role}_mask {self.mask} names {dim_name(self.mask.bit_length() - 1)}, but the dims are {desc.dims}"
            raise MemdescError(msg)
        groups = [1] * ndims
        if self.groups:
            last = 3 << (ndims - 2) if ndims >= _GROUPED_DIMS else -1
            if self.mask & last != last:
                msg = f"{self.role}_groups {self.groups} are along the last two dims; {self.role}_mask must name both: {self.mask} does not"
                raise MemdescError(msg)
            groups[-_GROUPED_DIMS:] = self.groups
        sizes = []
        for dim, (size, group) in enumerate(zip(desc.dims, groups, strict=True)):
            if size % group:
                msg = f"{self.role}_groups {self.groups}: a group of {group} does not divide {dim_name(dim)} of size {size}"
                raise MemdescError(msg)
            sizes.append(size // group if self.mask >> dim & 1 else 1)
        given = self.values.shape
        if self.values.size != prod(sizes) or (len(given) > 1 and [n for n in given if n > 1] != [n for n in sizes if n > 1]):
            masked = [n for dim, n in enumerate(sizes) if self.mask >> dim & 1]
            msg = (
                f"{self.role} of shape {given} has {self.values.size} values, but mask {self.mask} over dims {desc.dims} asks for "
                f"{prod(sizes)} of shape {tuple(masked)}"
            )
            raise MemdescError(msg)
        return Operand(self.role, desc.dims, tuple(sizes), tuple(groups), self.mask)


class Operand(NamedTuple):
    """Where the values of one role lie over the dims of a reorder: what a layout is to a tensor.

    `sizes` are the dims of the values: 1 where they do not change. Strides of such dims are 0.
    """

    role: str
    dims: tuple[int, ...]
    sizes: tuple[int, ...]
    groups: tuple[int, ...]
    mask: int

    @property
    def offset0(self) -> int:
        """Offset of the first value: 0."""
        return 0

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The dims, one by one."""
        return tuple(Axis((dim,), size) for dim, size in enumerate(self.dims))

    def axis_blocks(self, axis: int) -> tuple[Block, ...]:
        """Return the loops over a dim, outermost first."""
        stride = prod(self.sizes[axis + 1 :]) if self.mask >> axis & 1 else 0
        size, group = self.dims[axis], self.groups[axis]
        if group == 1 or not stride:
            return (Block(axis, 1, size, stride),)
        return Block(axis, group, size // group, stride), Block(axis, 1, group, 0)

    @property
    def is_scalar(self) -> bool:
        """Whether one value serves all."""
        return prod(self.sizes) == 1


class Bound(NamedTuple):
    """Parameters that fit two descriptors."""

    operands: tuple[Operand, ...]
    # in f64, where all of them are exact
    values: tuple[NDArray[np.float64], ...]
    beta: float
    saturates: bool
    through_f16: bool

    @property
    def is_arithmetic(self) -> bool:
        """Whether anything is computed, beside the conversion."""
        return bool(self.operands or self.beta)

    def arrays(self, wide: np.dtype[Any]) -> dict[str, NDArray[Any]]:
        """Return the values of each role as an array over the dims."""
        found = {}
        for operand, values in zip(self.operands, self.values, strict=True):
            array = values.astype(wide).reshape(operand.sizes)
            for dim, group in enumerate(operand.groups):
                if group > 1 and operand.mask >> dim & 1:
                    array = array.repeat(group, dim)
            found[operand.role] = array
        return found


@lru_cache(maxsize=1024)
def bind(attr: Attr | None, src: MemoryDesc, dst: MemoryDesc) -> Bound:
    """Check the parameters against the descriptors of a reorder.

    Raises
    ------
    MemdescError
        If a mask, a length, a group or a zero point does not fit; with the numbers.
    """
    if attr is None:
        return Bound((), (), 0.0, saturates=False, through_f16=False)
    if not isinstance(attr, Attr):
        msg = f"attr must be a reorder.Attr, not {type(attr).__name__}"  # type: ignore[unreachable] # callers without types
        raise MemdescError(msg)
    work = working_type(src.dtype.name, dst.dtype.name, arithmetic=True)
    operands, values = [], []
    for parameter in attr._parameters:  # noqa: SLF001 - of this module
        side, desc = ("src", src) if parameter.role.startswith("src") else ("dst", dst)
        operands.append(parameter.operand(desc))
        exact = parameter.values.astype(np.float64).reshape(-1)
        if "scale" in parameter.role:
            _check_in_f32(parameter.role, exact, work)
        else:
            _check_range(parameter.role, parameter.values, side, desc.dtype.name)
        values.append(exact)
    if attr.beta and work == "f32" and not _is_usable_f32(np.array([attr.beta])):
        msg = f"beta {attr.beta} is 0 or infinite in f32, in which {src.dtype} to {dst.dtype} is computed"
        raise MemdescError(msg)
    is_f8 = dst.dtype.name in {"f8_e5m2", "f8_e4m3"}
    return Bound(
        tuple(operands),
        tuple(values),
        attr.beta,
        saturates=attr.saturate and dst.dtype.name not in INTEGERS,
        through_f16=is_f8 and attr.f8_rounding == _F8_ROUNDINGS[1],
    )


def _array(role: str, given: Any) -> NDArray[Any]:
    try:
        array = np.array(given)
    except (TypeError, ValueError, OverflowError):
        array = np.array(None)
    if not array.size or array.dtype.kind in "OSUMmb":
        what = "a number or an array of numbers"
        msg = f"{role} must be {what}, not {'an empty array' if not array.size else shown(given)}"
        raise MemdescError(msg)
    array.flags.writeable = False
    return array


def _checked_scales(role: str, given: Any) -> NDArray[Any]:
    array = _array(role, given)
    if isinstance(given, np.ndarray | np.generic) and array.dtype not in _SCALE_TYPES:
        msg = f"{role} is of {array.dtype}; scales are {', '.join(kind.name for kind in _SCALE_TYPES)}"
        raise MemdescError(msg)
    try:
        values = array.astype(np.float64).reshape(-1)
    except (TypeError, ValueError):
        values = np.array([np.nan])
    bad = np.flatnonzero(~np.isfinite(values) | (values == 0))
    if bad.size:
        msg = f"{role} {shown(given) if values.size == 1 else f'value {bad[0]}'} is {values[bad[0]]}; scales are finite and not 0"
        raise MemdescError(msg)
    return array if array.dtype in _SCALE_TYPES else _frozen(values.reshape(array.shape))


def _checked_points(role: str, given: Any) -> NDArray[Any]:
    array = _array(role, given)
    name = array.dtype.name
    if array.dtype.kind not in "iu" and name not in {"int4", "uint4"}:
        msg = f"{role} must be integers, not {name}: {shown(given)}"
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
        msg = f"beta must be a number, not {shown(given)}"
        raise MemdescError(msg) from None
    if not isfinite(beta):
        msg = f"beta is {beta}; it must be finite"
        raise MemdescError(msg)
    return beta


def _is_usable_f32(values: NDArray[np.float64]) -> bool:
    with np.errstate(all="ignore"):
        narrow = values.astype(np.float32)
    return bool((np.isfinite(narrow) & (narrow != 0)).all())


def _check_in_f32(role: str, values: NDArray[np.float64], work: str) -> None:
    if work == "f32" and not _is_usable_f32(values):
        with np.errstate(all="ignore"):
            narrow = values.astype(np.float32)
        bad = values[~np.isfinite(narrow) | (narrow == 0)][0]
        msg = f"{role} {bad} is 0 or infinite in f32, in which this reorder computes"
        raise MemdescError(msg)


def _check_range(role: str, values: NDArray[Any], side: str, dtype: str) -> None:
    if dtype not in INTEGERS:
        msg = f"{role} is for integers, but {side} is {dtype}; give a zero point of 0"
        raise MemdescError(msg)
    low, high = INTEGERS[dtype]
    bad = values[(values < low) | (values > high)]
    if bad.size:
        msg = f"{role} {bad.reshape(-1)[0]} is out of range: {side} is {dtype}, {low} to {high}"
        raise MemdescError(msg)
