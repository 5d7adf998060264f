"""Choice of the loops of a work-group, so that adjacent work items access adjacent memory.

Devices store images in tiles of a few columns and rows, so work items should access a square of
pixels; in a buffer they should follow the smallest stride. A work-group covers some iterations of
several loops, to meet both. The numbers are the best of a sweep over all shares and orders on an
NVIDIA H200 (docs/opencl.md has the bandwidths that they reach).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reorder.opencl.codegen.pattern import AccessKind
from reorder.opencl.schedule.placement import PixelLoop

if TYPE_CHECKING:
    from reorder.opencl.codegen.pattern import Access
    from reorder.opencl.schedule.placement import PixelNest

__all__ = ["WorkGroup", "choose_work_group"]

# The largest work-group.
_MAX_WORK_ITEMS = 256

# Role of a loop: it runs along columns or rows of the image, or the smallest stride of the buffer.
_COLUMN, _ROW, _BUFFER = "column", "row", "buffer"


class _Share(NamedTuple):
    """log2 of the work items along the loop of a role, and the iterations of each work item."""

    role: str
    shift: int
    steps: int = 1


# Key: the loop of the smallest stride in the buffer. In the image it runs along the columns, along
# the rows, or it is separate from both (blocks of channels of NHWC); if it is too short to fill a
# cache line, it is "short". "vector": the lanes of a pixel are contiguous in the buffer. Entries:
# the order of work items, innermost first.
_PACK = {
    "columns": (_Share(_ROW, 1, 2), _Share(_COLUMN, 6)),
    "vector columns": (_Share(_COLUMN, 4, 4), _Share(_ROW, 4)),
    "rows": (_Share(_COLUMN, 3, 2), _Share(_ROW, 4)),
    "separate": (_Share(_COLUMN, 1), _Share(_ROW, 1), _Share(_BUFFER, 5, 2)),
    "short": (_Share(_COLUMN, 2, 2), _Share(_ROW, 1), _Share(_BUFFER, 4)),
    "vector separate": (_Share(_COLUMN, 1), _Share(_ROW, 1), _Share(_BUFFER, 5, 2)),
    "vector short": (_Share(_COLUMN, 3), _Share(_BUFFER, 1, 2), _Share(_ROW, 3)),
}
_UNPACK = {
    "columns": (_Share(_COLUMN, 6), _Share(_ROW, 2, 2)),
    "vector columns": (_Share(_COLUMN, 4, 2), _Share(_ROW, 4)),
    "rows": (_Share(_ROW, 4), _Share(_COLUMN, 3, 2)),
    "separate": (_Share(_COLUMN, 1), _Share(_BUFFER, 5, 2), _Share(_ROW, 2)),
    "short": (_Share(_COLUMN, 1, 2), _Share(_BUFFER, 4), _Share(_ROW, 2)),
    "vector separate": (_Share(_COLUMN, 2), _Share(_BUFFER, 3), _Share(_ROW, 2)),
    "vector short": (_Share(_COLUMN, 3, 2), _Share(_BUFFER, 2), _Share(_ROW, 2)),
}
# For elements of 16 bits or less, of which more are needed for the same number of bytes.
_UNPACK_NARROW = _UNPACK | {
    "columns": (_Share(_COLUMN, 6), _Share(_ROW, 2, 4)),
    "vector separate": (_Share(_COLUMN, 2), _Share(_BUFFER, 4), _Share(_ROW, 1)),
}
_IMAGE_ONLY = (_Share(_COLUMN, 4), _Share(_ROW, 4))
# Extents below which a separate loop is short, for scalars and for vectors.
_SHORT, _SHORT_VECTOR = 32, 8
# Elements of as many bits are not narrow.
_WIDE_BITS = 32
# Nests with fewer loops are filled up with loops of one step, so that there are fewer patterns.
_MIN_LOOPS = 3


class WorkGroup(NamedTuple):
    """Loops in the order of work items, innermost first.

    `shifts` are log2 of the work items along each loop, `steps` the iterations of each
    work item, `gather_shift` is log2 of the work items along the first gather.
    """

    loops: tuple[PixelLoop, ...]
    shifts: tuple[int, ...]
    steps: tuple[int, ...]
    work_items: int
    gather_shift: int = 0


def choose_work_group(
    nest: PixelNest, accesses: tuple[Access, Access], bits: int, max_work_items: int
) -> WorkGroup:
    """Order the loops of a nest, and choose the number of work items along each.

    `bits` is the width of an element of dst.
    """
    loops = list(reversed(nest.loops))
    src, dst = accesses
    if AccessKind.IMAGE in {src.kind, dst.kind}:
        return _for_image(nest, accesses, bits, max_work_items)
    shift = _floor_log2(min(_MAX_WORK_ITEMS, max_work_items))
    loops.sort(key=lambda loop: abs(loop.dst[0]))
    return _filled(nest, loops, [], shift)


def _ceil_log2(extent: int) -> int:
    return (extent - 1).bit_length()


def _floor_log2(extent: int) -> int:
    return extent.bit_length() - 1


def _filled(
    nest: PixelNest, loops: list[PixelLoop], given_shifts: list[int], total: int
) -> WorkGroup:
    """Give each remaining loop as many work items as it has steps, while some are left.

    `total` is log2 of all work items, `given_shifts` are the shifts of the first loops.
    """
    unit = PixelLoop(1, 1, (0,) * len(nest.src), (0,) * len(nest.dst))
    loops = [*loops, *(unit for _ in range(_MIN_LOOPS - len(loops)))]
    shifts = list(given_shifts)
    free = total - sum(shifts)
    for loop in loops[len(shifts) :]:
        shifts.append(min(_ceil_log2(loop.extent), free))
        free -= shifts[-1]
    gather_shift = min(_ceil_log2(nest.gathers[0].extent), free) if nest.gathers else 0
    # the remaining work items are idle, past the end of the last loop
    shifts[-1] += free - gather_shift
    return WorkGroup(tuple(loops), tuple(shifts), (1,) * len(loops), 1 << total, gather_shift)


def _for_image(
    nest: PixelNest, accesses: tuple[Access, Access], bits: int, max_work_items: int
) -> WorkGroup:
    """Return a group of a nest with at least one image."""
    loops = list(reversed(nest.loops))
    roles, shares = _shares(loops, accesses, bits)
    total = min(sum(share.shift for share in shares), _floor_log2(max_work_items))
    chosen, shifts, steps = [], [], []
    free = total
    for role, max_shift, count in shares:
        loop = roles[role]
        if loop is None:
            continue
        shift = min(_ceil_log2(loop.extent), max_shift, free)
        free -= shift
        chosen.append(loop)
        shifts.append(shift)
        steps.append(count if loop.extent >> shift >= count else 1)
    # the remaining work items go to loops that still have steps
    for k, loop in enumerate(chosen):
        more = max(min(free, _ceil_log2(loop.extent) - shifts[k]), 0)
        shifts[k] += more
        free -= more
    others = [loop for loop in loops if not any(loop is taken for taken in chosen)]
    group = _filled(nest, [*chosen, *others], shifts, total)
    return group._replace(steps=(*steps, *group.steps[len(steps) :]))


def _shares(
    loops: list[PixelLoop], accesses: tuple[Access, Access], bits: int
) -> tuple[dict[str, PixelLoop | None], tuple[_Share, ...]]:
    """Return the loop of each role, and the work items along each."""
    kinds = [access.kind for access in accesses]
    image = 1 if kinds[1] == AccessKind.IMAGE else 0
    column, row = _smallest(loops, image, 0), _smallest(loops, image, 1)
    if kinds[1 - image] in {AccessKind.IMAGE, AccessKind.NONE}:
        return {_COLUMN: column, _ROW: row}, _IMAGE_ONLY
    buffer = _smallest(loops, 1 - image, 0)
    roles = {_COLUMN: column, _ROW: row, _BUFFER: buffer}
    if buffer is None:
        return roles, _IMAGE_ONLY
    table = _PACK if image else _UNPACK if bits >= _WIDE_BITS else _UNPACK_NARROW
    is_vector = AccessKind.VECTOR in kinds
    prefix = "vector " if is_vector else ""
    if buffer is column:
        return roles, table[f"{prefix}columns"]
    if buffer is row:
        return roles, table["rows"]
    is_short = buffer.extent < (_SHORT_VECTOR if is_vector else _SHORT)
    return roles, table[f"{prefix}{'short' if is_short else 'separate'}"]


def _smallest(loops: list[PixelLoop], operand: int, coord: int) -> PixelLoop | None:
    """Return the loop of the smallest stride, other than 0, along a coordinate of an operand."""
    strides = [
        (abs((loop.src, loop.dst)[operand][coord]), k)
        for k, loop in enumerate(loops)
        if loop.extent > 1 and len((loop.src, loop.dst)[operand]) > coord
    ]
    moving = [(stride, k) for stride, k in strides if stride]
    return loops[min(moving)[1]] if moving else None
