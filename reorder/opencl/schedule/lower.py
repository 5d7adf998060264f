"""Tasks to launches: which loops a group of work items covers, and the numbers of a kernel."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.opencl.codegen.params import fields
from reorder.opencl.codegen.pattern import Access, LookupShape, LoopShape, Pattern, Space
from reorder.opencl.schedule.workgroups import share_out

if TYPE_CHECKING:
    from reorder.opencl.schedule.placement import Place, Task
    from reorder.plan.nodes import Lookup

__all__ = ["Launch", "lower"]

_MAX_INT = 2**31 - 1
# what grids hold in their second and third dimension on NVIDIA
_MAX_GROUPS = 65535


class Launch(NamedTuple):
    """One kernel to start: its pattern, its numbers, and how many groups there are along each dimension."""

    pattern: Pattern
    numbers: tuple[int, ...]
    groups: tuple[int, ...]


def lower(
    task: Task, src: str, dst: str, max_items: int, *, is_image: tuple[bool, bool], is_aligned: bool
) -> Launch:
    """Make the launch of a task.

    Parameters
    ----------
    task : Task
        From `place_box`.
    src, dst : str
        Elements of each side, as `Access` names them.
    max_items : int
        The largest group of the device.
    is_image : pair of bool
        Which sides are images.
    is_aligned : bool
        Whether the buffers start at multiples of a vector of 4 elements.
    """
    if task.is_zero:
        task = task._replace(
            src=(), lanes=tuple(lane._replace(is_valid=False) for lane in task.lanes)
        )
    accesses = []
    for side, (element, image) in enumerate(zip((src, dst), is_image, strict=True)):
        space = Space.IMAGE if image else Space.BUFFER
        if not image and is_aligned and _is_vector(task, side):
            space = Space.VECTOR
        accesses.append(Access(Space.NOWHERE if side == 0 and task.is_zero else space, element))
    shares = share_out(
        task, (accesses[0].space, accesses[1].space), _bits(dst), max_items, converts=src != dst
    )
    task = task._replace(loops=shares.loops)
    tiles = [steps << shift for steps, shift in zip(shares.steps, shares.shifts, strict=True)]
    counts = [-(-loop.extent // tile) for loop, tile in zip(shares.loops, tiles, strict=True)]
    axes = _axes(counts, has_lookups=bool(task.lookups))
    pattern = Pattern(
        accesses[0],
        accesses[1],
        tuple(
            (lane.src if is_image[0] else k) if lane.is_valid else -1
            for k, lane in enumerate(task.lanes)
        ),
        tuple(LoopShape(steps, axis) for steps, axis in zip(shares.steps, axes, strict=True)),
        shares.items,
        tuple(map(_shape_of, task.lookups)),
        _is_wide(task, [count * tile for count, tile in zip(counts, tiles, strict=True)]),
        shares.is_transposed,
    )
    look_shifts = [shares.look_shift if k == 0 else 0 for k in range(len(task.lookups))]
    look_groups = [
        -(-lookup.extent >> shift) for lookup, shift in zip(task.lookups, look_shifts, strict=True)
    ]
    numbers = (
        _numbers(task)
        | {f"groups{k}": count for k, count in enumerate(counts)}
        | {f"shift{k}": s for k, s in enumerate(shares.shifts)}
    )
    for k, (groups, shift) in enumerate(zip(look_groups, look_shifts, strict=True)):
        numbers |= {f"look{k}_groups": groups, f"look{k}_shift": shift}
    grid = [
        prod(count for count, own in zip(counts, axes, strict=True) if own == axis)
        for axis in range(3)
    ]
    grid[0] *= prod(look_groups)
    return Launch(pattern, tuple(numbers[name] for name in fields(pattern)), tuple(grid))


def _bits(element: str) -> int:
    return {"unorm8": 8}.get(element) or int(element[1:])


def _is_vector(task: Task, side: int) -> bool:
    """Whether the lanes of a side are 4 neighbours that start at multiples of 4."""
    places = [lane[side] for lane in task.lanes]
    if places != [0, 1, 2, 3] or (side == 0 and not all(lane.is_valid for lane in task.lanes)):
        return False
    start = (task.src, task.dst)[side]
    steps = [(loop.src, loop.dst)[side] for loop in task.loops]
    return not task.lookups and all(
        number % 4 == 0 for place in (start, *steps) for number in place
    )


def _axes(counts: list[int], *, has_lookups: bool) -> list[int]:
    """Return the dimension of the grid that each loop's groups are counted in: the outermost take the last ones."""
    axes = [0] * len(counts)
    free = [2, 1]
    for k in reversed(range(0 if has_lookups else 1, len(counts))):
        if free and counts[k] <= _MAX_GROUPS:
            axes[k] = free.pop(0)
    return axes


def _is_wide(task: Task, extents: list[int]) -> bool:
    """Whether an offset, or an index, needs 64 bits; items reach as far as whole groups do."""
    reach = [
        sum(map(abs, task.src)) + sum(abs(lane.src) for lane in task.lanes),
        sum(map(abs, task.dst)),
    ]
    reach[1] += sum(abs(lane.dst) for lane in task.lanes)
    for loop, extent in zip(task.loops, extents, strict=True):
        reach[0] += extent * max(map(abs, loop.src), default=0) + extent
        reach[1] += extent * max(map(abs, loop.dst), default=0)
    for lookup in task.lookups:
        reach = [total + lookup.extent for total in reach]
        for side, axes in enumerate((lookup.src, lookup.dst)):
            for axis, blocks in axes:
                reach[side] += sum(
                    abs(block.stride) * max(block.extent, -(-axis.padded // block.step))
                    + block.step
                    for block in blocks
                )
    return max(reach) > _MAX_INT


def _shape_of(lookup: Lookup) -> LookupShape:
    src, dst = (
        tuple((axis.dims, len(blocks)) for axis, blocks in side)
        for side in (lookup.src, lookup.dst)
    )
    return LookupShape(tuple(dim for dim, _ in lookup.sizes), src, dst)


def _numbers(task: Task) -> dict[str, int]:
    """Return the numbers of a task by name, more than the kernel may take."""
    numbers: dict[str, int] = {}
    for side, place in (("src", task.src), ("dst", task.dst)):
        numbers |= _named(side, place, "")
    for k, lane in enumerate(task.lanes):
        numbers |= {f"src_lane{k}": lane.src, f"dst_lane{k}": lane.dst}
    for k, loop in enumerate(task.loops):
        numbers |= {f"extent{k}": loop.extent, f"valid{k}": loop.valid}
        numbers |= _named("src", loop.src, str(k)) | _named("dst", loop.dst, str(k))
    for k, lookup in enumerate(task.lookups):
        numbers |= {f"look{k}_extent": lookup.extent}
        numbers |= {f"look{k}_size{dim}": size for dim, size in lookup.sizes}
        for side, axes in (("src", lookup.src), ("dst", lookup.dst)):
            for j, (axis, blocks) in enumerate(axes):
                numbers[f"look{k}_{side}{j}_padded"] = axis.padded
                for b, block in enumerate(sorted(blocks, key=lambda block: -block.step)):
                    numbers |= {
                        f"look{k}_{side}{j}_{what}{b}": getattr(block, what)
                        for what in ("step", "extent", "stride")
                    }
    return numbers


def _named(side: str, place: Place, number: str) -> dict[str, int]:
    if len(place) == 1:
        return {f"{side}{number}": place[0]}
    return {f"{side}_{c}{number}": at for c, at in zip("xy", place, strict=False)}
