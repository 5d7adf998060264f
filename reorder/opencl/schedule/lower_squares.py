"""Boxes that transpose elements of 4 bits to launches: squares of 2 x 2 go through tiles.

Two elements along src in each of two rows are a byte in each of two rows of dst. So the loops along
src and along dst have half the steps, in bytes, and a tile has elements of 16 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.codegen.pattern import Access, AccessKind
from reorder.opencl.schedule.lower import lower_tile
from reorder.opencl.schedule.placement import Lane, PixelLoop, PixelNest
from reorder.plan.passes import src_and_dst

if TYPE_CHECKING:
    from reorder.opencl.schedule.lower import Launch
    from reorder.opencl.schedule.profile import Profile
    from reorder.plan.nodes import Box

__all__ = ["lower_squares"]

# Elements of a side of a square, and of two squares.
_SIDE, _MIN_EXTENT = 2, 4
# The local memory of a kernel on NVIDIA's devices. A row of the profile that was tuned for elements
# of 8 bits takes twice the memory with those of 16.
_MAX_LOCAL_NBYTES = 48 << 10


def lower_squares(
    box: Box, max_work_items: int, profile: Profile, *, is_aligned: bool
) -> Launch | None:
    """Make the launch of a box that consists of squares.

    None if it does not, and None where the launch is faster without tiles.

    Parameters
    ----------
    box : Box
        Of elements of 4 bits that move, between two buffers.
    max_work_items : int
        The largest work-group of the device.
    profile : Profile
        What suits the device.
    is_aligned : bool
        Whether the buffers start at multiples of 16 bytes.
    """
    if box.is_zero or box.lookups:
        return None
    box = src_and_dst(box)
    nodes = [node for node in box.nodes if node.extent > 1 or not node.valid]
    along = [next((n for n in nodes if n.strides[k] == 1), None) for k in range(2)]
    src, dst = along
    if src is None or dst is None or src is dst:
        return None
    counts = [*box.offsets, src.extent, src.valid, src.strides[1]]
    counts += [dst.extent, dst.valid, dst.strides[0]]
    others = [stride for n in nodes if n is not src and n is not dst for stride in n.strides]
    # a step along src or dst moves on by one byte; no other loop may step by one byte
    if any(count % _SIDE for count in (*counts, *others)) or _SIDE in others:
        return None
    if min(src.extent, dst.extent) < _MIN_EXTENT:
        return None
    loops = []
    for node in nodes:
        # two steps along src or dst are one, two elements a byte
        steps = _SIDE if node is src or node is dst else 1
        one, other = (stride * steps // 2 for stride in node.strides)
        loops.append(PixelLoop(node.extent // steps, node.valid // steps, (one,), (other,)))
    one, other = (offset // 2 for offset in box.offsets)
    nest = PixelNest((one,), (other,), (Lane(0, 0, is_valid=True),), tuple(loops))
    rows = dst.strides[0] // 2, src.strides[1] // 2
    access = Access(AccessKind.BUFFER, "b8")
    launch = lower_tile(nest, access, max_work_items, profile, is_aligned=is_aligned, rows=rows)
    tile = None if launch is None else launch.pattern.tile
    return launch if tile is not None and 4 * tile.local_words <= _MAX_LOCAL_NBYTES else None
