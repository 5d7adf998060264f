"""Views of a layout that move no data: a part of it, a permutation of its dims, a reshape."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from memdesc.errors import MemdescError, short_repr
from memdesc.layout import Axis, Block, Layout, check_dims, dim_name, dim_names, fused

# an axis with its blocks, as in `Layout.parts`
_Part = tuple[Axis, tuple[Block, ...]]


def submemory(
    layout: Layout, dims: tuple[int, ...], offsets: tuple[int, ...], letters: str | None = None
) -> Layout:
    """Describe a part of a layout; the rules are oneDNN's.

    The part must lie within the parent. It may not start inside a block, nor end inside one unless
    it ends where the parent does.
    """
    if len(dims) != layout.ndims or len(offsets) != layout.ndims:
        raise MemdescError(
            f"a view of {layout.ndims} dims needs as many sizes and offsets, "
            f"not {dims} at {offsets}"
        )
    for dim, (size, at, whole) in enumerate(zip(dims, offsets, layout.dims, strict=True)):
        if size < 0 or at < 0 or at + size > whole:
            name = dim_name(dim, letters)
            raise MemdescError(f"{name}: a view of {size} at {at} leaves the parent's size {whole}")
    parts = []
    offset0 = layout.offset0
    for axis, (outer, *inner) in layout.parts:
        if len(axis.dims) > 1 and any(dims[dim] != layout.dims[dim] for dim in axis.dims):
            names = dim_names(axis.dims, letters)
            raise MemdescError(
                f"dims {names} are fused into one index; a view must keep them whole"
            )
        # the first of fused dims stands for all of them, since each is whole
        dim = axis.dims[0]
        size, at, end = dims[dim], offsets[dim], layout.dims[dim]
        if at % outer.step:
            raise MemdescError(
                f"{dim_name(dim, letters)}: offset {at} is not a multiple of the block {outer.step}"
            )
        # a part of a single block is legal, and so is one that ends where the parent ends
        if at + size != end and size % outer.step and size > outer.step:
            raise MemdescError(
                f"{dim_name(dim, letters)}: size {size} at {at} ends inside a block of "
                f"{outer.step} before the parent's end {end}"
            )
        offset0 += at // outer.step * outer.stride
        # a view that ends where its parent ends keeps the padding; an empty one has none
        padded = axis.padded - at if at + size == end else size
        padded = padded if size else 0
        first = outer._replace(extent=-(-padded // outer.step))
        parts.append((Axis(axis.dims, padded), (first, *inner)))
    # with negative strides, an empty view of an empty parent may start at a negative offset
    return _joined(layout, dims, parts, offset0 if all(dims) else max(offset0, 0))


def permute_axes(layout: Layout, perm: tuple[int, ...]) -> Layout:
    """Reorder dims: old dim d becomes dim `perm[d]`; no data is moved."""
    if sorted(perm) != list(range(layout.ndims)):
        raise MemdescError(
            f"{short_repr(perm)} is not a permutation of the dims 0 to {layout.ndims - 1}"
        )
    dims = tuple(layout.dims[perm.index(dim)] for dim in range(layout.ndims))
    parts = (
        (Axis(tuple(perm[dim] for dim in axis.dims), axis.padded), blocks)
        for axis, blocks in layout.parts
    )
    return _joined(layout, dims, parts, layout.offset0)


def _joined(layout: Layout, dims: tuple[int, ...], parts: Iterable[_Part], offset0: int) -> Layout:
    """Make a view of a layout from axes in any order, and number the blocks of each anew."""
    ordered = sorted(parts, key=lambda part: part[0].dims[0])
    blocks = [block._replace(axis=k) for k, (_, blocks) in enumerate(ordered) for block in blocks]
    axes = tuple(axis for axis, _ in ordered)
    return Layout.computed(dims, axes, tuple(blocks), offset0, layout.xor)


# Adjacent old dims that become adjacent new dims with the same product. Without old dims, the new
# one is an added unit dim; without new ones, the old one is a dropped unit dim.
_Group = tuple[range, range]


def reshape(layout: Layout, dims: tuple[int, ...], letters: str | None = None) -> Layout:
    """Regroup dims without moving data.

    A dim that keeps its size keeps its blocks and padding; dims of size 1 can be added and dropped.
    Other dims are regrouped with their blocks, unless the new dims have no common boundaries with
    these. oneDNN regroups only dims that are plain and contiguous; for those, the layout is the
    same. Messages call the old dims by `letters`.
    """
    check_dims(dims)
    if prod(dims) != layout.nelems:
        raise MemdescError(
            f"dims {layout.dims} hold {layout.nelems} elements, dims {dims} hold {prod(dims)}"
        )
    if prod(size or 1 for size in dims) != prod(size or 1 for size in layout.dims):
        raise MemdescError(
            f"dims {layout.dims} cannot become {dims}: by oneDNN's rule the nonzero sizes "
            "must have the same product"
        )
    parts: list[_Part] = []
    kept: dict[int, int] = {}
    # an added unit dim has the number of elements inside it as its stride, as in oneDNN
    unit_stride = prod(blocks[0].step for _, blocks in layout.parts)
    for old, new in _groups(layout, dims, letters):
        if len(old) == len(new) == 1 and layout.dims[old[0]] == dims[new[0]]:
            kept[old[0]] = new[0]
        elif not old:
            parts.append((Axis((*new,), 1), (Block(0, 1, 1, unit_stride),)))
        elif new:
            parts += _regrouped(layout, (old, new), dims, letters)
        if old:
            outer = _part_of(layout, old[0])[1][0]
            unit_stride = outer.stride * layout.dims[old[0]] // outer.step
    for axis, blocks in layout.parts:
        # fused dims stay together; anything else was refused above
        if axis.dims[0] in kept:
            parts.append((Axis(tuple(kept[dim] for dim in axis.dims), axis.padded), blocks))
    return _joined(layout, dims, parts, layout.offset0)


def _part_of(layout: Layout, dim: int) -> _Part:
    return next(part for part in layout.parts if dim in part[0].dims)


def _groups(layout: Layout, dims: tuple[int, ...], letters: str | None) -> Iterable[_Group]:
    """Match old and new dims from the last one backwards.

    Each step does the first of these that applies: drop an old unit dim, or match it if it is
    padded or fused; add a new unit dim; take dims on the side with the smaller product until both
    products are equal.
    """
    old, new = layout.ndims, len(dims)
    while old or new:
        first, start = old, new  # the dims that are matched next
        is_added = new and dims[new - 1] == 1
        if old and layout.dims[old - 1] == 1:
            first -= 1
            if _part_of(layout, first)[0].padded != 1:
                if not is_added:
                    raise MemdescError(
                        f"{dim_name(first, letters)} of size 1 is padded or fused with "
                        "other dims, so it cannot be dropped"
                    )
                start -= 1
        elif is_added:
            start -= 1
        else:
            first, start = old - 1, new - 1
            while first >= 0 and start >= 0:
                have, want = prod(layout.dims[first:old]), prod(dims[start:new])
                if have == want:
                    break
                first, start = (first - 1, start) if have < want else (first, start - 1)
            else:
                raise MemdescError(
                    f"dims {layout.dims} cannot be regrouped into {dims} where one of them is 0"
                )
        yield range(first, old), range(start, new)
        old, new = first, start


def _regrouped(
    layout: Layout, group: _Group, dims: tuple[int, ...], letters: str | None
) -> list[_Part]:
    """Return the new dims of a group as axes with their blocks.

    Each new dim takes the innermost digits that are left of the old dims' row-major index. A digit
    that belongs to two new dims is cut in two.
    """
    olds, news = group
    digits = _digits(layout, olds, letters)
    parts: list[_Part] = []
    for dim in reversed(news):
        padded = dims[dim] if dim > news.start else prod(extent for extent, _ in digits)
        blocks: list[Block] = []
        step = 1
        while step < padded:
            extent, stride = digits.pop()
            taken = min(extent, padded // step)
            if extent % taken or padded // step % taken or (blocks and not blocks[0].stride):
                raise MemdescError(
                    f"dim {dim} of {dims} ends inside a block of {extent} with stride {stride}; "
                    "reorder to a plain layout first"
                )
            if taken < extent:
                digits.append((extent // taken, stride * taken))
            blocks.insert(0, Block(0, step, taken, stride))
            step *= taken
        # like oneDNN, a dim of 1 has the stride of the digit outside it
        parts.append((Axis((dim,), padded), tuple(blocks or [Block(0, 1, 1, digits[-1][1])])))
    return parts


def _digits(layout: Layout, dims: range, letters: str | None) -> list[tuple[int, int]]:
    """Return the extents and strides of the digits of dims' row-major index, fused where possible.

    Only the first dim may be padded. Fails if a dim that changes is fused with others.
    """
    digits: list[tuple[int, int]] = []
    for dim in dims:
        axis, blocks = _part_of(layout, dim)
        is_padded = axis.padded != layout.dims[dim] and dim > dims.start
        if is_padded or len(axis.dims) > 1 or axis.padded % blocks[0].step:
            raise MemdescError(
                f"{dim_name(dim, letters)} is padded or fused with other dims, so it must keep its "
                f"size {layout.dims[dim]}; reorder to a plain layout first"
            )
        digits += [(extent, stride) for _, _, extent, stride in blocks]
    return fused(digits)
