"""Layout to layout: a part of it, its dims permuted, its dims regrouped."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from memdesc.errors import MemdescError
from memdesc.layout import Axis, Block, Layout, dim_name

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["permute_axes", "reshape", "submemory"]


def submemory(layout: Layout, dims: tuple[int, ...], offsets: tuple[int, ...]) -> Layout:
    """Cut a box out of a layout; the rules are oneDNN's.

    Raises
    ------
    MemdescError
        If the box leaves the parent, starts inside a block, or ends inside one
        without reaching the parent's end.
    """
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
    axes = []
    blocks: list[Block] = []
    offset0 = layout.offset0
    for k, axis in enumerate(layout.axes):
        if len(axis.dims) > 1:
            if any(dims[dim] != layout.dims[dim] for dim in axis.dims):
                msg = (
                    f"dims {', '.join(map(dim_name, axis.dims))} are cut as one index; "
                    "a view must keep them whole"
                )
                raise MemdescError(msg)
            axes.append(axis)
            blocks += layout.axis_blocks(k)
            continue
        (dim,) = axis.dims
        outer = layout.outer(k)
        size, at = dims[dim], offsets[dim]
        at_end = at + size == layout.dims[dim]
        if at % outer.step:
            msg = f"{dim_name(dim)}: offset {at} is not a multiple of the block {outer.step}"
            raise MemdescError(msg)
        if not (at_end or size % outer.step == 0 or size < outer.step):
            msg = (
                f"{dim_name(dim)}: size {size} at {at} ends inside a block of {outer.step} "
                f"before the parent's end {layout.dims[dim]}"
            )
            raise MemdescError(msg)
        # an empty view keeps no padding that nothing reads
        padded = axis.padded - at if at_end else size
        offset0 += at // outer.step * outer.stride
        axes.append(Axis(axis.dims, padded if size else 0))
        blocks += [
            outer._replace(extent=-(-axes[-1].padded // outer.step)),
            *layout.axis_blocks(k)[1:],
        ]
    # with negative strides an empty view may begin in front of a parent that is empty too: it has no place anyway
    return Layout(dims, tuple(axes), tuple(blocks), offset0 if all(dims) else max(offset0, 0))


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
    parts = [
        (Axis(tuple(perm[dim] for dim in axis.dims), axis.padded), layout.axis_blocks(k))
        for k, axis in enumerate(layout.axes)
    ]
    return _join(tuple(dims), parts, layout.offset0)


class _Group(NamedTuple):
    """Neighbouring dims that become other neighbouring dims of the same product."""

    old: tuple[int, ...]
    new: tuple[int, ...]


def reshape(layout: Layout, dims: tuple[int, ...]) -> Layout:
    """Regroup dims without moving data; the rules are oneDNN's.

    A dim that keeps its size keeps its blocks and padding; dims of size 1 come and
    go; other dims are regrouped where they are plain and contiguous.

    Raises
    ------
    MemdescError
        If the numbers of elements differ, or the data would have to move.
    """
    if prod(dims) != layout.nelems:
        msg = f"dims {layout.dims} hold {layout.nelems} elements, dims {dims} hold {prod(dims)}"
        raise MemdescError(msg)
    if prod(size or 1 for size in dims) != prod(size or 1 for size in layout.dims):
        msg = (
            f"dims {layout.dims} cannot become {dims}: oneDNN's rule is that the sizes other "
            "than 0 multiply to the same"
        )
        raise MemdescError(msg)
    parts: list[tuple[Axis, tuple[Block, ...]]] = []
    kept: dict[int, int] = {}
    inside = prod(block.extent for block in layout.inner())
    for old, new in _groups(layout, dims):
        if len(old) == len(new) == 1 and layout.dims[old[0]] == dims[new[0]]:
            kept[old[0]] = new[0]
        elif not old:
            parts.append((Axis(new, 1), (Block(0, 1, 1, inside),)))
        elif new:
            stride = _check_contiguous(layout, old)
            for dim in reversed(new):
                parts.append((Axis((dim,), dims[dim]), (Block(0, 1, dims[dim], stride),)))
                stride *= dims[dim]
        if old:
            # what oneDNN shows as the stride of a dim of size 1 that comes next
            outer = layout.outer(_axis_of(layout, old[0]))
            inside = outer.stride * layout.dims[old[0]] // outer.step
    for k, axis in enumerate(layout.axes):
        if (
            axis.dims[0] in kept
        ):  # so are the others: regrouping refuses dims that are cut as one index
            parts.append(
                (Axis(tuple(kept[dim] for dim in axis.dims), axis.padded), layout.axis_blocks(k))
            )
    return _join(dims, parts, layout.offset0)


def _axis_of(layout: Layout, dim: int) -> int:
    return next(k for k, axis in enumerate(layout.axes) if dim in axis.dims)


def _groups(layout: Layout, dims: tuple[int, ...]) -> Iterable[_Group]:
    """Match old and new dims from the last one backwards."""
    old, new = layout.ndims, len(dims)
    while old or new:
        if old and layout.dims[old - 1] == 1:
            if layout.axes[_axis_of(layout, old - 1)].padded == 1:
                old -= 1
                yield _Group((old,), ())
            elif new and dims[new - 1] == 1:
                old, new = old - 1, new - 1
                yield _Group((old,), (new,))
            else:
                msg = (
                    f"{dim_name(old - 1)} of size 1 is padded or cut as one index with "
                    "others, so it cannot be dropped"
                )
                raise MemdescError(msg)
            continue
        if new and dims[new - 1] == 1:
            new -= 1
            yield _Group((), (new,))
            continue
        ends = old, new
        old, new = old - 1, new - 1
        have, want = (layout.dims[old] if old >= 0 else 0), (dims[new] if new >= 0 else 0)
        while have != want or old < 0 or new < 0:
            if have < want:
                old -= 1
                have *= layout.dims[old] if old >= 0 else 0
            else:
                new -= 1
                want *= dims[new] if new >= 0 else 0
            if old < 0 or new < 0 or not have or not want:
                msg = f"dims {layout.dims} cannot be regrouped into {dims} where one of them is 0"
                raise MemdescError(msg)
        yield _Group(tuple(range(old, ends[0])), tuple(range(new, ends[1])))


def _check_contiguous(layout: Layout, group: tuple[int, ...]) -> int:
    """Return the innermost stride of dims that count like one; refuse others."""
    for dim in group:
        k = _axis_of(layout, dim)
        axis, outer = layout.axes[k], layout.outer(k)
        if outer.step > 1 or axis.padded != layout.dims[dim] or len(axis.dims) > 1:
            msg = (
                f"{dim_name(dim)} is blocked or padded, "
                f"so it must keep its size {layout.dims[dim]}; reorder to a plain layout first"
            )
            raise MemdescError(msg)
        if dim > group[0]:
            before = layout.outer(_axis_of(layout, dim - 1))
            if layout.dims[dim] * outer.stride != before.stride:
                msg = (
                    f"{dim_name(dim - 1)} has stride {before.stride}, but {dim_name(dim)} inside it spans "
                    f"{layout.dims[dim]} * {outer.stride} elements; reorder to a contiguous layout first"
                )
                raise MemdescError(msg)
    return layout.outer(_axis_of(layout, group[-1])).stride


def _join(
    dims: tuple[int, ...], parts: list[tuple[Axis, tuple[Block, ...]]], offset0: int
) -> Layout:
    """Put axes in order and number their blocks."""
    parts = sorted(parts, key=lambda part: part[0].dims[0])
    blocks = [block._replace(axis=k) for k, (_, own) in enumerate(parts) for block in own]
    return Layout(dims, tuple(axis for axis, _ in parts), tuple(blocks), offset0)
