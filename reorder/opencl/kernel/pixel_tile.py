"""A family of kernels that moves tiles between a buffer and an image through local memory.

A buffer is best accessed in vectors along its contiguous loops, an image in small rectangles of
columns and rows, which devices store together. A tile allows both: work items move vectors along
the runs of the buffer, and pixels in the order in which the image stores them.
"""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING

from memdesc.banks import BANKS
from memdesc.tuples import NamedTuple
from reorder.opencl.kernel.access import PIXEL_LANES, WORD, Mode
from reorder.opencl.kernel.launch import KernelTask, Launch, Pattern, lower_nest, tiled
from reorder.opencl.kernel.placement import Chain, Loop, Nest, chain_of
from reorder.opencl.kernel.staged import (
    LANES,
    LocalLayout,
    Pixels,
    Staged,
    runs_of,
    without_bank_conflicts,
)
from reorder.values.binding import BETA

if TYPE_CHECKING:
    from reorder.opencl.kernel.formula import KernelFormula

# bits of the widest element that is converted
_MAX_BITS = 32
# bytes of a run that is worth local memory
_MIN_RUN = 32
# most pixels that a work item holds at once
_MAX_STEPS = 16


class PixelShape(NamedTuple):
    """A tile: bytes of a run of the buffer and of the tile, and the work items of its group.

    Adjacent work items take a rectangle of `columns` and `rows` of the image.
    """

    run: int
    columns: int
    rows: int
    nbytes: int
    work_items: int


# the tiles that pack an image, and that unpack one
_PACK, _UNPACK = PixelShape(128, 4, 2, 4608, 128), PixelShape(256, 4, 2, 9216, 256)


def try_lower(task: KernelTask) -> tuple[Launch, ...]:
    """Make the launch of tiles of pixels; empty if work items should move pixels without them."""
    nest, conversion = task.nest, task.conversion
    modes = [access.mode for access in task.accesses]
    if conversion is None or not nest.is_plain or modes[0] == modes[1]:
        return ()
    if task.converts and not _converts_alone(nest, conversion):
        return ()
    image = modes.index(Mode.IMAGE)
    shape = _PACK if image else _UNPACK
    nbytes = task.accesses[1 - image].nbytes
    if (
        nest.steps * PIXEL_LANES * nbytes < task.device.min_tiled
        or task.device.max_work_items < shape.work_items
    ):
        return ()
    chosen = _choose_tile(task, image, shape)
    if chosen is None:
        return ()
    loops, tile = chosen
    pattern = Pattern(*task.accesses, tile, shape.work_items, conversion, (0, 1, 2, 3))
    nest = nest._replace(loops=loops)
    return (lower_nest(nest, pattern, tiled(loops, tile.extents), task.numbers),)


def _converts_alone(nest: Nest, conversion: KernelFormula) -> bool:
    """Whether each element of dst depends on one of src alone, in 32 bits, without padding."""
    is_whole = all(loop.valid == loop.extent for loop in nest.loops)
    is_narrow = max(conversion.widths) <= _MAX_BITS
    return is_whole and is_narrow and not conversion.varying and BETA not in conversion.roles


class _Sides(NamedTuple):
    """The loops of a nest, innermost first in dst, and the chains of a tile of them.

    `step` is the stride of the lanes in the buffer; `rows` are the loops along the rows of the
    image.
    """

    loops: tuple[Loop, ...]
    step: int
    run: Chain
    rectangle: tuple[Chain, ...]
    rows: tuple[int, ...]


def _choose_tile(
    task: KernelTask, image: int, shape: PixelShape
) -> tuple[tuple[Loop, ...], Staged] | None:
    """Return loops in the order of work-groups, innermost first, and a tile of them.

    `image` is the operand that is one. None if a lane holds no data, the runs of the buffer are
    short, or the least tile is too large.
    """
    access = task.accesses[1 - image]
    sides = _sides(task.nest, access.nbytes, image, shape)
    if sides is None:
        return None
    loops = sides.loops
    extents = _extents(sides, shape.nbytes // (PIXEL_LANES * access.nbytes))
    # the lanes come after the loops
    lanes = Loop(PIXEL_LANES, PIXEL_LANES, ((sides.step,), (sides.step,)))
    every, steps = (*loops, lanes), [*extents, PIXEL_LANES]
    nest = task.nest._replace(loops=every)
    buffer = runs_of(nest, 1 - image, sides.run.run, steps, access.bits)
    run, rest = (
        tuple(LANES if k == len(loops) else k for k in side) for side in (buffer.run, buffer.rest)
    )
    buffer = buffer._replace(run=run, rest=rest)
    pixels = Pixels(_order(extents, sides.rectangle))
    local = LocalLayout(access.nbytes)
    tile = (
        Staged(tuple(extents), buffer, pixels, "src", local)
        if image
        else Staged(tuple(extents), pixels, buffer, "dst", local)
    )
    length = prod(steps[k] for k in buffer.run) * access.nbytes
    if length < _MIN_RUN or prod(extents) > _MAX_STEPS * shape.work_items:
        return None
    step = max(buffer.nbytes, PIXEL_LANES * access.nbytes if run[0] == LANES else WORD)
    paddings = tuple((padding, 0) for padding in range(0, BANKS * WORD, step))
    tile = without_bank_conflicts(tile, shape.work_items, paddings)
    return None if tile.local_nbytes > task.device.max_local else (loops, tile)


def _sides(nest: Nest, nbytes: int, image: int, shape: PixelShape) -> _Sides | None:
    """Return the loops and chains of a nest; None if there is no run, or a lane without data."""
    places = [lane.offsets for lane in nest.lanes if lane.is_valid]
    step = places[1][1 - image] - places[0][1 - image] if len(places) == PIXEL_LANES else 0
    wanted = [(k, k * step) for k in range(PIXEL_LANES)]
    lanes_at = sorted((place[image], place[1 - image]) for place in places)
    if step <= 0 or lanes_at != wanted:
        return None
    loops = sorted(nest.moving.loops, key=lambda loop: tuple(map(abs, reversed(loop.strides[1]))))
    lanes = Loop(PIXEL_LANES, PIXEL_LANES, ((step,), (step,)))
    run = chain_of([*loops, lanes], 1 - image, shape.run // nbytes)
    if run is None:
        return None
    # a chain is along the first coordinate
    swapped = [
        loop._replace(strides=tuple(coords[::-1] for coords in loop.strides)) for loop in loops
    ]
    edges = _edge(loops, image, shape.columns), _edge(swapped, image, shape.rows)
    rows = sorted((loop.stride(image), k) for k, loop in enumerate(swapped))
    rectangle = tuple(chain for chain in edges if chain is not None)
    return _Sides(tuple(loops), step, run, rectangle, tuple(k for stride, k in rows if stride))


def _edge(loops: list[Loop], image: int, limit: int) -> Chain | None:
    """Return the loops along an edge of a rectangle; its parts divide the image if they can."""
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
    """Return the order of the pixels of a tile: a rectangle of the image, then the rest."""
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
