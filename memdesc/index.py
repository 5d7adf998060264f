"""Logical indices of callers, scalars or arrays, and their checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from memdesc.checked import Checked
from memdesc.errors import MemdescError, OutOfRangeError, short_repr
from memdesc.immutable import immutable
from memdesc.int64 import (
    INT64_MAX,
    NOT_SEQUENCES,
    checked_flag,
    checked_int,
    checked_ints,
    entries_of,
)
from memdesc.layout import Layout, axis_index, dim_name, dim_names

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@immutable
class Index(tuple[Any, ...], Checked):  # noqa: SLOT001 - tuples of any length have no slots
    """The logical index at an offset: a tuple of integers, or of integer arrays.

    `MemoryDesc.index` makes it, and `MemoryDesc.offset` takes it.

    Parameters
    ----------
    entries : iterable of int or ndarray of int64
        One for each dim.
    is_padding : bool or ndarray of bool
        Whether the index lies beyond the dims, in the padding.

    Examples
    --------
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
        object.__setattr__(made, "is_padding", is_padding)
        return made

    def _arguments(self) -> tuple[Any, ...]:
        return tuple(self), self.is_padding

    def __repr__(self) -> str:
        text = super().__repr__()
        if isinstance(self.is_padding, bool) and not self.is_padding:
            return text
        return f"Index({text}, is_padding={self.is_padding!r})"


def checked_index(
    layout: Layout, index: Any, *, padded: bool, letters: str | None = None
) -> tuple[Any, ...]:
    """Return a caller's index as Python ints, or as int64 arrays of one shape.

    The entries, one for each dim, are broadcast, and must be within the dims of the layout; with
    `padded` they may be in its padding. Messages call the dims by `letters`.
    """
    at = _entries(index)
    if len(at) != layout.ndims:
        msg = f"index {short_repr(at)} must be {layout.ndims} numbers, one for each dim"
        shape = np.shape(index) if isinstance(index, np.ndarray) else ()
        if len(shape) > 1 and shape[-1] == layout.ndims:
            msg = f"{msg}; an array of rows must be transposed, index.T"
        raise MemdescError(msg)
    padded = checked_flag("padded", padded)
    sizes = layout.extents() if padded else layout.dims
    for dim, (i, size) in enumerate(zip(at, sizes, strict=True)):
        _check_range(i, size, dim_name(dim, letters))
    for axis in layout.axes:
        if padded and len(axis.dims) > 1:
            name = dim_names(axis.dims, letters)
            _check_range(axis_index(axis, layout.dims, at), axis.padded, name)
    return at


def checked_integers(name: str, values: ArrayLike) -> int | NDArray[np.int64]:
    """Return a caller's integer, or an int64 array of them; refuse anything else."""
    if hasattr(values, "__index__") and not getattr(values, "ndim", 0):
        return checked_int(name, values)
    try:
        array = np.asarray(values)
    except (ValueError, MemoryError):  # lists of different lengths, or too much for an array
        array = np.asarray(None)
    if not array.size and array.dtype.kind == "f":
        array = array.astype(np.int64)  # an empty list
    is_wide = array.dtype.kind == "u" and array.size and int(array.max()) > INT64_MAX
    if array.dtype.kind not in "iu" or is_wide:
        raise MemdescError(f"{name} must be integers that int64 holds, not {short_repr(values)}")
    try:
        return array.astype(np.int64)
    except ValueError as error:  # if one dim has size 0, the others may have any size
        raise MemdescError(
            f"{name} must be an array of int64, not {short_repr(values)}: {error}"
        ) from None


def _entries(index: Any) -> tuple[Any, ...]:
    """Return the entries of an index, as Python ints or as arrays of one shape."""
    try:
        given = () if isinstance(index, NOT_SEQUENCES) else entries_of("index", index)
    except TypeError:
        given = ()
    others = [i for i in given if type(i) is not int]
    if not any(isinstance(i, Sequence) or getattr(i, "ndim", 0) for i in others):
        return checked_ints("index", given or index)
    entries = [checked_integers("index", entry) for entry in given]
    try:
        return tuple(np.broadcast_arrays(*entries))
    except ValueError:
        shapes = [np.shape(entry) for entry in entries]
        raise MemdescError(
            f"the arrays of an index must have one shape, or broadcast to one, not {shapes}"
        ) from None


def _check_range(i: int | NDArray[np.int64], size: int, name: str) -> None:
    if isinstance(i, np.ndarray):
        wrong = i[(i < 0) | (i >= size)]
        if not wrong.size:
            return
        i = int(wrong[0])
    if not 0 <= i < size:
        raise OutOfRangeError(
            f"index {i} of {name} is not in 0 to {size - 1}"
            if size
            else f"{name} has no index: its size is 0"
        )
