"""Launches: a nest, the pattern of its kernel, and the numbers that the kernel takes.

The parameters of a kernel are a struct of integers by value, so that one kernel fits all sizes.
Names and order, for operand `src` and then `dst`, loop k, gather k:

    src, or src_x, src_y      offset, or column and row, where the nest starts
    src_lane1, ...            offsets of the lanes after the first (buffers)
    extent0, valid0           iterations of loop 0, and those of them that hold data
    shift0                    log2 of the work items along loop 0
    groups0                   work-groups along loop 0, where another loop shares its dimension
    src0, or src_x0, src_y0   stride of loop 0
    gather0_extent, gather0_shift, gather0_groups
                              as for a loop
    gather0_size1             size of dim 1
    gather0_src0_padded       padded extent of axis 0 of src
    gather0_src0_step0, gather0_src0_extent0, gather0_src0_stride0
                              outermost block of axis 0 of src

A kernel that converts has the roles of its scales and zero points as further operands, where they
differ along the dims. Before all others stand its scalars, then what its body adds:

    src_scale_value, ...      a number for all elements; of floats, the bits
    src_end                   one past the last element that may be read, for aligned loads
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.opencl.kernel.access import OTHER, Access, AccessKind
from reorder.opencl.kernel.conversion import Floats, conversion_lines
from reorder.opencl.kernel.profile import GPU, Profile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from memdesc import Axis, Block
    from reorder.opencl.kernel.conversion import Conversion
    from reorder.opencl.kernel.placement import Coords, Loop, Nest
    from reorder.plan.nodes import Lookup

__all__ = [
    "MAX_INT",
    "Body",
    "DeviceTraits",
    "Division",
    "GatherShape",
    "Launch",
    "LoopShape",
    "Pattern",
    "Task",
    "block_names",
    "block_values",
    "ceil_log2",
    "divided",
    "end_of_src",
    "floor_log2",
    "make_launch",
    "offset_bound",
    "param_names",
    "tiled",
    "with_values",
]

MAX_INT = 2**31 - 1
# NVIDIA's limit of work-groups in the second and third dimension
_MAX_GROUPS = 65535


def ceil_log2(extent: int) -> int:
    """Return the smallest k for which 2**k is at least the extent."""
    return (extent - 1).bit_length()


def floor_log2(extent: int) -> int:
    """Return the largest k for which 2**k is at most the extent."""
    return extent.bit_length() - 1


class DeviceTraits(NamedTuple):
    """What plans depend on: the largest work-group of a device, its arithmetic, what suits it."""

    max_work_items: int
    floats: Floats = Floats()
    profile: Profile = GPU


class Task(NamedTuple):
    """A nest that a family of kernels may lower.

    `accesses` are those of src and dst: `IMAGE` or `BUFFER`. `is_aligned` says whether buffers
    start at multiples of 16 bytes. With a `conversion` elements are computed, or
    4-bit elements move; `numbers` are its parameters that are one number.
    """

    nest: Nest
    accesses: tuple[Access, Access]
    device: DeviceTraits
    is_aligned: bool
    conversion: Conversion | None = None
    numbers: Mapping[str, int] = {}

    @property
    def moves_bytes(self) -> bool:
        """Whether elements of whole bytes move between two buffers."""
        kinds = [access.kind for access in self.accesses]
        return self.conversion is None and kinds == [AccessKind.BUFFER] * 2


class LoopShape(NamedTuple):
    """How a loop is divided among work items.

    Each work item runs `steps` iterations, as far apart as there are work items along the loop.
    `grid_dim` is the dimension of the NDRange that counts the work-groups along it.
    """

    steps: int
    grid_dim: int


class GatherShape(NamedTuple):
    """The structure of a `Lookup`: its dims; for each axis its dims and its number of blocks.

    `others` has the axes of the scales and zero points that differ along the dims.
    """

    dims: tuple[int, ...]
    src: tuple[tuple[tuple[int, ...], int], ...]
    dst: tuple[tuple[tuple[int, ...], int], ...]
    others: tuple[tuple[tuple[tuple[int, ...], int], ...], ...] = ()


class Body(ABC):
    """What a family of kernels does: its data, on which the text depends, is hashable."""

    @abstractmethod
    def lines(self, pattern: Pattern) -> Iterator[str]:
        """Return the body of the kernel."""

    def functions(self, pattern: Pattern) -> Iterator[str]:
        """Return the functions that the body calls, after an empty line."""
        yield ""
        if pattern.conversion is not None:
            yield from conversion_lines(pattern.conversion)

    def own_params(self) -> list[str]:
        """Return the names of the parameters beside those of the nest."""
        return []

    def param_names(self, pattern: Pattern) -> list[str]:
        """Return the names of all parameters, in the order in which the kernel takes them."""
        conversion = pattern.conversion
        scalars = [] if conversion is None else [f"{role}_value" for role in conversion.scalars]
        return [*scalars, *self.own_params(), *_nest_params(pattern)]


class Pattern(NamedTuple):
    """The structure of a kernel without its numbers, on which its text depends.

    `lanes` has an entry for each element that a work item moves: its lane in an image src, its
    index among the lanes for a buffer, or -1 if zero is written. A work-group has `work_items`
    work items. With `is_wide` offsets have 64 bits.
    """

    src: Access
    dst: Access
    body: Body
    work_items: int
    conversion: Conversion | None = None
    lanes: tuple[int, ...] = (0,)
    loops: tuple[LoopShape, ...] = ()
    gathers: tuple[GatherShape, ...] = ()
    is_wide: bool = False

    @property
    def others(self) -> tuple[str, ...]:
        """The operands beside src and dst: scales and zero points that differ along the dims."""
        return () if self.conversion is None else self.conversion.varying

    @property
    def operands(self) -> list[tuple[str, Access]]:
        """All operands by name."""
        return [("src", self.src), ("dst", self.dst), *((role, OTHER) for role in self.others)]

    def is_last_in_dimension(self, k: int) -> bool:
        """Whether no loop or gather after loop k shares its dimension of the NDRange."""
        grid_dim = self.loops[k].grid_dim
        if self.gathers and grid_dim == 0:
            return False
        return all(other.grid_dim != grid_dim for other in self.loops[k + 1 :])


class Launch(NamedTuple):
    """One kernel to enqueue: its pattern, its parameters, and the work-groups in each dimension.

    One that `is_later` starts when all others of its transfer are done.
    """

    pattern: Pattern
    params: tuple[int, ...]
    groups: tuple[int, ...]
    is_later: bool = False


class Division(NamedTuple):
    """How a loop is divided: its work-groups, log2 of the work items of each, steps of each.

    The work items of a group take `tile` iterations.
    """

    groups: int
    shift: int
    steps: int
    tile: int


def divided(extent: int, shift: int = 0, steps: int = 1, length: int = 1) -> Division:
    """Divide a loop among work items; a step of one takes `length` iterations."""
    tile = (steps << shift) * length
    return Division(-(-extent // tile), shift, steps, tile)


def tiled(loops: Iterable[Loop], extents: Iterable[int]) -> list[Division]:
    """Divide loops into tiles of some steps of each, one for a work-group."""
    return [divided(loop.extent, steps=extent) for loop, extent in zip(loops, extents, strict=True)]


def make_launch(
    nest: Nest,
    pattern: Pattern,
    loops: Iterable[Division],
    numbers: Mapping[str, int],
    gather_shift: int = 0,
) -> Launch:
    """Make the launch of a nest; its loops are innermost first.

    Parameters
    ----------
    nest : Nest
        The loops.
    pattern : Pattern
        Without loops and gathers.
    loops : iterable of Division
        How each loop is divided.
    numbers : mapping
        Parameters beside those of the nest, by name.
    gather_shift : int, optional
        log2 of the work items along the first gather.
    """
    loops = tuple(loops)
    shifts = [gather_shift, *(0 for _ in nest.gathers)]
    gathers = tuple(
        divided(gather.extent, shift) for gather, shift in zip(nest.gathers, shifts, strict=False)
    )
    counts = [division.groups for division in loops]
    dims = _grid_dims(counts, has_gathers=bool(gathers))
    # extents are rounded up to whole groups
    spans = [one.groups * one.tile for one in loops]
    wide_numbers = pattern.conversion is not None and pattern.conversion.needs_wide_parameters
    pattern = pattern._replace(
        loops=tuple(LoopShape(one.steps, dim) for one, dim in zip(loops, dims, strict=True)),
        gathers=tuple(map(_gather_shape, nest.gathers)),
        is_wide=pattern.is_wide or wide_numbers or offset_bound(nest, spans) + sum(spans) > MAX_INT,
    )
    values = {**_nest_values(nest, loops, gathers, pattern.others), **numbers}
    first, *others = (
        prod(count for count, grid_dim in zip(counts, dims, strict=True) if grid_dim == dim)
        for dim in range(3)
    )
    return with_values(pattern, values, (first * prod(one.groups for one in gathers), *others))


def with_values(pattern: Pattern, values: Mapping[str, int], groups: tuple[int, ...]) -> Launch:
    """Return the launch of a pattern with its parameters taken by name."""
    return Launch(pattern, tuple(values[name] for name in param_names(pattern)), groups)


def _grid_dims(counts: list[int], *, has_gathers: bool) -> list[int]:
    """Return the NDRange dimension of the groups of each loop: the outermost loop gets the last."""
    dims = [0] * len(counts)
    free = [2, 1]
    for k in reversed(range(0 if has_gathers else 1, len(counts))):
        if free and counts[k] <= _MAX_GROUPS:
            dims[k] = free.pop(0)
    return dims


def offset_bound(nest: Nest, spans: list[int]) -> int:
    """Return a bound of all offsets and gathered indices, for some iterations of each loop."""
    bounds = [
        sum(map(abs, nest.src)) + sum(abs(lane.src) for lane in nest.lanes),
        sum(map(abs, nest.dst)) + sum(abs(lane.dst) for lane in nest.lanes),
        *(
            abs(start) + sum(abs(lane.others[k]) for lane in nest.lanes)
            for k, start in enumerate(nest.others)
        ),
    ]
    for loop, span in zip(nest.loops, spans, strict=True):
        bounds[0] += span * max(map(abs, loop.src), default=0)
        bounds[1] += span * max(map(abs, loop.dst), default=0)
        for k, stride in enumerate(loop.others):
            bounds[2 + k] += span * abs(stride)
    for gather in nest.gathers:
        operands = gather.src, gather.dst, *gather.others
        bounds = [
            bound + gather.extent + _reach(axes)
            for bound, axes in zip(bounds, operands, strict=True)
        ]
    return max(bounds)


def _reach(axes: tuple[tuple[Axis, tuple[Block, ...]], ...]) -> int:
    """Return a bound of the offsets of the axes of one operand of a gather."""
    return sum(
        abs(block.stride) * max(block.extent, -(-axis.padded // block.step)) + block.step
        for axis, blocks in axes
        for block in blocks
    )


def _gather_shape(gather: Lookup) -> GatherShape:
    """Return the structure of a gather."""
    src, dst, *others = (
        tuple((axis.dims, len(blocks)) for axis, blocks in operand)
        for operand in (gather.src, gather.dst, *gather.others)
    )
    return GatherShape(tuple(dim for dim, _ in gather.sizes), src, dst, tuple(others))


def param_names(pattern: Pattern) -> list[str]:
    """Return the names of a kernel's parameters, in the order in which it takes them."""
    return pattern.body.param_names(pattern)


def _nest_params(pattern: Pattern) -> list[str]:
    """Return the names of the parameters of a nest."""
    names: list[str] = []
    operands = pattern.operands
    for operand, access in operands:
        names += _coord_names(operand, access, "")
        if access.kind == AccessKind.BUFFER:
            names += [f"{operand}_lane{k}" for k in range(1, len(pattern.lanes))]
    for k in range(len(pattern.loops)):
        names += [f"extent{k}", f"valid{k}", f"shift{k}"]
        if not pattern.is_last_in_dimension(k):
            names.append(f"groups{k}")
        for operand, access in operands:
            names += _coord_names(operand, access, str(k))
    for k, gather in enumerate(pattern.gathers):
        names += _gather_names(f"gather{k}", gather, pattern.others)
    return names


def _coord_names(operand: str, access: Access, loop: str) -> list[str]:
    if access.kind == AccessKind.IMAGE:
        return [f"{operand}_x{loop}", f"{operand}_y{loop}"]
    return [] if access.kind == AccessKind.NONE else [f"{operand}{loop}"]


def _gather_names(prefix: str, gather: GatherShape, others: tuple[str, ...]) -> list[str]:
    names = [f"{prefix}_extent", f"{prefix}_shift", f"{prefix}_groups"]
    names += [f"{prefix}_size{dim}" for dim in gather.dims]
    operands = zip(("src", "dst", *others), (gather.src, gather.dst, *gather.others), strict=True)
    for operand, axes in operands:
        for j, (_, blocks) in enumerate(axes):
            names.append(f"{prefix}_{operand}{j}_padded")
            names += block_names(f"{prefix}_{operand}{j}", blocks)
    return names


def block_names(prefix: str, blocks: int) -> list[str]:
    """Return the names of the steps, extents and strides of some blocks."""
    return [f"{prefix}_{field}{b}" for b in range(blocks) for field in ("step", "extent", "stride")]


def _nest_values(
    nest: Nest,
    loops: tuple[Division, ...],
    gathers: tuple[Division, ...],
    others: tuple[str, ...],
) -> dict[str, int]:
    """Return the parameters of a nest by name; a kernel takes some of them.

    `others` names the scales and zero points that differ along the dims.
    """
    values = _coord_values("src", nest.src, "") | _coord_values("dst", nest.dst, "")
    if len(nest.src) == 1:
        values["src_end"] = end_of_src(nest.src[0], nest.loops)
    values |= dict(zip(others, nest.others, strict=True))
    for k, lane in enumerate(nest.lanes):
        values |= {f"src_lane{k}": lane.src, f"dst_lane{k}": lane.dst}
        values |= {f"{role}_lane{k}": one for role, one in zip(others, lane.others, strict=True)}
    for k, (loop, one) in enumerate(zip(nest.loops, loops, strict=True)):
        values |= {f"extent{k}": loop.extent, f"valid{k}": loop.valid}
        values |= {f"groups{k}": one.groups, f"shift{k}": one.shift}
        values |= _coord_values("src", loop.src, str(k)) | _coord_values("dst", loop.dst, str(k))
        strides = loop.others or (0,) * len(others)
        values |= {f"{role}{k}": stride for role, stride in zip(others, strides, strict=True)}
    for k, (gather, one) in enumerate(zip(nest.gathers, gathers, strict=True)):
        values |= {f"gather{k}_groups": one.groups, f"gather{k}_shift": one.shift}
        values |= _gather_values(f"gather{k}", gather, others)
    return values


def end_of_src(start: int, loops: Iterable[Loop]) -> int:
    """Return the offset past the last element of src that some loops read."""
    return start + 1 + sum(max((loop.valid - 1) * loop.src[0], 0) for loop in loops)


def _coord_values(operand: str, coords: Coords, loop: str) -> dict[str, int]:
    if len(coords) == 1:
        return {f"{operand}{loop}": coords[0]}
    return {f"{operand}_{c}{loop}": value for c, value in zip("xy", coords, strict=False)}


def _gather_values(prefix: str, gather: Lookup, others: tuple[str, ...]) -> dict[str, int]:
    """Return the parameters of a gather by name."""
    values = {f"{prefix}_extent": gather.extent}
    values |= {f"{prefix}_size{dim}": size for dim, size in gather.sizes}
    operands = [("src", gather.src), ("dst", gather.dst)]
    operands += zip(others, gather.others, strict=True)
    for operand, axes in operands:
        for j, (axis, blocks) in enumerate(axes):
            values[f"{prefix}_{operand}{j}_padded"] = axis.padded
            values |= block_values(f"{prefix}_{operand}{j}", blocks)
    return values


def block_values(prefix: str, blocks: tuple[Block, ...]) -> dict[str, int]:
    """Return the steps, extents and strides of blocks by name, the outermost block first."""
    values: dict[str, int] = {}
    for b, block in enumerate(sorted(blocks, key=lambda block: -block.step)):
        values |= {
            f"{prefix}_step{b}": block.step,
            f"{prefix}_extent{b}": block.extent,
            f"{prefix}_stride{b}": block.stride,
        }
    return values
