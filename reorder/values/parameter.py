"""The values of one role of the attributes, a scale or a zero point, checked on construction."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError
from memdesc.errors import short_repr
from memdesc.immutable import value_class
from memdesc.int64 import checked_int, checked_ints
from memdesc.tags import MAX_NDIMS
from reorder.values.formats import INTEGERS
from reorder.values.masked import refuse_masked

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Parameters of arrays up to this size are kept: checking one takes as long as a small reorder.
_KEPT_NBYTES = 1 << 12
# Groups are along the last two dims.
GROUPED_DIMS = 2
# The names of the dtypes of scales. Those of ml_dtypes are not loaded to ask for them.
_SCALE_TYPES = ("float32", "float64", "float16", "bfloat16", "float8_e8m0fnu", "float8_e4m3fn")


@value_class
class Parameter:
    """Values of one role, row-major over the dims of a mask."""

    role: str
    values: NDArray[Any]
    mask: int
    groups: tuple[int, ...]

    @staticmethod
    def of(role: str, given: Any, mask: object, groups: Any, *, is_scale: bool) -> Parameter | None:
        """Check what was given; return None for a neutral value."""
        is_number = type(given) is (float if is_scale else int)
        if is_number and mask is None and type(groups) is tuple and not groups:
            return _of_number(role, given, is_scale=is_scale)
        if type(given) is np.ndarray and type(mask) is int and type(groups) is tuple:
            is_small = 0 < given.nbytes <= _KEPT_NBYTES and given.dtype.kind in "fiu"
            if is_small and not groups:
                content = given.dtype, given.shape, given.tobytes()
                return _of_array(role, content, mask, is_scale=is_scale)
        return _of_any(role, given, mask, groups, is_scale=is_scale)

    def key(self) -> tuple[object, ...]:
        """Return a key: parameters with equal keys are equal."""
        return (
            self.role,
            self.mask,
            self.groups,
            self.values.shape,
            self.values.dtype,
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


@lru_cache(maxsize=256)
def _of_number(role: str, given: float, *, is_scale: bool) -> Parameter | None:
    """Return the parameter of one Python number, the same one for equal numbers."""
    values = _checked_scales(role, given) if is_scale else _checked_points(role, given)
    return None if given == is_scale else Parameter(role, values, 0, ())


@lru_cache(maxsize=256)
def _of_array(
    role: str, content: tuple[np.dtype[Any], tuple[int, ...], bytes], mask: int, *, is_scale: bool
) -> Parameter | None:
    """Return the parameter of a small array, the same one for equal arrays."""
    dtype, shape, held = content
    given = np.frombuffer(held, dtype).reshape(shape)
    return _of_any(role, given, mask, (), is_scale=is_scale)


def _of_any(
    role: str, given: Any, mask: object, groups: Any, *, is_scale: bool
) -> Parameter | None:
    """Check what was given; return None for a neutral value."""
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


def _array(role: str, given: Any) -> NDArray[Any]:
    refuse_masked(role, given)
    reason = ""
    try:
        array = np.array(given)
    except (TypeError, ValueError, OverflowError, RuntimeError, MemoryError) as error:
        # tensors of other libraries say why they are not arrays
        array, reason = np.array(None), f": {error}"
    if not array.nbytes or array.dtype.kind in "OSUMmbc":
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
