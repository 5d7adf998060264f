"""Tiles of a loop nest between a buffer and an image.

The buffer wants vectors along its contiguous loops, the image small rectangles of columns and
rows, which devices store together. A tile has both; local memory is between them.
"""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.opencl.codegen.pixels import LANES, PixelTile
from reorder.opencl.schedule.banks import conflicts
from reorder.opencl.schedule.placement import PixelLoop
from reorder.opencl.schedule.tiles import chain_of

if TYPE_CHECKING:
    from reorder.opencl.schedule.placement import PixelNest
    from reorder.opencl.schedule.profile import PixelShape
    from reorder.opencl.schedule.tiles import Chain

__all__ = ["choose_pixel_tile"]

_VECTOR, _WORD, _SUBGROUP = 16, 4, 32
_LANES = 4
# bytes of a run that is worth local memory, and of the local memory of every device
_MIN_RUN, _MAX_LOCAL = 32, 32768
# pixels that a work item holds at once
_MAX_STEPS = 16


class _Sides(NamedTuple):
    """The loops of a nest, innermost first in dst, and the chains of a tile of them.

    `strides` are those of the loops in the buffer, then that of the lanes; `rows` are the loops
    along the rows of the image.
    """

    loops: tuple[PixelLoop, ...]
    strides: tuple[int, ...]
    run: Chain
    rectangle: tuple[Chain, ...]
    rows: tuple[int, ...]


def choose_pixel_tile(
    nest: PixelNest, nbytes: int, image: int, shape: PixelShape
) -> tuple[tuple[PixelLoop, ...], PixelTile] | None:
    """Choose a tile of a nest between an image and a buffer that starts at a multiple of 16 bytes.

    Parameters
    ----------
    nest : PixelNest
        From `place_box`, of which one operand is an image.
    nbytes : int
        Of an element.
    image : int
        Which operand is the image: 0 is src, 1 dst.
    shape : PixelShape
        Sizes of runs, rectangles and tiles.

    Returns
    -------
    tuple of loops and a tile, or None
        The loops in the order of work-groups, innermost first. None if a lane holds no data, the
        runs of the buffer are short or not made of vectors, or the least tile is too large.
    """
    sides = _sides(nest, nbytes, image, shape)
    if sides is None:
        return None
    extents = _extents(sides, shape.nbytes // (_LANES * nbytes))
    # the lanes come behind the loops
    lanes = len(extents)
    run = tuple(LANES if k == lanes else k for k in sides.run.run)
    inside = [k for k in range(lanes) if extents[k] > 1 and k not in run]
    inside += [] if LANES in run else [LANES]
    rest = tuple(sorted(inside, key=lambda k: abs(sides.strides[k])))
    tile = PixelTile(tuple(extents), nbytes, run, rest, nbytes, _order(extents, sides.rectangle))
    start = (nest.dst, nest.src)[image][0]
    tile = tile._replace(vector=_vector(tile, sides, start, image))
    is_short = tile.chunks * tile.vector < _MIN_RUN or tile.vector < _WORD
    is_large = tile.pixels > _MAX_STEPS * shape.work_items
    if is_short or is_large or tile.local_vectors * _VECTOR > _MAX_LOCAL:
        return None
    return sides.loops, _spread(tile)


def _sides(nest: PixelNest, nbytes: int, image: int, shape: PixelShape) -> _Sides | None:
    """Return the loops and chains of a nest; None if there is no run, or a lane without data."""
    places = [(lane.src, lane.dst) for lane in nest.lanes if lane.is_valid]
    step = places[1][1 - image] - places[0][1 - image] if len(places) == _LANES else 0
    wanted = [(k, k * step) for k in range(_LANES)]
    found = sorted((place[image], place[1 - image]) for place in places)
    if step <= 0 or found != wanted or nest.gathers:
        return None
    loops = sorted(nest.moving.loops, key=lambda loop: tuple(map(abs, reversed(loop.dst))))
    lanes = PixelLoop(_LANES, _LANES, (step,), (step,))
    run = chain_of([*loops, lanes], 1 - image, shape.run // nbytes)
    if run is None:
        return None
    strides = (*((loop.dst, loop.src)[image][0] for loop in loops), step)
    # a chain is along the first coordinate
    swapped = [loop._replace(src=loop.src[::-1], dst=loop.dst[::-1]) for loop in loops]
    edges = _edge(loops, image, shape.columns), _edge(swapped, image, shape.rows)
    rows = sorted(((loop.src, loop.dst)[image][0], k) for k, loop in enumerate(swapped))
    rectangle = tuple(chain for chain in edges if chain is not None)
    return _Sides(tuple(loops), strides, run, rectangle, tuple(k for stride, k in rows if stride))


def _edge(loops: list[PixelLoop], image: int, limit: int) -> Chain | None:
    """Return the loops along an edge of a rectangle; no part of one is outside if that can be."""
    chain = chain_of(loops, image, limit)
    if chain is None:
        return None
    *lower, top = chain.extents
    divisor = gcd(top, loops[chain.run[-1]].extent)
    return chain._replace(extents=(*lower, divisor if divisor > 1 else top))


def _extents(sides: _Sides, most: int) -> list[int]:
    """Return the steps of each loop in a tile of at most `most` pixels, or of the least tile."""
    loops = sides.loops
    extents = [1] * len(loops)
    chains = (sides.run, *sides.rectangle)
    for chain in chains:
        for k, extent in zip(chain.run, chain.extents, strict=True):
            # not the lanes
            if k < len(loops):
                extents[k] = max(extents[k], min(extent, loops[k].extent))
    whole = {k for chain in chains for k in chain.run[:-1]}
    for k in (*sides.rows, sides.run.run[-1], *range(len(loops))):
        if k in whole or k == len(loops):
            continue
        while extents[k] < loops[k].extent and 2 * prod(extents) <= most:
            extents[k] = min(2 * extents[k], loops[k].extent)
    return extents


def _order(extents: list[int], rectangle: tuple[Chain, ...]) -> tuple[tuple[int, int], ...]:
    """Return the order of the pixels of a tile: a rectangle of the image, then all others."""
    left = list(extents)
    order = []
    for chain in rectangle:
        for k, extent in zip(chain.run, chain.extents, strict=True):
            steps = gcd(left[k], extent)
            steps = left[k] if steps == 1 else steps
            order.append((k, steps))
            left[k] //= steps
    order += enumerate(left)
    return tuple((k, steps) for k, steps in order if steps > 1)


def _vector(tile: PixelTile, sides: _Sides, start: int, image: int) -> int:
    """Return the bytes of the widest vector at whose multiples everything starts and ends."""
    *lower, top = tile.run
    below = prod(map(tile.steps, lower))
    ends = [below * tile.steps(top)]
    if top != LANES:
        loop = sides.loops[top]
        ends.append(below * (loop.extent if image == 0 else loop.valid))
    steps = [sides.strides[k] for k in range(len(sides.loops)) if k not in tile.run]
    steps += [sides.strides[LANES]] if LANES in tile.rest else []
    return gcd(_VECTOR, *(number * tile.nbytes for number in (start, *steps, *ends)))


def _spread(tile: PixelTile) -> PixelTile:
    """Return a tile with the gap between runs with which few accesses share a bank."""
    step = max(tile.vector, _LANES * tile.nbytes if tile.has_whole_pixels else _WORD)
    tried = [tile._replace(gap=gap) for gap in range(0, 32 * _WORD, step)]
    return min(tried, key=lambda one: conflicts(_accesses(one), {}))


def _accesses(tile: PixelTile) -> tuple[list[int], list[int]]:
    """Return the words of the first vectors of the runs, and of the first pixels."""
    strides = tile.local_strides
    vectors, pixels = [], []
    for item in range(_SUBGROUP):
        left, at = divmod(item, tile.chunks)
        at *= tile.vector
        for k in tile.rest:
            left, digit = divmod(left, tile.steps(k))
            at += digit * strides[k]
        vectors.append(at // _WORD)
        left, at = item, 0
        scales: dict[int, int] = {}
        for k, steps in tile.order:
            left, digit = divmod(left, steps)
            at += digit * scales.get(k, 1) * strides[k]
            scales[k] = scales.get(k, 1) * steps
        pixels.append(at // _WORD)
    return vectors, pixels
