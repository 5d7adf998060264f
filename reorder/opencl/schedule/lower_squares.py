"""Boxes that transpose elements of 4 bits to launches: squares of 2 x 2 go through tiles.

Two elements along src in each of two rows are a byte in each of two rows of dst. So the loops along
src and along dst have half the steps, in bytes, and a tile has elements of 16 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.codegen.pattern import Access, AccessKind
from reorder.opencl.schedule.lower import lower_tile
from reorder.opencl.schedule.placement import PixelLoop, place_box
from reorder.plan.passes import src_and_dst

if TYPE_CHECKING:
    from reorder.opencl.schedule.lower import Launch
    from reorder.opencl.schedule.placement import Coords
    from reorder.opencl.schedule.profile import Profile
    from reorder.plan.nodes import Box

__all__ = ["lower_squares"]

# Elements of a side of a square, and of two squares.
_SIDE, _MIN_EXTENT = 2, 4


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
    (nest,) = place_box(src_and_dst(box), (None, None)) or ()
    moving = nest.moving
    src, dst = along = moving.along_src, moving.along_dst
    if src is None or dst is None or src is dst:
        return None
    counts = [
        *nest.src,
        *nest.dst,
        src.extent,
        src.valid,
        *src.dst,
        dst.extent,
        dst.valid,
        *dst.src,
    ]
    others = [stride for loop in moving.others for stride in (*loop.src, *loop.dst)]
    # a step along src or dst moves on by one byte; no other loop may step by one byte
    if any(count % _SIDE for count in (*counts, *others)) or _SIDE in others:
        return None
    if min(src.extent, dst.extent) < _MIN_EXTENT:
        return None
    loops = tuple(
        _of_bytes(loop, _SIDE if any(loop is one for one in along) else 1) for loop in moving.loops
    )
    nest = nest._replace(src=_halved(nest.src), dst=_halved(nest.dst), loops=loops)
    rows = dst.src[0] // 2, src.dst[0] // 2
    access = Access(AccessKind.BUFFER, "b8")
    return lower_tile(nest, access, max_work_items, profile, is_aligned=is_aligned, rows=rows)


def _of_bytes(loop: PixelLoop, steps: int) -> PixelLoop:
    """Return a loop that takes some steps at once, two elements a byte."""
    src, dst = (_halved((stride[0] * steps,)) for stride in (loop.src, loop.dst))
    return PixelLoop(loop.extent // steps, loop.valid // steps, src, dst)


def _halved(offset: Coords) -> Coords:
    return (offset[0] // 2,)
