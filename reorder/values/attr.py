"""Attr: the scales, zero points and accumulation of a reorder, checked on construction.

Names and meanings are oneDNN's (3.13, reorder primitive), but here dst may have groups too.
"""

from __future__ import annotations

from dataclasses import field
from math import isfinite
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError
from memdesc.checked import Checked
from memdesc.errors import short_repr
from memdesc.immutable import value_class
from memdesc.int64 import checked_flag
from reorder.values.masked import is_masked
from reorder.values.parameter import Parameter, frozen

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# The parameters, in the order of the formula.
ROLES = ("src_zero_point", "src_scale", "dst_scale", "dst_zero_point")
# Plans with larger attributes are not cached.
_LARGE_NBYTES = 1 << 16
F8_ROUNDINGS = ("once", "onednn")
# For each role a function that returns its fields, and the default of the first.
_FIELDS = tuple(
    (role, attrgetter(role, f"{role}_mask", f"{role}_groups"), 1.0 if "scale" in role else 0)
    for role in ROLES
)
_set = object.__setattr__  # sets fields of a frozen value while it is made
_NOT_NUMBERS = (bool, np.bool_, str, bytes, bytearray)


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
    _is_large: bool = field(init=False)

    def __post_init__(self) -> None:
        kept, keys, nbytes = [], [], 0
        for role, fields, neutral in _FIELDS:
            given, mask, groups = fields(self)
            is_default = type(given) is type(neutral) and given == neutral
            if is_default and mask is None and type(groups) is tuple and not groups:
                continue
            parameter = Parameter.of(role, given, mask, groups, is_scale="scale" in role)
            self._keep(role, parameter)
            if parameter is not None:
                kept.append(parameter)
                keys.append(parameter.key())
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
        _set(self, "_is_large", nbytes > _LARGE_NBYTES)

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

    @property
    def is_large(self) -> bool:
        """Whether its arrays are too large to be kept in a cache."""
        return self._is_large

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
