"""Tiles of XLA to the digits of a tag, and back."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from memdesc.errors import UnsupportedFormatError, short_repr
from memdesc.exchange.system import cannot, not_understood
from memdesc.layout import dim_name
from memdesc.tags import Digit, FormatTag

if TYPE_CHECKING:
    from memdesc.desc import MemoryDesc

__all__ = ["NAME", "PhysicalDim", "check_tag", "tag_of_dims", "tiled", "tiles_of"]

NAME = "XLA"
# Each tile of swizzled blocks may double the number of physical dims.
_MAX_DIMS = 256


class PhysicalDim(NamedTuple):
    """A physical dim: a digit of dims that are indexed as one; `is_outer` for the unbounded one."""

    dims: tuple[int, ...]
    step: int
    extent: int
    is_outer: bool


def check_tag(desc: MemoryDesc, tag: FormatTag) -> None:
    """Refuse what tiles cannot say: alignments, and blocks outside of whole dims."""
    for axis, align in enumerate(tag.align):
        if align > 1:
            name = dim_name(tag.axes[axis][0])
            raise cannot(NAME, desc, f"{name} is aligned to {align}, and only tiles pad")
    steps: set[int] = set()
    has_inner = False
    for axis, _, extent in tag.digits:
        name = dim_name(tag.axes[axis][0])
        if bool(extent) != (axis in steps):
            raise cannot(NAME, desc, f"a block of {name} lies outside of its whole blocks")
        if not extent and has_inner:
            raise cannot(NAME, desc, f"{name} lies inside the blocks of another dim")
        steps.add(axis)
        has_inner = has_inner or extent > 0


def tiles_of(desc: MemoryDesc, tag: FormatTag, outer: list[int]) -> list[list[str]]:
    """Return the tiles of a tag whose outer digits lie in this order, the outermost first."""
    steps = [[digit.step for digit in tag.digits if digit.axis == axis] for axis in outer]
    if any(each != sorted(each, reverse=True) for each in steps):
        return _swizzled_tiles(desc, tag, outer)
    return _nested_tiles(tag, outer)


def _nested_tiles(tag: FormatTag, outer: list[int]) -> list[list[str]]:
    """Return the tiles of nested blocks: the tile of all blocks, then what is inside of each.

    Blocks that follow each other in the physical order of their dims are made by one tile.
    """
    place = {axis: k for k, axis in enumerate(outer)}
    runs: list[list[Digit]] = []
    for digit in tag.digits:
        if digit.extent:
            if not runs or place[digit.axis] <= place[runs[-1][-1].axis]:
                runs.append([])
            runs[-1].append(digit)
    is_tiled = [tag.block_sizes[axis] > 1 or len(tag.axes[axis]) > 1 for axis in outer]
    if not any(is_tiled):
        return []
    left = [tag.block_sizes[axis] for axis in outer]
    first = is_tiled.index(True)
    tiles = [
        part
        for axis, size in zip(outer[first:], left[first:], strict=True)
        for part in ["*"] * (len(tag.axes[axis]) - 1) + [str(size)]
    ]
    found = [tiles]
    for run in runs[:-1]:
        first = next(k for k, size in enumerate(left) if size > 1)
        for digit in run:
            left[place[digit.axis]] //= digit.extent
        found.append(list(map(str, left[first:])))
    return found


class _Part(NamedTuple):
    """A physical dim while tiles are found: digits of an axis from a step on; 0 for all of them."""

    axis: int
    step: int
    extent: int


def _swizzled_tiles(desc: MemoryDesc, tag: FormatTag, outer: list[int]) -> list[list[str]]:
    """Return the tiles of blocks in any order.

    A tile moves the lowest digits of some dims behind all others. So for each block in memory
    order, the digits up to it are moved out of the dim that has them; blocks whose dims follow
    each other are moved by one tile.
    """
    dims = [_Part(axis, 1, 0) for axis in outer]
    tiles: list[list[str]] = []
    sizes: dict[int, int] = {}

    def close() -> None:
        fused = [k for k, dim in enumerate(dims) if not tiles and len(tag.axes[dim.axis]) > 1]
        first = min([*sizes, *fused])
        tile: list[str] = []
        for k in range(first, len(dims)):
            tile += ["*"] * (len(tag.axes[dims[k].axis]) - 1 if not tiles else 0)
            tile.append(str(sizes.get(k, 1)))
        tiles.append(tile)
        inner = [dims[k]._replace(extent=sizes.get(k, 1)) for k in range(first, len(dims))]
        for k, size in sizes.items():
            axis, step, extent = dims[k]
            dims[k] = _Part(axis, step * size, extent // size)
        dims.extend(inner)
        sizes.clear()
        if len(dims) > _MAX_DIMS:
            raise cannot(NAME, desc, f"its swizzled blocks need tiles of over {_MAX_DIMS} dims")

    def find(digit: Digit) -> int:
        return next(
            k
            for k, (axis, step, extent) in enumerate(dims)
            if axis == digit.axis
            and step <= digit.step
            and (not extent or digit.step < step * extent)
        )

    for digit in tag.digits:
        if not digit.extent:
            continue
        if sizes and find(digit) <= max(sizes):
            close()
        at = find(digit)
        sizes[at] = digit.step * digit.extent // dims[at].step
    close()
    return tiles


def tiled(text: str, dims: list[PhysicalDim], tile: list[str]) -> list[PhysicalDim]:
    """Return the physical dims after a tile: those in front, whole tiles, insides of a tile."""
    sizes = [part.strip() for part in tile]
    if not all(re.fullmatch(r"\*|[1-9][0-9]{0,17}", size) for size in sizes) or sizes[-1] == "*":
        reason = f"a tile is sizes of 1 or more, or * in front of another, not ({','.join(tile)})"
        raise not_understood(NAME, text, reason)
    if len(sizes) > len(dims):
        msg = (
            f"{short_repr(text)} cannot be described: the tile ({','.join(sizes)}) pads dims that "
            f"the array does not have; add dims of size 1 in front until it has {len(sizes)}"
        )
        raise UnsupportedFormatError(msg)
    front, rest = dims[: -len(sizes)], dims[-len(sizes) :]
    outer, inner, joined = [], [], []
    for dim, size in zip(rest, sizes, strict=True):
        joined.append(dim)
        if size == "*":
            continue
        whole, part = _divided(text, _joined(text, joined), int(size))
        outer.append(whole)
        inner.append(part)
        joined = []
    return [*front, *outer, *inner]


def _joined(text: str, dims: list[PhysicalDim]) -> PhysicalDim:
    if len(dims) == 1:
        return dims[0]
    if not all(dim.is_outer and dim.step == 1 and len(dim.dims) == 1 for dim in dims):
        msg = f"{short_repr(text)} cannot be described: * joins dims that are tiled already"
        raise UnsupportedFormatError(msg)
    logical = tuple(dim.dims[0] for dim in dims)
    return PhysicalDim(logical, 1, prod(dim.extent for dim in dims), is_outer=True)


def _divided(text: str, dim: PhysicalDim, size: int) -> tuple[PhysicalDim, PhysicalDim]:
    """Divide a physical dim by a size of a tile."""
    if not dim.is_outer and dim.extent % size:
        msg = (
            f"{short_repr(text)} cannot be described: a tile of {size} pads the inside of another, "
            f"of extent {dim.extent} in {dim_name(dim.dims[0])}"
        )
        raise UnsupportedFormatError(msg)
    whole = PhysicalDim(dim.dims, dim.step * size, -(-dim.extent // size), dim.is_outer)
    return whole, PhysicalDim(dim.dims, dim.step, size, is_outer=False)


def tag_of_dims(dims: list[PhysicalDim]) -> FormatTag:
    """Return the tag of physical dims, the outermost first."""
    axes = tuple(sorted({dim.dims for dim in dims if dim.is_outer}))
    digits = tuple(
        Digit(axes.index(dim.dims), dim.step, 0 if dim.is_outer else dim.extent)
        for dim in dims
        if dim.is_outer or dim.extent > 1
    )
    return FormatTag(axes, digits, (1,) * len(axes))
