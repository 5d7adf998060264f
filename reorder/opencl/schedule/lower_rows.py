"""Nests of rows that start at any byte to launches: work items store aligned vectors of dst."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from reorder.opencl.codegen.params import param_names
from reorder.opencl.codegen.pattern import Access, AccessKind, LoopShape, Pattern
from reorder.opencl.codegen.row_shapes import Rows
from reorder.opencl.schedule.arguments import Division, argument_values, end_of_src
from reorder.opencl.schedule.lower import MAX_INT, Launch, grid_dims, grid_of
from reorder.opencl.schedule.placement import PixelLoop
from reorder.opencl.schedule.workgroups import floor_log2

if TYPE_CHECKING:
    from reorder.opencl.schedule.placement import PixelNest
    from reorder.opencl.schedule.profile import CopyShape, Profile

__all__ = ["lower_rows"]

_BYTE, _WORD, _VECTOR = 8, 32, 16
# Bytes of the widest element; wider ones are moved one by one as fast.
_MAX_ELEMENT = 4
# Bytes that follow one another in dst, if more loops do: their ends are written byte by byte. Of
# less than the second number that would be too much.
_ENOUGH, _LEAST = 1 << 14, 1 << 10
# Positions are counted in 32 bits, up to the end of the last group, whose size is limited.
_MAX_NBYTES = MAX_INT - (1 << 24)
# Nests with fewer loops are filled up with loops of one step, so that there are fewer patterns.
_MIN_LOOPS = 3


def lower_rows(
    nest: PixelNest, access: Access, max_work_items: int, profile: Profile, *, is_aligned: bool
) -> Launch | None:
    """Make the launch of a nest that copies rows between two buffers.

    None if its innermost loops differ, or where vectors are not faster than elements.

    Parameters
    ----------
    nest : PixelNest
        From `place_box`.
    access : Access
        That of src and of dst.
    max_work_items : int
        The largest work-group of the device.
    profile : Profile
        What suits the device.
    is_aligned : bool
        Whether the buffers start at multiples of 16 bytes.
    """
    nbytes = int(access.element[1:]) // _BYTE
    if nest.gathers or not is_aligned or nbytes > _MAX_ELEMENT:
        return None
    moving = nest.moving
    if nest.is_zero or any(loop.valid != loop.extent for loop in moving.loops):
        return None
    if prod(loop.extent for loop in moving.loops) * nbytes < profile.min_tiled:
        return None
    first = moving.along_src
    length = 0 if first is None else first.extent * nbytes
    if first is not moving.along_dst or not _VECTOR <= length <= _MAX_NBYTES:
        return None
    row = PixelLoop(length, length, (1,), (1,))
    others = [_of_bytes(loop, nbytes) for loop in moving.others]
    chain = _chain(row, others)
    if prod(loop.extent for loop in chain) < _LEAST:
        return None
    outer = [loop for loop in others if all(loop is not taken for taken in chain)]
    # groups that run at the same time read adjacent rows, which share sectors of memory
    outer.sort(key=lambda loop: abs(loop.src[0]))
    outer += [PixelLoop(1, 1, (0,), (0,))] * (_MIN_LOOPS - 1 - len(outer))
    start = [offset * nbytes for (offset,) in (nest.src, nest.dst)]
    nest = nest._replace(src=(start[0],), dst=(start[1],))
    shape = profile.rows
    work_items = 1 << floor_log2(min(shape.work_items, max_work_items))
    return _launch(nest, chain, outer, shape._replace(work_items=work_items))


def _of_bytes(loop: PixelLoop, nbytes: int) -> PixelLoop:
    """Return a loop with strides in bytes instead of elements."""
    return loop._replace(src=(loop.src[0] * nbytes,), dst=(loop.dst[0] * nbytes,))


def _chain(row: PixelLoop, loops: list[PixelLoop]) -> list[PixelLoop]:
    """Return the loops that follow one another in dst until they have enough bytes."""
    chain, length = [row], row.extent
    while length < _ENOUGH:
        found = next((loop for loop in loops if loop.dst[0] == length), None)
        if found is None or length * found.extent > _MAX_NBYTES:
            break
        chain.append(found)
        length *= found.extent
    return chain


def _launch(
    nest: PixelNest, chain: list[PixelLoop], outer: list[PixelLoop], shape: CopyShape
) -> Launch:
    """Make the launch of loops that follow one another in dst, and of those around them."""
    row, nbytes = chain[0].extent, prod(loop.extent for loop in chain)
    # one vector more, where dst does not start at a vector
    vectors = -(-(nbytes + _VECTOR - 1) // _VECTOR)
    counts = [-(-vectors // (shape.work_items * shape.steps)), *(loop.extent for loop in outer)]
    dims = grid_dims(counts, has_gathers=False)
    moved = [*chain, *outer]
    bounds = [
        abs(nest.src[0]) + sum(loop.extent * abs(loop.src[0]) for loop in moved),
        nest.dst[0] + sum(loop.extent * abs(loop.dst[0]) for loop in moved),
    ]
    access = Access(AccessKind.BUFFER, "b8")
    pattern = Pattern(
        access,
        access,
        (0,),
        tuple(LoopShape(1 if k else shape.steps, dim) for k, dim in enumerate(dims)),
        shape.work_items,
        is_wide=max(bounds) > _MAX_NBYTES,
        rows=Rows(len(chain)),
    )
    whole = PixelLoop(nbytes, nbytes, (0,), (0,))
    shift = shape.work_items.bit_length() - 1
    divisions = tuple(Division(count, 0 if k else shift) for k, count in enumerate(counts))
    values = argument_values(nest._replace(loops=(whole, *outer)), divisions, ())
    row_shift = (row - 1).bit_length() - 1
    # at least 2^31: as a number of 32 bits with a sign it is negative
    inverse = -(-(1 << _WORD + row_shift) // row) - (1 << _WORD)
    values["src_end"] = end_of_src(nest.src[0], moved)
    values |= {"length": row, "inverse": inverse, "row_shift": row_shift}
    for k, loop in enumerate(chain[1:], 1):
        values |= {f"count{k}": loop.extent, f"step{k}": loop.src[0]}
    numbers = tuple(values[name] for name in param_names(pattern))
    return Launch(pattern, numbers, grid_of(counts, dims))
