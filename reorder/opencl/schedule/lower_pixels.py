"""Nests between a buffer and an image to launches that go through local memory."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memdesc import DATA_TYPES
from reorder.opencl.codegen.conversion import BETA
from reorder.opencl.codegen.pattern import AccessKind, Pattern
from reorder.opencl.schedule.lower import bits_of, tile_launch
from reorder.opencl.schedule.pixel_tiles import choose_pixel_tile

if TYPE_CHECKING:
    from reorder.opencl.codegen.conversion import Conversion
    from reorder.opencl.codegen.pattern import Access
    from reorder.opencl.schedule.conversions import ConversionSpec
    from reorder.opencl.schedule.lower import Launch
    from reorder.opencl.schedule.placement import PixelNest
    from reorder.opencl.schedule.profile import Profile

__all__ = ["lower_pixels"]

_LANES, _WORD = 4, 32
# The loop behind the lanes of a pixel is short, if it has fewer steps.
_SHORT = 8


def lower_pixels(
    nest: PixelNest,
    accesses: tuple[Access, Access],
    max_work_items: int,
    profile: Profile,
    spec: ConversionSpec | None,
) -> Launch | None:
    """Make the launch of tiles of pixels; None where work items move pixels without them.

    Buffers start at multiples of 16 bytes. `spec` says what is computed, if anything.
    """
    kinds = [access.kind for access in accesses]
    if nest.is_zero or kinds[0] == kinds[1]:
        return None
    if spec is not None and not _converts_alone(nest, spec.conversion):
        return None
    image = kinds.index(AccessKind.IMAGE)
    shape = (profile.unpack_pixels, profile.pack_pixels)[image]
    nbytes = bits_of(accesses[1 - image].element) // 8
    moved = prod(loop.extent for loop in nest.loops) * _LANES * nbytes
    if moved < profile.min_tiled or max_work_items < shape.work_items:
        return None
    tiled = choose_pixel_tile(nest, nbytes, image, shape)
    if tiled is None:
        return None
    loops, tile = tiled
    if spec is not None and tile.has_whole_pixels:
        # a work item loads and stores the lanes of a pixel as one vector, and computes meanwhile;
        # but f32 of nChw16c into f16 ran at 0.94 of the copy of an H200 in tiles, at 0.84 without
        runs = [loops[k].extent for k in tile.run[1:]]
        if image == 0 or spec.conversion.dst != "f16" or (runs and runs[0] >= _SHORT):
            return None
    pattern = Pattern(*accesses, (0, 1, 2, 3), (), shape.work_items, pixel_tile=tile)
    if spec is not None:
        pattern = pattern._replace(conversion=spec.conversion)
    return tile_launch(nest._replace(loops=loops), pattern, tile.extents, spec)


def _converts_alone(nest: PixelNest, conversion: Conversion) -> bool:
    """Whether an element of dst is computed of one of src alone, in 32 bits, without padding."""
    bits = max(DATA_TYPES[name].bits for name in (conversion.src, conversion.dst))
    is_whole = all(loop.valid == loop.extent for loop in nest.loops)
    return is_whole and bits <= _WORD and not conversion.varying and BETA not in conversion.roles
