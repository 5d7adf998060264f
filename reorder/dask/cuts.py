"""Which chunks hold whole blocks; others are refused with the way out."""

from __future__ import annotations

from itertools import accumulate
from math import lcm
from typing import TYPE_CHECKING

from memdesc import MemdescError, NotBlockedError
from memdesc.errors import short_repr
from reorder.dask.axes import kind_of

if TYPE_CHECKING:
    from dask.array import Array

    from memdesc import MemoryDesc
    from reorder.dask.axes import ArrayAxis

__all__ = ["check_blocks", "check_cuts", "check_single", "check_whole", "chunk_sizes"]


def check_whole(desc: MemoryDesc) -> None:
    """Refuse layouts that have no array of blocks, or are not the sum of their chunks."""
    if desc.layout.has_partial_blocks:
        msg = f"{desc!r} ends inside a block, so its blocks are no n-d array"
        raise NotBlockedError(msg)
    if desc.extra is not None:
        msg = f"{desc!r} has compensation, which belongs to all chunks together; leave it out"
        raise MemdescError(msg)


def check_blocks(x: Array, desc: MemoryDesc, axes: list[ArrayAxis]) -> None:
    """Refuse an array that is not the blocks of a layout."""
    kind, shape = kind_of(desc), tuple(axis.extent for axis in axes)
    if x.shape != shape or x.dtype != kind:
        msg = (
            f"x is an array of {x.dtype} and shape {x.shape}, but the blocks of {desc!r} are one "
            f"of {kind} and shape {shape}"
        )
        raise MemdescError(msg)


def chunk_sizes(x: Array, desc: MemoryDesc, axes: list[ArrayAxis]) -> dict[int, tuple[int, ...]]:
    """Return the logical sizes of the chunks along each dim that an axis has."""
    sizes: dict[int, tuple[int, ...]] = {}
    for k, (axis, chunks) in enumerate(zip(axes, x.chunks, strict=True)):
        if axis.dim is None:
            continue
        ends = [end * axis.step for end in accumulate(chunks)]
        starts = [0, *ends[:-1]]
        size = desc.dims[axis.dim]
        if starts[-1] >= size and len(chunks) > 1:
            kept = max(sum(start < size for start in starts) - 1, 0)
            msg = (
                f"the last chunk of x along axis {k} has padding alone, or nothing; join it with "
                f"others: x.rechunk({{{k}: (*x.chunks[{k}][:{kept}], {sum(chunks[kept:])})}})"
            )
            raise MemdescError(msg)
        sizes[axis.dim] = tuple(
            min(end, size) - start for start, end in zip(starts, ends, strict=True)
        )
    return sizes


def check_cuts(
    x: Array,
    given: list[ArrayAxis],
    sizes: dict[int, tuple[int, ...]],
    axis: ArrayAxis,
    dst: MemoryDesc,
) -> None:
    """Refuse chunks that cut blocks of the target along a dim."""
    parts = sizes.get(axis.dim, ()) if axis.dim is not None else ()
    if all(size % axis.step == 0 for size in parts[:-1]):
        return
    k, unit = next((k, each.step) for k, each in enumerate(given) if each.dim == axis.dim)
    wanted = lcm(axis.step, unit)
    fitting = -(-max(parts) // wanted) * wanted // unit
    msg = (
        f"x has chunks of {short_repr(x.chunks[k])} along axis {k}, which cut blocks of {dst!r}: "
        f"these hold {axis.step} of dim {axis.dim}; x.rechunk({{{k}: {fitting}}}) has whole ones"
    )
    raise MemdescError(msg)


def check_single(x: Array, given: list[ArrayAxis], carried: list[int], dst: MemoryDesc) -> None:
    """Refuse chunks along axes that cannot be cut."""
    for k, (axis, chunks) in enumerate(zip(given, x.chunks, strict=True)):
        if len(chunks) > 1 and axis.dim not in carried:
            msg = (
                f"x has {len(chunks)} chunks along axis {k}, which {dst!r} or its own layout "
                f"joins with others; x.rechunk({{{k}: -1}}) has one"
            )
            raise MemdescError(msg)
