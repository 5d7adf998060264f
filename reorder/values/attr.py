"""Attr: the scales, zero points and accumulation of a reorder, checked on construction.

Names and meanings are oneDNN's (3.13, reorder primitive), but here dst may have groups too.
"""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError
from memdesc.checked import Checked
from memdesc.errors import short_repr
from memdesc.immutable import field, value_class
from memdesc.int64 import checked_flag, checked_int, checked_ints
from memdesc.tags import MAX_NDIMS
from memdesc.tuples import NamedTuple
from reorder.values.formats import INTEGERS
from reorder.values.masked import is_masked, refuse_masked

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# The parameters, in the order of the formula.
ROLES = ("src_zero_point", "src_scale", "dst_scale", "dst_zero_point")
# Groups are along the last two dims.
GROUPED_DIMS = 2
# The names of the dtypes of scales. Those of ml_dtypes are not loaded to ask for them.
_SCALE_TYPES = ("float32", "float64", "float16", "bfloat16", "float8_e8m0fnu", "float8_e4m3fn")
# Plans with larger attributes are not cached.
_LARGE_NBYTES = 1 << 16
# Parameters from arrays up to this size are kept: checking one takes as long as a small reorder.
_KEPT_NBYTES = 1 << 12
F8_ROUNDINGS = ("once", "onednn")
# For each role, a function that returns its fields, and the neutral value.
_FIELDS = tuple(
    (role, attrgetter(role, f"{role}_mask", f"{role}_groups"), 1.0 if "scale" in role else 0)
    for role in ROLES
)
_set = object.__setattr__  # sets fields of a frozen value while it is made
_NOT_NUMBERS = (bool, np.bool_, str, bytes, bytearray)


class Parameter(NamedTuple):
    """The values of one role, row-major over the dims of a mask."""

    role: str
    values: NDArray[Any]
    mask: int
    groups: tuple[int, ...]

    @property
    def key(self) -> tuple[object, ...]:
        """Parameters with equal keys are equal."""
        values = self.values
        return self.role, self.mask, self.groups, values.shape, values.dtype, values.tobytes()

    def __str__(self) -> str:
        if self.values.size == 1 and not self.mask:
            return f"{self.role}={self.values.reshape(-1)[0]}"
        groups = f", {self.role}_groups={self.groups}" if self.groups else ""
        return (
            f"{self.role}={self.values.dtype.name}{list(self.values.shape)}, "
            f"{self.role}_mask={self.mask}{groups}"
        )


@value_class
class Attr(Checked):
    """What a reorder computes: scales, zero points, accumulation, and how it converts.

    `d = (src_scale * (x - src_zero_point) + beta * old) / dst_scale + dst_zero_point` is computed
    in f32, or in f64 if a side has 64 bits, and each operation is rounded (`docs/dtypes.md`); then
    d is converted to dst's type. Neutral values are skipped. Padding of dst stays 0 (oneDNN 3.13,
    reorder).

    Parameters
    ----------
    src_scale, dst_scale : float or array
        One number, or one for each index of the dims of a mask: f32, f64, f16, bf16,
        f8_e4m3 or e8m0. Finite and not 0.
    src_zero_point, dst_zero_point : int or array of int
        One number or several, like the scales; for integer types only. They are s32, so they may
        exceed the range of the type.
    src_scale_mask, dst_scale_mask, src_zero_point_mask, dst_zero_point_mask : int, optional
        Bit d is set if the values differ along dim d. Values are row-major over
        those dims. 0 by default, which means one value.
    src_scale_groups, dst_scale_groups, src_zero_point_groups, dst_zero_point_groups : (int, int)
        How many adjacent elements along each of the last two dims share a value; the mask
        must name both dims, and the groups must divide their sizes.
    beta : float
        The factor of the values that dst already holds. They are taken as stored: `dst_scale` and
        `dst_zero_point` are not undone. 0 ignores them.
    saturate : bool
        Whether a float dst clamps larger numbers and infinities to its largest number; by
        default they follow the type's rule (infinite, or NaN in f8_e4m3).
    f8_rounding : {"once", "onednn"}
        ``"once"`` rounds to the f8 types directly, ``"onednn"`` to f16 first, as oneDNN does.

    Raises
    ------
    MemdescError
        If a value is invalid for every reorder; masks, lengths, groups and types are
        checked against the descriptors when a reorder is planned.

    Examples
    --------
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
    _hash: int = field(init=False)
    # whether its arrays are too large to be kept in a cache
    is_large: bool = field(init=False)

    def __post_init__(self) -> None:
        kept, keys, nbytes = [], [], 0
        for role, fields, neutral in _FIELDS:
            given, mask, groups = fields(self)
            is_plain = mask is None and type(groups) is tuple and not groups
            if is_plain and type(given) is type(neutral):
                if given == neutral:
                    continue
                parameter = _known_parameter(role, given, mask, groups)
            else:
                parameter = _parameter(role, given, mask, groups)
            self._keep(role, parameter)
            if parameter is not None:
                kept.append(parameter)
                keys.append(parameter.key)
                nbytes += parameter.values.nbytes
        _set(self, "beta", _checked_beta(self.beta))
        _set(self, "saturate", checked_flag("saturate", self.saturate))
        if not isinstance(self.f8_rounding, str) or self.f8_rounding not in F8_ROUNDINGS:
            raise MemdescError(
                f"f8_rounding must be 'once' or 'onednn', not {short_repr(self.f8_rounding)}"
            )
        key = *keys, self.beta, self.saturate, self.f8_rounding
        _set(self, "parameters", tuple(kept))
        _set(self, "_key", key)
        _set(self, "_hash", hash(key))
        _set(self, "is_large", nbytes > _LARGE_NBYTES)

    def _keep(self, role: str, checked: Parameter | None) -> None:
        """Keep copies of what was checked, since callers may change their arrays and lists."""
        given, groups = getattr(self, role), f"{role}_groups"
        if not isinstance(given, int | float | np.generic):
            values = frozen(np.array(given)) if checked is None else checked.values
            _set(self, role, values)
        kept = tuple(getattr(self, groups)) if checked is None else checked.groups
        _set(self, groups, kept)

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Attr) else NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        parts = [str(parameter) for parameter in self.parameters]
        parts += [f"beta={self.beta}"] if self.beta else []
        parts += ["saturate=True"] if self.saturate else []
        parts += (
            [f"f8_rounding={self.f8_rounding!r}"] if self.f8_rounding != F8_ROUNDINGS[0] else []
        )
        return f"Attr({', '.join(parts)})"


def check_attr(attr: object) -> None:
    """Refuse attributes that are neither an `Attr` nor None."""
    if not isinstance(attr, Attr | None):
        raise MemdescError(f"attr must be a reorder.Attr, not {type(attr).__name__}")


def check_beta(attr: object, out: object) -> None:
    """Refuse attributes that add to what `out` holds if there is no `out`."""
    if out is None and isinstance(attr, Attr) and attr.beta:
        raise MemdescError(
            f"beta {attr.beta} adds to what dst holds; pass out=, the memory that holds it"
        )


def _parameter(role: str, given: Any, mask: object, groups: Any) -> Parameter | None:
    """Check what was given for a role; return None for a neutral value."""
    if type(given) is np.ndarray and type(mask) is int and type(groups) is tuple and not groups:
        is_small = 0 < given.nbytes <= _KEPT_NBYTES and given.dtype.kind in "fiu"
        if is_small:
            return _of_array(role, (given.dtype, given.shape, given.tobytes()), mask)
    return _checked_parameter(role, given, mask, groups)


@lru_cache(maxsize=256)
def _of_array(
    role: str, content: tuple[np.dtype[Any], tuple[int, ...], bytes], mask: int
) -> Parameter | None:
    """Return the parameter of a small array, the same one for equal arrays."""
    dtype, shape, held = content
    return _checked_parameter(role, np.frombuffer(held, dtype).reshape(shape), mask, ())


def _checked_parameter(role: str, given: Any, mask: object, groups: Any) -> Parameter | None:
    is_scale = "scale" in role
    values = _checked_scales(role, given) if is_scale else _checked_points(role, given)
    sizes = checked_ints(f"{role}_groups", groups)
    bits = 0 if mask is None else checked_int(f"{role}_mask", mask)
    if not 0 <= bits < 1 << MAX_NDIMS:
        raise MemdescError(
            f"{role}_mask is {bits}; bit d says that values differ along dim d, so it is 0 to "
            f"{(1 << MAX_NDIMS) - 1}"
        )
    if sizes and (len(sizes) != GROUPED_DIMS or min(sizes) < 1):
        raise MemdescError(
            f"{role}_groups {sizes} must be two sizes of 1 or more, for the last two dims"
        )
    if values.size > 1 and not bits:
        raise MemdescError(
            f"{role} has {values.size} values; say with {role}_mask along which dims they "
            "differ: bit d for dim d, 1 for dim a, 2 for dim b"
        )
    # a scale of 1 and a zero point of 0 are neutral
    if values.size == 1 and not bits and values.reshape(-1)[0] == is_scale:
        return None
    return Parameter(role, values, bits, sizes)


# the parameters of Python numbers of the right type, without a mask
_known_parameter = lru_cache(maxsize=256)(_checked_parameter)


def _array(role: str, given: Any) -> NDArray[Any]:
    refuse_masked(role, given)
    reason = ""
    try:
        array = np.array(given)
    except (TypeError, ValueError, OverflowError, RuntimeError, MemoryError) as error:
        # tensors of other libraries say why they are not arrays
        array, reason = np.array(None), f": {error}"
    # numpy refuses bytes, but takes each byte of a bytearray for a number
    if not array.nbytes or array.dtype.kind in "OSUMmbc" or isinstance(given, bytearray):
        what = "a number or an array of numbers"
        raise MemdescError(
            f"{role} must be {what}, not "
            f"{'an empty array' if not array.nbytes else short_repr(given)}{reason}"
        )
    return frozen(array)


def _checked_scales(role: str, given: Any) -> NDArray[Any]:
    array = _array(role, given)
    is_known = array.dtype.isnative and array.dtype.name in _SCALE_TYPES
    if isinstance(given, np.ndarray | np.generic) and not is_known:
        raise MemdescError(
            f"{role} is of {array.dtype}; scales may be "
            f"{', '.join(_SCALE_TYPES)}; convert it with .astype(np.float32)"
        )
    try:
        values = array.astype(np.float64).reshape(-1)
    except (TypeError, ValueError):
        values = np.array([np.nan])
    is_legal = np.isfinite(values) & (values != 0)
    if np.count_nonzero(is_legal) != values.size:
        bad = np.flatnonzero(~is_legal)
        raise MemdescError(
            f"{role} is {short_repr(given)}; scales must be finite and not 0"
            if values.size == 1
            else f"{role} value {bad[0]} is {values[bad[0]]}; scales must be finite and not 0"
        )
    return array if is_known else frozen(values.reshape(array.shape))


def _checked_points(role: str, given: Any) -> NDArray[Any]:
    array = _array(role, given)
    name = array.dtype.name
    if array.dtype.kind not in "iu" and name not in {"int4", "uint4"}:
        raise MemdescError(f"{role} must be integers, not {name}: {short_repr(given)}")
    if array.dtype.kind in "iu":
        low, high = INTEGERS["s32"]
        bad = array[(array < low) | (array > high)]
        if bad.size:
            raise MemdescError(
                f"{role} {bad[0]} does not fit into s32, {low} to {high}; zero points are s32"
            )
    return frozen(array.astype(np.int64))


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return a copy that cannot be made writable, since its memory is a bytes object."""
    held = np.frombuffer(array.tobytes(), np.uint8)
    return held.view(array.dtype).reshape(array.shape)


def _checked_beta(given: Any) -> float:
    if type(given) is float and isfinite(given):
        return given or 0.0  # -0.0 is the same
    try:
        # float() also accepts strings, bools and, in older numpy, arrays of one element
        is_array = is_masked(given) or (isinstance(given, np.ndarray) and given.ndim)
        if isinstance(given, _NOT_NUMBERS) or is_array or getattr(given, "dtype", None) == np.bool_:
            raise TypeError  # noqa: TRY301 - refused below
        beta = float(given)
    except (TypeError, ValueError, OverflowError):
        raise MemdescError(f"beta must be a number, not {short_repr(given)}") from None
    if not isfinite(beta):
        raise MemdescError(f"beta is {beta}; it must be finite")
    return beta or 0.0
