"""The inverse of a layout: from an offset to its index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memdesc.search import SearchLimitError, Term, solve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc.layout import Block, Layout

__all__ = ["index_at", "indices_at"]


def index_at(layout: Layout, offset: int) -> tuple[int, ...] | None:
    """Return the padded index at an offset, in elements.

    *Law*: for every index in range, `index_at(layout, layout.offset(index)) == index`.

    Returns
    -------
    tuple of int or None
        An index outside of the dims if the offset is padding. None if no index has the offset, or
        if strides do not nest and the bounded search finds none.
    """
    loops = [block for block in layout.blocks if block.extent > 1 and block.stride]
    try:
        digits = solve(
            (Term(block.stride, 0, block.extent - 1) for block in loops), offset - layout.offset0
        )
    except SearchLimitError:
        return None
    if digits is None:
        return None
    # a digit is index // step % extent, so the index of an axis is the sum of digit * step
    index = [0] * layout.ndims
    for k, axis in enumerate(layout.axes):
        i = sum(
            digit * block.step
            for block, digit in zip(loops, digits, strict=True)
            if block.axis == k
        )
        if i >= axis.padded:
            return None
        for dim in reversed(axis.dims[1:]):
            i, index[dim] = divmod(i, layout.dims[dim])
        index[axis.dims[0]] = i
    return tuple(index)


def indices_at(
    layout: Layout, offsets: NDArray[np.int64]
) -> tuple[tuple[NDArray[np.int64], ...], NDArray[np.bool_]]:
    """Return the padded indices at many offsets, and which of them have one.

    *Law*: as `index_at` for each.

    Returns
    -------
    indices : tuple of ndarray of int64
        One for each dim; 0 where no index has the offset.
    found : ndarray of bool
        Whether an index has the offset.
    """
    if not layout.padded_nelems:
        return (np.zeros_like(offsets),) * layout.ndims, np.zeros(offsets.shape, np.bool_)
    loops = [block for block in layout.blocks if block.extent > 1 and block.stride]
    loops.sort(key=lambda block: -abs(block.stride))
    lowest = layout.offset0 + sum(min(0, loop.stride) * (loop.extent - 1) for loop in loops)
    if lowest < 0 or not _do_nest(loops):
        return _search_each(layout, offsets)
    found = (offsets >= lowest) & (offsets <= layout.last)
    rest = np.where(found, offsets - lowest, 0)
    along = [np.zeros_like(offsets) for _ in layout.axes]
    for k, step, extent, stride in loops:
        digit = rest // abs(stride)  # numpy has vector instructions for this, not for divmod
        rest -= digit * abs(stride)
        found &= digit < extent
        along[k] += (digit if stride > 0 else extent - 1 - digit) * step
    found &= rest == 0
    index = list(along[:1]) * layout.ndims
    for i, axis in zip(along, layout.axes, strict=True):
        found &= i < axis.padded
        first, *others = axis.dims
        for dim in reversed(others):
            i, index[dim] = np.divmod(i, layout.dims[dim])  # noqa: PLW2901 - digit by digit
        index[first] = i
    return tuple(np.where(found, i, 0) for i in index), found


def _do_nest(loops: list[Block]) -> bool:
    """Whether each stride covers all of the loops inside it; the largest stride is the first."""
    covered = 1
    for _, _, extent, stride in reversed(loops):
        if abs(stride) < covered:
            return False
        covered = abs(stride) * extent
    return True


def _search_each(
    layout: Layout, offsets: NDArray[np.int64]
) -> tuple[tuple[NDArray[np.int64], ...], NDArray[np.bool_]]:
    different, back = np.unique(offsets, return_inverse=True)
    indices = [index_at(layout, int(offset)) for offset in different]
    found = np.array([index is not None for index in indices], np.bool_)
    rows = [index or (0,) * layout.ndims for index in indices]
    table = np.array(rows, np.int64).reshape(-1, layout.ndims)
    back = back.reshape(offsets.shape)
    return tuple(table[:, dim][back] for dim in range(layout.ndims)), found[back]
