"""Logical indices, one or arrays of them: those that callers pass, and what an offset leads to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from operator import index as to_int
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc.checked import Checked
from memdesc.errors import MemdescError, OutOfRangeError, short_repr
from memdesc.int64 import INT64_MAX, checked_flag, checked_int, checked_ints, entries_of
from memdesc.layout import axis_index, dim_name

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from numpy.typing import ArrayLike, NDArray

    from memdesc.layout import Layout

__all__ = ["Index", "checked_index", "checked_integers", "first_where"]


class Index(tuple[Any, ...], Checked):  # noqa: SLOT001 - tuples of any length have no slots
    """The logical index that an offset belongs to; a tuple of integers, or of arrays of them.

    Made by `MemoryDesc.index`, and what `MemoryDesc.offset` takes.

    Parameters
    ----------
    entries : iterable of int or ndarray of int64
        One for each dim.
    is_padding : bool or ndarray of bool
        Whether the index lies beyond the dims, in the padding.

    Examples
    --------
    >>> import memdesc
    >>> d = memdesc.memory_desc((2, 17, 5, 4), "f32", "nChw8c")
    >>> d.index(729), d.index(479)
    ((1, 9, 2, 3), Index((0, 23, 4, 3), is_padding=True))
    """

    is_padding: Any

    def __new__(
        cls,
        entries: Iterable[Any],
        is_padding: bool | NDArray[np.bool_] = False,  # noqa: FBT001, FBT002 - a field
    ) -> Self:
        """Make one."""
        made = super().__new__(cls, entries_of("index", entries))
        made.is_padding = is_padding
        return made

    def _arguments(self) -> tuple[Any, ...]:
        return tuple(self), self.is_padding

    def __repr__(self) -> str:
        text = super().__repr__()
        if isinstance(self.is_padding, bool) and not self.is_padding:
            return text
        return f"Index({text}, is_padding={self.is_padding!r})"


def checked_index(layout: Layout, index: Any, *, padded: bool) -> tuple[Any, ...]:
    """Return an index of a caller as Python ints, or as arrays of int64 of one shape.

    Parameters
    ----------
    layout : Layout
        Whose dims the entries must be inside of.
    index : iterable of int or array_like
        One entry for each dim; arrays are broadcast.
    padded : bool
        Whether the padding may be indexed, too.

    Raises
    ------
    MemdescError
        If the number of entries differs, or one is no integer.
    OutOfRangeError
        With the first entry that is outside of its dim.
    """
    at = _entries(index)
    if len(at) != layout.ndims:
        msg = f"index {short_repr(at)} must be {layout.ndims} numbers, one for each dim"
        shape = np.shape(index) if isinstance(index, np.ndarray) else ()
        if len(shape) > 1 and shape[-1] == layout.ndims:
            msg = f"{msg}; of an array of rows pass the columns, index.T"
        raise MemdescError(msg)
    if not checked_flag("padded", padded):
        for dim, (i, size) in enumerate(zip(at, layout.dims, strict=True)):
            _check_range(i, size, dim_name(dim))
        return at
    for axis in layout.axes:
        first, *others = axis.dims
        for dim in others:
            _check_range(at[dim], layout.dims[dim], dim_name(dim))
        # the first dim of a fused axis carries the padding of all
        below = prod(layout.dims[dim] for dim in others)
        _check_range(at[first], -(-axis.padded // below) if below else 0, dim_name(first))
        if others:
            name = ", ".join(map(dim_name, axis.dims))
            _check_range(axis_index(axis, layout.dims, at), axis.padded, name)
    return at


def checked_integers(name: str, values: ArrayLike) -> int | NDArray[np.int64]:
    """Return an integer of a caller, or an array of them as int64.

    Raises
    ------
    MemdescError
        If it is neither, or exceeds int64.
    """
    with suppress(TypeError):
        # not `to_int` of a bool, which checked_int refuses
        return checked_int(name, values if isinstance(values, bool) else to_int(values))  # type: ignore[arg-type] # suppressed
    try:
        array = np.asarray(values)
    except (ValueError, MemoryError):  # lists of different lengths, or too long for an array
        array = np.asarray(None)
    if not array.size and array.dtype.kind == "f":
        array = array.astype(np.int64)  # an empty list
    is_wide = array.dtype.kind == "u" and array.size and int(array.max()) > INT64_MAX
    if array.dtype.kind not in "iu" or is_wide:
        msg = f"{name} must be integers that int64 holds, not {short_repr(values)}"
        raise MemdescError(msg)
    try:
        return array.astype(np.int64)
    except ValueError as error:  # dims beside one of size 0 may be of any size
        msg = f"{name} must be an array of int64, not {short_repr(values)}: {error}"
        raise MemdescError(msg) from None


def first_where(mask: NDArray[np.bool_], values: NDArray[np.int64]) -> int:
    """Return the first of some values that a mask selects."""
    return int(values[mask].flat[0])


def _entries(index: Any) -> tuple[Any, ...]:
    """Return the entries of an index, as Python ints or as arrays of one shape."""
    try:
        given = entries_of("index", index)
    except TypeError:
        given = ()
    if isinstance(index, str | bytes) or not given:
        return checked_ints("index", index)
    try:
        return checked_ints("index", given)
    except MemdescError:
        if not any(isinstance(i, Sequence) or getattr(i, "ndim", 0) for i in given):
            raise
    entries = [checked_integers("index", entry) for entry in given]
    try:
        return tuple(np.broadcast_arrays(*entries))
    except ValueError:
        shapes = [np.shape(entry) for entry in entries]
        msg = f"the arrays of an index must have one shape, or broadcast to one, not {shapes}"
        raise MemdescError(msg) from None


def _check_range(i: int | NDArray[np.int64], size: int, name: str) -> None:
    if isinstance(i, np.ndarray):
        is_outside = (i < 0) | (i >= size)
        if not is_outside.any():
            return
        i = first_where(is_outside, i)
    if not 0 <= i < size:
        msg = (
            f"index {i} of {name} is not in 0 to {size - 1}"
            if size
            else f"{name} has no index: its size is 0"
        )
        raise OutOfRangeError(msg)
