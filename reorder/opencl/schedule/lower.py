"""Loop nests to launches: the pattern of the kernel, its parameters, the work-groups."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.opencl.codegen.conversion import Conversion
from reorder.opencl.codegen.params import param_names
from reorder.opencl.codegen.pattern import Access, AccessKind, GatherShape, LoopShape, Pattern
from reorder.opencl.schedule.arguments import Division, argument_values
from reorder.opencl.schedule.profile import GPU
from reorder.opencl.schedule.tiles import choose_tile
from reorder.opencl.schedule.workgroups import choose_work_group, floor_log2

if TYPE_CHECKING:
    from reorder.opencl.schedule.conversions import ConversionSpec
    from reorder.opencl.schedule.placement import PixelNest
    from reorder.opencl.schedule.profile import Profile
    from reorder.plan.nodes import Lookup

__all__ = [
    "MAX_INT",
    "MAX_LOCAL_NBYTES",
    "Launch",
    "bits_of",
    "gather_shape",
    "grid_dims",
    "grid_of",
    "lower",
    "lower_tile",
    "tile_launch",
]

MAX_INT = 2**31 - 1
# the local memory that every kernel on NVIDIA's devices may have
MAX_LOCAL_NBYTES = 48 << 10
# NVIDIA's limit of work-groups in the second and third dimension
_MAX_GROUPS = 65535
# bytes of the widest element that goes through tiles; 16 bytes are a vector by themselves
_MAX_TILED = 8


class Launch(NamedTuple):
    """One kernel to enqueue: its pattern, its parameters, and the work-groups in each dimension."""

    pattern: Pattern
    params: tuple[int, ...]
    groups: tuple[int, ...]


def lower(
    nest: PixelNest,
    accesses: tuple[Access, Access],
    max_work_items: int,
    *,
    is_aligned: bool,
    profile: Profile = GPU,
    spec: ConversionSpec | None = None,
) -> Launch:
    """Make the launch of a loop nest.

    Parameters
    ----------
    nest : PixelNest
        From `place_box`.
    accesses : pair of Access
        The accesses of src and dst: `IMAGE` or `BUFFER`, and the element.
    max_work_items : int
        The largest work-group of the device.
    is_aligned : bool
        Whether the buffers start at multiples of 16 bytes.
    profile : Profile, optional
        What suits the device.
    spec : ConversionSpec, optional
        What is computed, between an image and a buffer or two images.
    """
    has_image_src = accesses[0].kind == AccessKind.IMAGE
    if nest.is_zero:
        zeros = tuple(lane._replace(is_valid=False) for lane in nest.lanes)
        nest = nest._replace(src=(), lanes=zeros)
    if spec is not None:
        nest, spec = _computed(nest, spec)
        is_aligned = is_aligned and spec.has_narrow_elements
    src, dst = (
        _refined(nest, k, access, is_aligned=is_aligned) for k, access in enumerate(accesses)
    )
    tiled = None
    if spec is None and src.element == dst.element and src.kind == dst.kind == AccessKind.BUFFER:
        tiled = lower_tile(nest, src, max_work_items, profile, is_aligned=is_aligned)
    if tiled is not None:
        return tiled
    group = choose_work_group(nest, (src, dst), bits_of(dst.element), max_work_items, profile)
    nest = nest._replace(loops=group.loops)
    tiles = [steps << shift for steps, shift in zip(group.steps, group.shifts, strict=True)]
    counts = [-(-loop.extent // tile) for loop, tile in zip(group.loops, tiles, strict=True)]
    dims = grid_dims(counts, has_gathers=bool(nest.gathers))
    pattern = Pattern(
        src,
        dst,
        tuple(
            (lane.src if has_image_src else k) if lane.is_valid else -1
            for k, lane in enumerate(nest.lanes)
        ),
        tuple(LoopShape(steps, dim) for steps, dim in zip(group.steps, dims, strict=True)),
        group.work_items,
        tuple(map(gather_shape, nest.gathers)),
        _is_wide(nest, [count * tile for count, tile in zip(counts, tiles, strict=True)])
        or (spec is not None and spec.needs_wide_parameters),
        conversion=None if spec is None else spec.conversion,
    )
    shifts = [group.gather_shift if k == 0 else 0 for k in range(len(nest.gathers))]
    gathers = tuple(
        Division(-(-gather.extent >> shift), shift)
        for gather, shift in zip(nest.gathers, shifts, strict=True)
    )
    loops = tuple(Division(*pair) for pair in zip(counts, group.shifts, strict=True))
    values = argument_values(nest, loops, gathers, pattern.others)
    values |= {} if spec is None else spec.numbers
    first, *others = grid_of(counts, dims)
    grid = (first * prod(gather.groups for gather in gathers), *others)
    return Launch(pattern, tuple(values[name] for name in param_names(pattern)), grid)


def _computed(nest: PixelNest, spec: ConversionSpec) -> tuple[PixelNest, ConversionSpec]:
    """Return a nest and what it computes: zeros only move, without scales and zero points."""
    if not nest.is_zero:
        return nest, spec
    conversion = spec.conversion
    moved = Conversion(conversion.dst, conversion.dst, writes_halves=conversion.writes_halves)
    nest = nest._replace(
        others=(),
        lanes=tuple(lane._replace(others=()) for lane in nest.lanes),
        loops=tuple(loop._replace(others=()) for loop in nest.loops),
    )
    return nest, spec._replace(conversion=moved, numbers={})


def lower_tile(
    nest: PixelNest,
    access: Access,
    max_work_items: int,
    profile: Profile,
    *,
    is_aligned: bool,
    rows: tuple[int, int] | None = None,
) -> Launch | None:
    """Make the launch of tiles in local memory, between buffers of the same elements.

    None where the launch is faster without tiles. With `rows` an element has a byte in each of two
    rows of src and of dst: the numbers are the bytes between these rows.
    """
    in_row = bits_of(access.element) // 8
    nbytes = in_row if rows is None else 2 * in_row
    if nbytes > _MAX_TILED or prod(loop.extent for loop in nest.loops) * nbytes < profile.min_tiled:
        return None
    shape = profile.tile(in_row)
    shape = shape._replace(work_items=min(shape.work_items, 1 << floor_log2(max_work_items)))
    tiled = choose_tile(nest, nbytes, shape, is_aligned=is_aligned, rows=rows)
    if tiled is None:
        return None
    loops, tile, work_items = tiled
    if 4 * tile.local_words > MAX_LOCAL_NBYTES:
        return None
    pattern = Pattern(access, access, (0,), (), work_items, tile=tile)
    return tile_launch(nest._replace(loops=loops), pattern, tile.extents)


def tile_launch(
    nest: PixelNest,
    pattern: Pattern,
    extents: tuple[int, ...],
    spec: ConversionSpec | None = None,
) -> Launch:
    """Make the launch of tiles that take `extents` steps of loops; the pattern has none yet."""
    counts = [-(-loop.extent // extent) for loop, extent in zip(nest.loops, extents, strict=True)]
    dims = grid_dims(counts, has_gathers=False)
    spans = [count * extent for count, extent in zip(counts, extents, strict=True)]
    pattern = pattern._replace(
        loops=tuple(LoopShape(extent, dim) for extent, dim in zip(extents, dims, strict=True)),
        is_wide=_is_wide(nest, spans) or (spec is not None and spec.needs_wide_parameters),
    )
    values = argument_values(nest, tuple(Division(count, 0) for count in counts), ())
    values |= {} if spec is None else spec.numbers
    return Launch(
        pattern, tuple(values[name] for name in param_names(pattern)), grid_of(counts, dims)
    )


def grid_of(counts: list[int], dims: list[int]) -> tuple[int, ...]:
    """Return the work-groups in each dimension of the NDRange."""
    return tuple(
        prod(count for count, grid_dim in zip(counts, dims, strict=True) if grid_dim == dim)
        for dim in range(3)
    )


def _refined(nest: PixelNest, operand: int, access: Access, *, is_aligned: bool) -> Access:
    """Return an access with the final kind: `NONE` or `VECTOR` where that applies."""
    if operand == 0 and nest.is_zero:
        return access._replace(kind=AccessKind.NONE)
    if access.kind == AccessKind.BUFFER and is_aligned and _is_vector(nest, operand):
        return access._replace(kind=AccessKind.VECTOR)
    return access


def bits_of(element: str) -> int:
    """Return the bits of an element by its name."""
    return 8 if element == "unorm8" else int(element[1:])


def _is_vector(nest: PixelNest, operand: int) -> bool:
    """Whether the lanes of an operand are 4 contiguous elements that start at multiples of 4."""
    lanes = [lane[operand] for lane in nest.lanes]
    if lanes != [0, 1, 2, 3] or (operand == 0 and not all(lane.is_valid for lane in nest.lanes)):
        return False
    start = (nest.src, nest.dst)[operand]
    strides = [(loop.src, loop.dst)[operand] for loop in nest.loops]
    return not nest.gathers and all(
        number % 4 == 0 for coords in (start, *strides) for number in coords
    )


def grid_dims(counts: list[int], *, has_gathers: bool) -> list[int]:
    """Return the NDRange dimension of the groups of each loop: the outermost loop gets the last."""
    dims = [0] * len(counts)
    free = [2, 1]
    for k in reversed(range(0 if has_gathers else 1, len(counts))):
        if free and counts[k] <= _MAX_GROUPS:
            dims[k] = free.pop(0)
    return dims


def _is_wide(nest: PixelNest, extents: list[int]) -> bool:
    """Whether an offset or an index needs 64 bits; `extents` are rounded up to whole groups."""
    bounds = [
        sum(map(abs, nest.src)) + sum(abs(lane.src) for lane in nest.lanes),
        sum(map(abs, nest.dst)) + sum(abs(lane.dst) for lane in nest.lanes),
    ]
    for k in range(len(nest.others)):
        bounds.append(abs(nest.others[k]) + sum(abs(lane.others[k]) for lane in nest.lanes))
        for loop, extent in zip(nest.loops, extents, strict=True):
            bounds[-1] += extent * abs(loop.others[k]) if loop.others else 0
    for loop, extent in zip(nest.loops, extents, strict=True):
        bounds[0] += extent * max(map(abs, loop.src), default=0) + extent
        bounds[1] += extent * max(map(abs, loop.dst), default=0)
    for gather in nest.gathers:
        bounds = [bound + gather.extent for bound in bounds]
        for operand, axes in enumerate((gather.src, gather.dst)):
            for axis, blocks in axes:
                bounds[operand] += sum(
                    abs(block.stride) * max(block.extent, -(-axis.padded // block.step))
                    + block.step
                    for block in blocks
                )
    return max(bounds) > MAX_INT


def gather_shape(gather: Lookup) -> GatherShape:
    """Return the structure of a gather."""
    src, dst, *others = (
        tuple((axis.dims, len(blocks)) for axis, blocks in operand)
        for operand in (gather.src, gather.dst, *gather.others)
    )
    return GatherShape(tuple(dim for dim, _ in gather.sizes), src, dst, tuple(others))
