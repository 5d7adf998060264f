"""Nests of rows that start at any byte to launches: work items store aligned vectors of dst."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from reorder.opencl.codegen.params import param_names
from reorder.opencl.codegen.pattern import LoopShape, Pattern, Rows
from reorder.opencl.schedule.arguments import Division, argument_values
from reorder.opencl.schedule.lower import MAX_INT, Launch, grid_dims, grid_of
from reorder.opencl.schedule.placement import PixelLoop

if TYPE_CHECKING:
    from reorder.opencl.codegen.pattern import Access
    from reorder.opencl.schedule.placement import PixelNest
    from reorder.opencl.schedule.profile import Profile

__all__ = ["lower_rows"]

_BYTE, _VECTOR = 8, 16
# Bytes of the widest element; wider ones are moved one by one as fast.
_MAX_ELEMENT = 4
# Bytes that follow one another in dst: of less, too much is written element by element.
_MIN_NBYTES = 1 << 10
_WORK_ITEMS, _STEPS = 256, 4
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
    loops = [loop for loop in nest.loops if loop.extent > 1 or not loop.valid]
    if nest.gathers or not is_aligned or max_work_items < _WORK_ITEMS or nbytes > _MAX_ELEMENT:
        return None
    if nest.is_zero or any(loop.valid != loop.extent for loop in loops):
        return None
    if prod(loop.extent for loop in loops) * nbytes < profile.min_tiled:
        return None
    chain = _chain(loops)
    length = prod(loop.extent for loop in chain)
    if not chain or chain[0].src[0] != 1 or chain[0].extent * nbytes < _VECTOR:
        return None
    if not _MIN_NBYTES <= length * nbytes <= MAX_INT - _WORK_ITEMS * _STEPS * _VECTOR:
        return None
    unit = PixelLoop(1, 1, (0,), (0,))
    outer = [loop for loop in loops if all(loop is not taken for taken in chain)]
    outer += [unit] * (_MIN_LOOPS - 1 - len(outer))
    loops = [PixelLoop(length, length, (0,), (0,)), *outer]
    # one vector more, where dst does not start at a vector
    vectors = -(-(length * nbytes + _VECTOR - nbytes) // _VECTOR)
    shift = _WORK_ITEMS.bit_length() - 1
    counts = [-(-vectors // (_WORK_ITEMS * _STEPS)), *(loop.extent for loop in outer)]
    dims = grid_dims(counts, has_gathers=False)
    last = nest.src[0] + sum((loop.extent - 1) * max(loop.src[0], 0) for loop in (*chain, *outer))
    bound = sum(loop.extent * abs(loop.src[0]) for loop in (*chain, *outer))
    bound = max(
        bound + abs(nest.src[0]),
        nest.dst[0] + length + sum(loop.extent * abs(loop.dst[0]) for loop in outer),
    )
    pattern = Pattern(
        access,
        access,
        (0,),
        tuple(LoopShape(1 if k else _STEPS, dim) for k, dim in enumerate(dims)),
        _WORK_ITEMS,
        is_wide=bound + 4 * _VECTOR > MAX_INT,
        rows=Rows(len(chain), nbytes),
    )
    divisions = [Division(count, 0 if k else shift) for k, count in enumerate(counts)]
    values = argument_values(nest._replace(loops=tuple(loops)), tuple(divisions), ())
    values |= {"length": chain[0].extent, "src_end": last + 1}
    for k, loop in enumerate(chain[1:], 1):
        values |= {f"count{k}": loop.extent, f"step{k}": loop.src[0]}
    numbers = tuple(values[name] for name in param_names(pattern))
    return Launch(pattern, numbers, grid_of(counts, dims))


def _chain(loops: list[PixelLoop]) -> list[PixelLoop]:
    """Return the loops that follow one another in dst, innermost first."""
    chain: list[PixelLoop] = []
    length = 1
    while True:
        found = next((loop for loop in loops if loop.dst[0] == length and loop.extent > 1), None)
        if found is None:
            return chain
        chain.append(found)
        length *= found.extent
