"""Nests that transpose rows which start at any byte to launches: tiles with skewed ends."""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING

from reorder.opencl.codegen.pattern import Pattern
from reorder.opencl.codegen.row_shapes import Skewed
from reorder.opencl.schedule.lower import MAX_LOCAL_NBYTES, tile_launch
from reorder.opencl.schedule.workgroups import floor_log2

if TYPE_CHECKING:
    from reorder.opencl.codegen.pattern import Access
    from reorder.opencl.schedule.lower import Launch
    from reorder.opencl.schedule.placement import PixelNest
    from reorder.opencl.schedule.profile import Profile, SkewedShape

__all__ = ["lower_skewed"]

_BYTE, _WORD, _VECTOR, _BANKS = 8, 4, 16, 32
# The row of a profile for the bytes of an element.
_ROWS = {1: 0, 2: 1, 4: 2}
# Bytes of a row of src and of dst, below which tiles would be mostly empty.
_MIN_ROW = 96


def lower_skewed(
    nest: PixelNest, access: Access, max_work_items: int, profile: Profile, *, is_aligned: bool
) -> Launch | None:
    """Make the launch of a nest that transposes between two buffers.

    None where tiles of whole vectors do, or rows are short.

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
    if nbytes not in _ROWS or nest.gathers or not is_aligned:
        return None
    shape = profile.skewed[_ROWS[nbytes]]
    moving = nest.moving
    loops, along_src, along_dst = moving
    total = prod(loop.extent for loop in loops) * nbytes
    if along_src is None or along_dst is None or total < profile.min_tiled:
        return None
    shortest = min(along_src.extent, along_dst.extent) * nbytes
    if nest.is_zero or along_src is along_dst or shortest < _MIN_ROW:
        return None
    outer = moving.others
    nest = nest._replace(loops=(along_dst, along_src, *outer))
    starts = [_is_aligned(nest, operand, nbytes) for operand in range(2)]
    if all(starts):
        return None
    tile = _tile(shape, nbytes, is_skewed=not starts[1])
    # rows of dst end at multiples of `align` in all tiles only if a tile has whole ones
    is_whole = not tile.align or shape.height * nbytes % tile.align == 0
    if shape.work_items > max_work_items or 4 * tile.local_words > MAX_LOCAL_NBYTES or not is_whole:
        return None
    pattern = Pattern(access, access, (0,), (), shape.work_items, skewed=tile)
    return tile_launch(nest, pattern, (tile.height, tile.width, *(1 for _ in outer)))


def _is_aligned(nest: PixelNest, operand: int, nbytes: int) -> bool:
    """Whether all rows of src or of dst start at multiples of a vector."""
    (start,) = (nest.src, nest.dst)[operand]
    # rows of src run along the second loop, those of dst along the first one
    steps = [
        (loop.src, loop.dst)[operand][0] for k, loop in enumerate(nest.loops) if k != 1 - operand
    ]
    return gcd(_VECTOR, start * nbytes, *(step * nbytes for step in steps)) == _VECTOR


def _tile(shape: SkewedShape, nbytes: int, *, is_skewed: bool) -> Skewed:
    """Return a tile that lies in local memory so that work items access different banks."""
    align = 1 << floor_log2(shape.align) if is_skewed else 0
    tile = Skewed(shape.width, shape.height, nbytes, align, 0)
    lanes = _VECTOR // nbytes
    # an odd pitch, and a word to read beyond the end
    pitch = tile.rows * nbytes // _WORD + 1 | 1
    if nbytes == _WORD:
        return tile._replace(pitch=pitch)
    # vectors of a row of src are that many banks apart, and units of rows are between them
    apart = max(_BANKS * lanes // shape.width, 1)
    return tile._replace(pitch=pitch, gap=(apart - lanes * pitch) % _BANKS)
