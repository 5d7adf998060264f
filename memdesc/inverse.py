"""The inverse of a layout: from an offset to its index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc.search import SearchLimitError, Term, solve

if TYPE_CHECKING:
    from memdesc.layout import Layout

__all__ = ["index_at"]


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
