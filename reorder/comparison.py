"""Compare the values of two tensors, whatever their layouts and data types."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from memdesc import DataType, MemdescError, memory_desc
from memdesc.errors import short_repr
from memdesc.immutable import immutable
from memdesc.int64 import checked_flag, checked_int
from memdesc.tuples import NamedTuple
from reorder.api import reorder
from reorder.memory.inputs import as_memory
from reorder.memory.memory import Memory
from reorder.memory.padding import find_nonzero

# How many elements are compared at a time.
_PART = 1 << 20
# Integers of this width are compared in the widest float, which is exact for them on x86-64.
_WIDE_BITS, _WIDEST = 64, np.longdouble
# Squares below this may have lost bits, as numbers below 1e-308 have.
_LEAST_SQUARE = 1e-280


@immutable
class Difference(NamedTuple):
    """An element that differs.

    Parameters
    ----------
    at : tuple of int
        Its logical index.
    a, b : float or int
        Its values.
    difference : float
        Their distance; infinite if only one of them is NaN.
    offset_a, offset_b : int
        Its offset in each tensor, in elements.
    byte_a, byte_b : int
        Its first byte in each tensor, or the byte that it shares with another element.

    Examples
    --------
    >>> a = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> b = reorder.reorder(np.array([[0, 1, 2], [3, 4, 7]], np.float32), "ba")
    >>> reorder.compare_values(a, b).worst  # doctest: +NORMALIZE_WHITESPACE
    Difference(at=(1, 2), a=5.0, b=7.0, difference=2.0,
               offset_a=5, offset_b=5, byte_a=20, byte_b=20)
    """

    at: tuple[int, ...]
    a: float
    b: float
    difference: float
    offset_a: int
    offset_b: int
    byte_a: int
    byte_b: int


@immutable
class ValueComparison(NamedTuple):
    """What `compare_values` found.

    Parameters
    ----------
    dims : tuple of int
        The logical sizes.
    differing : int
        How many elements differ.
    worst : Difference or None
        The element that differs most, or the first of several that differ equally.
    first : tuple of Difference
        The first elements that differ, by logical index, up to the limit.
    by_dim : tuple of ndarray
        For each dim, how many elements differ at each of its indices.
    padding : tuple of (int, int)
        How many padding elements are not zero, in `a` and in `b`.
    padding_differs : bool
        Whether only one of the paddings is zero or, if both tensors have the same layout, whether
        their bits differ.
    max_ulp : float
        The largest difference in units in the last place, those of the coarser type at the value:
        0.5 or less if one tensor is the other rounded to nearest.
    mean_error : float
        The mean of the absolute differences.
    cosine : float
        The cosine of the angle between the tensors as vectors; 1.0 if both are zero.

    Notes
    -----
    `max_ulp`, `mean_error` and `cosine` leave out elements that are infinite or NaN in either
    tensor; they are nan if no element remains.

    Examples
    --------
    >>> a = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    >>> found = reorder.compare_values(a, reorder.reorder(a + [0, 0.5], "ba", dtype="f32"))
    >>> found.is_equal, found.differing, found.worst.at, [n.tolist() for n in found.by_dim]
    (False, 2, (0, 1), [[1, 1], [0, 2]])
    >>> found.mean_error, round(found.cosine, 3)
    (0.25, 0.997)
    >>> reorder.compare_values(a / 3, reorder.reorder(a / 3, "ba", dtype="bf16")).max_ulp <= 0.5
    True
    """

    dims: tuple[int, ...]
    differing: int
    worst: Difference | None
    first: tuple[Difference, ...]
    by_dim: tuple[NDArray[np.int64], ...]
    padding: tuple[int, int]
    padding_differs: bool
    max_ulp: float
    mean_error: float
    cosine: float

    def __repr__(self) -> str:
        text = f"{self.differing} of {prod(self.dims)} differ" if self.differing else "none differs"
        if self.worst:
            text += f", worst {self.worst.at}: {self.worst.a} and {self.worst.b}"
        text += "; the padding differs" if self.padding_differs else ""
        return f"<ValueComparison of {self.dims}: {text}>"

    @property
    def is_equal(self) -> bool:
        """Whether no element differs; the padding does not count."""
        return not self.differing


def compare_values(
    a: Any,
    b: Any,
    *,
    atol: float = 0.0,
    rtol: float = 0.0,
    resolution: bool = False,
    limit: int = 10,
) -> ValueComparison:
    """Compare two tensors element by element, by their logical indices.

    Elements differ if they are more than ``atol + rtol * abs(b)`` apart. Two NaNs do not
    differ, nor do 0.0 and -0.0; a NaN and a number do. Numbers are compared as f64, and integers
    of 64 bits as the widest float of the machine.

    *Law*: nothing differs between a tensor and what a reorder without conversion makes of it.

    Parameters
    ----------
    a, b : ndarray, Memory, or tensor with DLPack
        Of the same dims; the axes of an array are its logical dims.
    atol, rtol : float
        0 or more; by default every difference counts.
    resolution : bool
        Whether one unit in the last place is also tolerated, of the coarser type at the larger
        value: f32 values then equal the same values rounded to bf16. The unit is 1 for integers
        and 0 for booleans.
    limit : int
        How many elements are listed in `first`.

    Raises
    ------
    MemdescError
        If the dims differ, or a tolerance, the limit or `resolution` is not valid.

    Examples
    --------
    >>> x = np.arange(340, dtype=np.float32).reshape(1, 17, 5, 4)
    >>> m = reorder.reorder(x, "nChw16c", dtype="f16")
    >>> reorder.compare_values(m, x).differing
    0
    >>> x[0, 16, 2, 1] += 0.5
    >>> found = reorder.compare_values(m, x)
    >>> found.differing, found.worst.at, found.worst.offset_a, found.worst.byte_a
    (1, (0, 16, 2, 1), 464, 928)
    >>> found
    <ValueComparison of (1, 17, 5, 4): 1 of 340 differ, worst (0, 16, 2, 1): 329.0 and 329.5>
    """
    check_amount("atol", atol)
    check_amount("rtol", rtol)
    resolution = checked_flag("resolution", resolution)
    if checked_int("limit", limit) < 0:
        raise MemdescError(f"limit must be 0 or more, not {limit}")
    left, right = as_memory(a, None), as_memory(b, None)
    dims = left.desc.dims
    if dims != right.desc.dims:
        raise MemdescError(
            f"a has dims {dims}, b has {right.desc.dims}; compare tensors of the same dims"
        )
    # in row-major order of the logical dims
    flat: list[NDArray[Any]] = [
        reorder(memory, memory_desc(dims, memory.desc.dtype)).numpy().reshape(-1)
        for memory in (left, right)
    ]
    kinds = {memory.desc.dtype for memory in (left, right)}
    sums, max_ulp = np.zeros(5, _WIDEST), 0.0
    by_dim = tuple(np.zeros(size, np.int64) for size in dims)
    places: list[int] = []
    total, worst, largest = 0, -1, -1.0
    for start in range(0, left.desc.nelems, _PART):
        x, y = widened(values[start : start + _PART] for values in flat)
        distance = _distance(x, y)
        at = np.flatnonzero(distance)
        moved = distance[at]
        ulps = _ulp_at(kinds, np.maximum(np.abs(x[at]), np.abs(y[at])))
        sums += _sums(x, y, distance)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            steps = (moved / ulps)[np.isfinite(moved)]
            max_ulp = max(max_ulp, float(steps.max(initial=0)))
            allowed = atol + rtol * np.abs(y[at]) + ulps * resolution
        # an infinite tolerance must not hide an infinite difference
        at = at[(moved > allowed) | np.isinf(moved)]
        if not len(at):
            continue
        total += len(at)
        for counts, indices in zip(by_dim, np.unravel_index(at + start, dims), strict=True):
            counts[...] += np.bincount(indices, minlength=len(counts))
        places += (at[: max(limit - len(places), 0)] + start).tolist()
        most = int(at[np.argmax(distance[at])])
        if float(distance[most]) > largest:
            worst, largest = most + start, float(distance[most])
    padding, padding_differs = _padding(left, right)
    return ValueComparison(
        dims,
        total,
        _difference(worst, left, right, flat) if total else None,
        tuple(_difference(at, left, right, flat) for at in places),
        by_dim,
        padding,
        padding_differs,
        *_amounts(sums, max_ulp),
    )


def _sums(x: NDArray[Any], y: NDArray[Any], distance: NDArray[Any]) -> NDArray[Any]:
    """Return the count, distances, products and squares of elements that are finite in both."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = _dot(x, x), _dot(y, y)
        if not all(_LEAST_SQUARE <= square < math.inf for square in squares):
            is_finite = np.isfinite(x) & np.isfinite(y)
            x, y, distance = (values[is_finite] for values in (x, y, distance))
            # squares may overflow or underflow where the numbers do not
            x, y = x.astype(_WIDEST), y.astype(_WIDEST)
            squares = _dot(x, x), _dot(y, y)
        return np.array([len(x), distance.sum(), _dot(x, y), *squares], _WIDEST)


def _amounts(sums: NDArray[Any], max_ulp: float) -> tuple[float, float, float]:
    """Return the largest error in units in the last place, the mean error and the cosine."""
    count, error, dot, *squares = sums
    if not count:
        return math.nan, math.nan, math.nan
    norm_a, norm_b = np.sqrt(squares)
    cosine = float(dot / norm_a / norm_b) if norm_a and norm_b else float(norm_a == norm_b)
    return max_ulp, float(error / count), min(max(cosine, -1.0), 1.0)


def _dot(x: NDArray[Any], y: NDArray[Any]) -> Any:
    """Return a dot product without BLAS, whose threads would spin."""
    return _WIDEST(np.einsum("i,i->", x, y))


def widened(arrays: Iterable[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return values as f64, or as the widest float of the machine if any are 64-bit integers."""
    listed = [*arrays]
    kinds = {array.dtype for array in listed}
    is_wide = any(kind.kind in "iu" and 8 * kind.itemsize == _WIDE_BITS for kind in kinds)
    with np.errstate(invalid="ignore", over="ignore"):  # signalling NaNs
        return [array.astype(_WIDEST if is_wide else np.float64) for array in listed]


def _ulp_at(kinds: set[DataType], largest: NDArray[Any]) -> NDArray[Any]:
    """Return the unit in the last place at each value, of the type in which it is largest."""
    ulp = np.zeros(largest.shape, largest.dtype)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        exponents = np.frexp(np.where(np.isfinite(largest), largest, 0))[1]
        for kind in kinds:
            if _is_integer(kind.numpy):
                ulp = np.maximum(ulp, kind.name != "boolean")
                continue
            facts = ml_dtypes.finfo(kind.numpy)  # type: ignore[no-untyped-call] # it has no types
            step = np.ldexp(np.where(largest > 0, float(facts.eps), 0), exponents - 1)
            ulp = np.maximum(ulp, np.maximum(step, float(facts.smallest_subnormal)))
    return ulp


def _is_integer(kind: np.dtype[Any]) -> bool:
    return kind.kind in "biu" or "int" in kind.name


def _distance(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Return the distance between numbers: 0 between two NaNs, infinite from a NaN to a number."""
    with np.errstate(invalid="ignore", over="ignore"):  # infinities
        distance: NDArray[Any] = np.abs(x - y)
    distance[np.isnan(distance)] = np.inf
    distance[(x == y) | (np.isnan(x) & np.isnan(y))] = 0
    return distance


def _difference(at: int, left: Memory, right: Memory, flat: list[NDArray[Any]]) -> Difference:
    index = tuple(map(int, np.unravel_index(at, left.desc.dims)))
    a, b = (values[at : at + 1] for values in flat)
    value_a, value_b = (int(x[0]) if _is_integer(x.dtype) else float(x[0]) for x in (a, b))
    offset_a, offset_b = (int(memory.desc.offset(index)) for memory in (left, right))
    bits_a, bits_b = (memory.desc.dtype.bits for memory in (left, right))
    return Difference(
        index,
        value_a,
        value_b,
        float(_distance(*widened((a, b)))[0]),
        offset_a,
        offset_b,
        offset_a * bits_a // 8,
        offset_b * bits_b // 8,
    )


def _padding(left: Memory, right: Memory) -> tuple[tuple[int, int], bool]:
    limit = left.desc.padded_nelems if left.desc == right.desc else 0
    (count_a, at_a), (count_b, at_b) = (
        find_nonzero(memory.data, memory.desc, limit)
        if memory.desc.nelems and memory.desc.has_padding
        else (0, [])
        for memory in (left, right)
    )
    return (count_a, count_b), (at_a != at_b) if limit else bool(count_a) != bool(count_b)


def check_amount(name: str, value: object) -> None:
    """Refuse anything but a finite number of 0 or more."""
    if isinstance(value, np.integer | np.floating):
        value = value.item()  # narrow floats do not hold the limit
    is_number = isinstance(value, int | float | np.number) and 0 <= value <= sys.float_info.max
    if not is_number or isinstance(value, bool):
        raise MemdescError(f"{name} must be a finite number of 0 or more, not {short_repr(value)}")
