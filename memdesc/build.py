"""Layouts from a tag, or from the strides of their outer blocks."""

from __future__ import annotations

from math import lcm, prod
from operator import itemgetter
from typing import TYPE_CHECKING

from memdesc.errors import MemdescError, short_repr
from memdesc.layout import Axis, Block, Layout, check_dims

if TYPE_CHECKING:
    from memdesc.tags import FormatTag

__all__ = ["layout_by_strides", "layout_by_tag"]

_AXIS, _STEP = itemgetter(0), itemgetter(1)  # of a Block


def layout_by_tag(tag: FormatTag, dims: tuple[int, ...], name: str = "") -> Layout:
    """Make the dense layout of a tag: dims padded to whole blocks and alignments.

    Parameters
    ----------
    tag : FormatTag
        The order and the blocks.
    dims : tuple of int
        Sizes, as many as the tag has dims.
    name : str
        The name that the caller gave, for messages.

    Raises
    ------
    MemdescError
        If the number of dims differs, or a size exceeds int64.
    """
    if len(dims) != tag.ndims:
        check_dims(dims)
        msg = (
            f"dims {dims} have {len(dims)} sizes, "
            f"but {short_repr(name or str(tag))} is for {tag.ndims} dims"
        )
        raise MemdescError(msg)
    axes = []
    for axis_dims, size, align in zip(tag.axes, tag.block_sizes, tag.align, strict=True):
        whole = size if align == 1 else lcm(size, align)
        extent = dims[axis_dims[0]] if len(axis_dims) == 1 else prod(dims[dim] for dim in axis_dims)
        axes.append(Axis(axis_dims, -(-extent // whole) * whole))
    blocks = []
    stride = 1
    for axis, step, extent in reversed(tag.digits):
        count = extent or axes[axis][1] // step
        blocks.append(Block(axis, step, count, stride))
        stride *= count or 1  # as oneDNN: a dim of 0 does not multiply the strides outside it
    return Layout.computed(dims, tuple(axes), _in_order(blocks))


def layout_by_strides(
    dims: tuple[int, ...],
    strides: tuple[int, ...],
    inner: tuple[tuple[int, int], ...] = (),
    padded_dims: tuple[int, ...] | None = None,
    offset0: int = 0,
) -> Layout:
    """Make the layout with given strides of the outer blocks around a dense inner tile.

    Parameters
    ----------
    dims, strides : tuple of int
        Sizes, and elements from one outer block to the next.
    inner : tuple of (size, dim)
        Inner blocks, outermost first.
    padded_dims : tuple of int, optional
        By default the dims rounded up to whole blocks.
    offset0 : int
        Offset of the element at index 0.
    """
    check_dims(dims)
    steps = [1] * len(dims)
    blocks = []
    dense = 1
    for size, dim in reversed(inner):
        blocks.append(Block(dim, steps[dim], size, dense))
        steps[dim] *= size
        dense *= size
    if padded_dims is None:
        padded_dims = tuple(-(-size // step) * step for size, step in zip(dims, steps, strict=True))
    for dim, stride in enumerate(strides):
        blocks.append(Block(dim, steps[dim], -(-padded_dims[dim] // steps[dim]), stride))
    axes = tuple(Axis((dim,), size) for dim, size in enumerate(padded_dims))
    return Layout.computed(dims, axes, _in_order(blocks), offset0)


def _in_order(blocks: list[Block]) -> tuple[Block, ...]:
    """Sort blocks into the order of `Layout.blocks`: axis by axis, the largest step first."""
    # the second sort is stable, so it keeps the order of the first inside each axis
    blocks.sort(key=_STEP, reverse=True)
    blocks.sort(key=_AXIS)
    return tuple(blocks)
