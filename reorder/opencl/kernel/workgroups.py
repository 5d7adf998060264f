"""Choice of the loops of a work-group, so that adjacent work items access adjacent memory.

Devices store images in tiles of a few columns and rows, so work items should access a square of
pixels; in a buffer they should follow the smallest stride. A work-group covers some iterations of
several loops, to meet both. The numbers come from the profile of a device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reorder.opencl.kernel.access import AccessKind
from reorder.opencl.kernel.launch import ceil_log2, floor_log2
from reorder.opencl.kernel.placement import Loop
from reorder.opencl.kernel.profile import BUFFER, COLUMN, ROW, Share

if TYPE_CHECKING:
    from reorder.opencl.kernel.access import Access
    from reorder.opencl.kernel.placement import Nest
    from reorder.opencl.kernel.profile import Profile

__all__ = ["WorkGroup", "choose_work_group"]

_IMAGE_ONLY = (Share(COLUMN, 4), Share(ROW, 4))
# Extents below which a separate loop is short, for scalars and for vectors.
_SHORT, _SHORT_VECTOR = 32, 8
# Bits below which elements are narrow.
_WIDE_BITS = 32
# Nests with fewer loops are filled up with loops of one step, so that there are fewer patterns.
_MIN_LOOPS = 3


class WorkGroup(NamedTuple):
    """Loops in the order of work items, innermost first.

    `shifts` are log2 of the work items along each loop, `steps` the iterations of each
    work item, `gather_shift` is log2 of the work items along the first gather.
    """

    loops: tuple[Loop, ...]
    shifts: tuple[int, ...]
    steps: tuple[int, ...]
    work_items: int
    gather_shift: int = 0


def choose_work_group(
    nest: Nest,
    accesses: tuple[Access, Access],
    bits: int,
    max_work_items: int,
    profile: Profile,
) -> WorkGroup:
    """Order the loops of a nest, and choose the number of work items along each.

    `bits` is the width of an element of dst.
    """
    src, dst = accesses
    if AccessKind.IMAGE in {src.kind, dst.kind}:
        return _for_image(nest, max_work_items, *_shares(nest, accesses, bits, profile))
    work_items, steps = profile.copy(max(bits // 8, 1))
    shift = floor_log2(min(work_items, max_work_items))
    loops = list(reversed(nest.loops))
    loops.sort(key=lambda loop: abs(loop.dst[0]))
    group = _filled(nest, loops, [], shift)
    return group if nest.gathers else _with_steps(group, steps)


def _with_steps(group: WorkGroup, steps: int) -> WorkGroup:
    """Give each work item some steps of the outermost loop that a group has work items along."""
    loops = range(len(group.loops))
    shared = [k for k in loops if group.shifts[k]]
    for k in [*reversed(shared), *(k for k in loops if not group.shifts[k])]:
        if group.loops[k].extent >> group.shifts[k] >= steps:
            return group._replace(steps=tuple(steps if j == k else 1 for j in loops))
    return group


def _filled(nest: Nest, loops: list[Loop], given_shifts: list[int], total: int) -> WorkGroup:
    """Give each remaining loop as many work items as it has steps, while some are left.

    `total` is log2 of all work items, `given_shifts` are the shifts of the first loops.
    """
    unit = Loop(1, 1, (0,) * len(nest.src), (0,) * len(nest.dst))
    loops = [*loops, *(unit for _ in range(_MIN_LOOPS - len(loops)))]
    shifts = list(given_shifts)
    free = total - sum(shifts)
    for loop in loops[len(shifts) :]:
        shifts.append(min(ceil_log2(loop.extent), free))
        free -= shifts[-1]
    gather_shift = min(ceil_log2(nest.gathers[0].extent), free) if nest.gathers else 0
    # the remaining work items are idle, past the end of the last loop
    shifts[-1] += free - gather_shift
    return WorkGroup(tuple(loops), tuple(shifts), (1,) * len(loops), 1 << total, gather_shift)


def _for_image(
    nest: Nest,
    max_work_items: int,
    roles: dict[str, Loop | None],
    shares: tuple[Share, ...],
) -> WorkGroup:
    """Return a group of a nest with at least one image."""
    loops = list(reversed(nest.loops))
    total = min(sum(share.shift for share in shares), floor_log2(max_work_items))
    chosen: list[Loop] = []
    shifts, steps = [], []
    free = total
    for role, max_shift, count in shares:
        loop = roles[role]
        # two roles may be those of one loop
        if loop is None or any(loop is taken for taken in chosen):
            continue
        shift = min(ceil_log2(loop.extent), max_shift, free)
        free -= shift
        chosen.append(loop)
        shifts.append(shift)
        steps.append(count if loop.extent >> shift >= count else 1)
    # the remaining work items go to loops that still have steps
    for k, loop in enumerate(chosen):
        more = max(min(free, ceil_log2(loop.extent) - shifts[k]), 0)
        shifts[k] += more
        free -= more
    others = [loop for loop in loops if not any(loop is taken for taken in chosen)]
    group = _filled(nest, [*chosen, *others], shifts, total)
    return group._replace(steps=(*steps, *group.steps[len(steps) :]))


def _shares(
    nest: Nest, accesses: tuple[Access, Access], bits: int, profile: Profile
) -> tuple[dict[str, Loop | None], tuple[Share, ...]]:
    """Return the loop of each role, and the work items along each."""
    loops = list(reversed(nest.loops))
    kinds = [access.kind for access in accesses]
    image = 1 if kinds[1] == AccessKind.IMAGE else 0
    column, row = _smallest(loops, image, 0), _smallest(loops, image, 1)
    if kinds[1 - image] in {AccessKind.IMAGE, AccessKind.NONE}:
        return {COLUMN: column, ROW: row}, _IMAGE_ONLY
    buffer = _smallest(loops, 1 - image, 0)
    roles = {COLUMN: column, ROW: row, BUFFER: buffer}
    if buffer is None:
        return roles, _IMAGE_ONLY
    is_narrow = bits < _WIDE_BITS
    groups = (
        (profile.pack_narrow if is_narrow else profile.pack)
        if image
        else (profile.unpack_narrow if is_narrow else profile.unpack)
    )
    is_vector = AccessKind.VECTOR in kinds
    place = "columns" if buffer is column else "rows" if buffer is row else "separate"
    if place == "separate" and buffer.extent < (_SHORT_VECTOR if is_vector else _SHORT):
        place = "short"
    # the loop along the rows has the same shares for scalars and vectors
    prefix = "vector_" if is_vector and place != "rows" else ""
    shares: tuple[Share, ...] = getattr(groups, prefix + place)
    return roles, shares


def _smallest(loops: list[Loop], operand: int, coord: int) -> Loop | None:
    """Return the loop of the smallest stride, other than 0, along a coordinate of an operand."""
    strides = [
        (abs((loop.src, loop.dst)[operand][coord]), k)
        for k, loop in enumerate(loops)
        if loop.extent > 1 and len((loop.src, loop.dst)[operand]) > coord
    ]
    moving = [(stride, k) for stride, k in strides if stride]
    return loops[min(moving)[1]] if moving else None
