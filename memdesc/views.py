"""Views of a layout, without moving data: a box of it, and a permutation of its dims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc.errors import MemdescError
from memdesc.layout import Axis, Block, Layout, dim_name

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["join_axes", "permute_axes", "submemory"]


def submemory(layout: Layout, dims: tuple[int, ...], offsets: tuple[int, ...]) -> Layout:
    """Describe a box of a layout; the rules are oneDNN's.

    Raises
    ------
    MemdescError
        If the box is not inside the parent, starts inside a block, or ends inside one
        before the parent's end.
    """
    _check_bounds(layout, dims, offsets)
    axes = []
    blocks: list[Block] = []
    offset0 = layout.offset0
    for k, axis in enumerate(layout.axes):
        outer, *inner = layout.axis_blocks(k)
        if len(axis.dims) > 1:
            _check_whole(layout, axis, dims)
            axes.append(axis)
            blocks += [outer, *inner]
            continue
        (dim,) = axis.dims
        size, at = dims[dim], offsets[dim]
        _check_block_bounds(layout, dim, outer.step, (size, at))
        offset0 += at // outer.step * outer.stride
        # the view keeps the parent's padding where it ends with the parent; an empty one has none
        padded = axis.padded - at if at + size == layout.dims[dim] else size
        axes.append(Axis(axis.dims, padded if size else 0))
        blocks += [outer._replace(extent=-(-axes[-1].padded // outer.step)), *inner]
    # with negative strides an empty view of an empty parent may start at a negative offset
    return Layout.computed(
        dims, tuple(axes), tuple(blocks), offset0 if all(dims) else max(offset0, 0)
    )


def _check_bounds(layout: Layout, dims: tuple[int, ...], offsets: tuple[int, ...]) -> None:
    if len(dims) != layout.ndims or len(offsets) != layout.ndims:
        msg = (
            f"a view of {layout.ndims} dims needs as many sizes and offsets, "
            f"not {dims} at {offsets}"
        )
        raise MemdescError(msg)
    for dim, (size, at, whole) in enumerate(zip(dims, offsets, layout.dims, strict=True)):
        if size < 0 or at < 0 or at + size > whole:
            msg = f"{dim_name(dim)}: a view of {size} at {at} leaves the parent's size {whole}"
            raise MemdescError(msg)


def _check_whole(layout: Layout, axis: Axis, dims: tuple[int, ...]) -> None:
    """Refuse a box that does not keep fused dims whole."""
    if any(dims[dim] != layout.dims[dim] for dim in axis.dims):
        names = ", ".join(map(dim_name, axis.dims))
        msg = f"dims {names} are fused into one index; a view must keep them whole"
        raise MemdescError(msg)


def _check_block_bounds(layout: Layout, dim: int, step: int, box: tuple[int, int]) -> None:
    """Refuse a box, (size, offset), that starts inside a block, or ends inside one too early.

    A box inside one block is legal, and so is one that ends with the parent.
    """
    size, at = box
    if at % step:
        msg = f"{dim_name(dim)}: offset {at} is not a multiple of the block {step}"
        raise MemdescError(msg)
    if at + size != layout.dims[dim] and size % step and size > step:
        msg = (
            f"{dim_name(dim)}: size {size} at {at} ends inside a block of {step} "
            f"before the parent's end {layout.dims[dim]}"
        )
        raise MemdescError(msg)


def permute_axes(layout: Layout, perm: tuple[int, ...]) -> Layout:
    """Rename dims: old dim d becomes dim `perm[d]`; nothing moves in memory.

    Raises
    ------
    MemdescError
        If `perm` is no permutation of the dims.
    """
    if sorted(perm) != list(range(layout.ndims)):
        msg = f"{perm} is no permutation of the dims 0 to {layout.ndims - 1}"
        raise MemdescError(msg)
    dims = [0] * layout.ndims
    for dim, size in enumerate(layout.dims):
        dims[perm[dim]] = size
    parts = (
        (Axis(tuple(perm[dim] for dim in axis.dims), axis.padded), layout.axis_blocks(k))
        for k, axis in enumerate(layout.axes)
    )
    return join_axes(tuple(dims), parts, layout.offset0)


def join_axes(
    dims: tuple[int, ...], parts: Iterable[tuple[Axis, tuple[Block, ...]]], offset0: int
) -> Layout:
    """Make a layout of axes in any order, each with its blocks, which are numbered here."""
    ordered = sorted(parts, key=lambda part: part[0].dims[0])
    blocks = [block._replace(axis=k) for k, (_, blocks) in enumerate(ordered) for block in blocks]
    return Layout.computed(dims, tuple(axis for axis, _ in ordered), tuple(blocks), offset0)
