"""Tiles of a loop nest whose innermost loops in src and in dst differ.

On each side the tile has a run: the loops that are contiguous there, innermost first, until they
fill what a device moves well. A loop may be in both runs. Pure functions of strides and extents.
"""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.opencl.codegen.pattern import Side, Tile
from reorder.opencl.schedule.banks import spread

if TYPE_CHECKING:
    from reorder.opencl.schedule.placement import PixelLoop, PixelNest
    from reorder.opencl.schedule.profile import TileShape

__all__ = ["Chain", "TiledLoops", "chain_of", "choose_tile", "grown"]

_WORD, _VECTOR = 4, 16
_MEMORY = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
# A run has at least as many bytes; shorter ones are faster without local memory.
_MIN_RUN = 16


class TiledLoops(NamedTuple):
    """Loops in the order of work-groups, innermost first, and the tile of them."""

    loops: tuple[PixelLoop, ...]
    tile: Tile
    work_items: int


class Chain(NamedTuple):
    """The loops that are contiguous in an operand, and the steps of each in a tile."""

    run: tuple[int, ...]
    extents: tuple[int, ...]


def choose_tile(
    nest: PixelNest,
    nbytes: int,
    shape: TileShape,
    *,
    is_aligned: bool,
    rows: tuple[int, int] | None = None,
) -> TiledLoops | None:
    """Choose a tile of a nest between two buffers.

    Parameters
    ----------
    nest : PixelNest
        From `place_box`, without gathers.
    nbytes : int
        Of an element.
    shape : TileShape
        Sizes of runs, tiles and work-groups.
    is_aligned : bool
        Whether buffers start at multiples of 16 bytes.
    rows : pair of int, optional
        For elements that have a byte in each of two rows, as in `Tile`: the bytes between the two
        rows of src, and of dst.

    Returns
    -------
    TiledLoops, or None
        None if a run is too short, or the innermost loops are the same.
    """
    loops = sorted(nest.moving.loops, key=lambda loop: abs((loop.src, loop.dst)[shape.order][0]))
    if nest.gathers or not nest.src or nbytes not in _MEMORY:
        return None
    in_row = nbytes if rows is None else 1
    chains = [chain_of(loops, side, limit // in_row) for side, limit in enumerate(shape[:2])]
    src, dst = chains
    if src is None or dst is None or src.run[0] == dst.run[0]:
        return None
    extents = [1] * len(loops)
    for chain in (dst, src):
        for k, extent in zip(chain.run, chain.extents, strict=True):
            extents[k] = max(extents[k], extent)
    if any(prod(extents[k] for k in chain.run) * in_row < _MIN_RUN for chain in chains if chain):
        return None
    grown(extents, loops, (src, dst), shape.nbytes // nbytes)
    unit = _WORD // nbytes if nbytes < _WORD else 1
    first = dst.run[0]
    if first in src.run or extents[first] % unit:
        unit = 1
    strides = [(loop.src[0], loop.dst[0]) for loop in loops]
    start = nest.src[0], nest.dst[0]
    sides = []
    for operand, chain in enumerate((src, dst)):
        steps = [stride[operand] for k, stride in enumerate(strides) if k not in chain.run]
        top = chain.run[-1]
        steps.append(strides[top][operand] * extents[top])
        steps += [] if rows is None else [rows[operand]]
        width = _width([start[operand], *steps], in_row, is_aligned=is_aligned)
        if rows is not None and width < _WORD:
            return None
        width *= nbytes // in_row
        rest = [
            k
            for _, k in sorted((abs(stride[operand]), k) for k, stride in enumerate(strides))
            if extents[k] > 1 and k not in chain.run
        ]
        is_shifted = width < _WORD
        width = max(width, _WORD)
        sides.append(Side(chain.run, tuple(rest), width, width // nbytes, is_shifted))
    tile = Tile(
        tuple(extents),
        nbytes,
        _MEMORY[nbytes],
        unit,
        sides[0],
        sides[1],
        is_paired=rows is not None,
    )
    # elements of a vector should be at constant distances in local memory
    if unit == 1 and nbytes < _WORD and not _is_regular(tile, tile.src):
        is_gathered = _is_regular(tile, tile.dst) and not tile.dst.is_shifted
        tile = tile._replace(is_gathered=is_gathered)
    items = _work_items(tile, shape.work_items)
    return TiledLoops(tuple(loops), spread(tile, items), items)


def _is_regular(tile: Tile, side: Side) -> bool:
    """Whether all vectors of a side have the same strides: each covers whole loops of its run."""
    lanes = side.lanes
    for k in side.run:
        if tile.extents[k] % lanes == 0:
            return True
        if lanes % tile.extents[k]:
            return False
        lanes //= tile.extents[k]
    return False


def chain_of(loops: list[PixelLoop], operand: int, limit: int) -> Chain | None:
    """Return the contiguous loops of an operand until their run has `limit` elements."""
    run: list[int] = []
    extents: list[int] = []
    length = 1
    while length < limit:
        found = [
            k
            for k, loop in enumerate(loops)
            if (loop.src, loop.dst)[operand][0] == length and k not in run and loop.extent > 1
        ]
        if not found:
            break
        loop = loops[found[0]]
        needed = -(-limit // length)
        if loop.extent > needed:
            extent = 1 << (needed - 1).bit_length()
            run.append(found[0])
            extents.append(extent)
            break
        run.append(found[0])
        extents.append(loop.extent)
        length *= loop.extent
        # a run goes on behind whole loops of data only
        if operand == 0 and loop.valid != loop.extent:
            break
    return Chain(tuple(run), tuple(extents)) if run else None


def grown(
    extents: list[int], loops: list[PixelLoop], chains: tuple[Chain, Chain], most: int
) -> None:
    """Enlarge a tile while it has fewer elements than it may: along the runs, then other loops."""
    src, dst = chains
    lower = {*src.run[:-1], *dst.run[:-1]}
    candidates = [src.run[-1], dst.run[-1], *range(len(loops))]
    for k in candidates:
        if k in lower:
            continue
        while extents[k] < loops[k].extent and 2 * prod(extents) <= most:
            extents[k] *= 2


def _width(steps: list[int], nbytes: int, *, is_aligned: bool) -> int:
    """Return the bytes of the widest vector that always starts at a multiple of itself."""
    if not is_aligned:
        return nbytes
    divisor = gcd(_VECTOR, *(step * nbytes for step in steps))
    return max(divisor, nbytes)


def _work_items(tile: Tile, most: int) -> int:
    """Return the work items of a group: a power of two, no more than there are vectors."""
    vectors = max(tile.src_vectors, tile.dst_vectors)
    return max(min(most, 1 << (vectors - 1).bit_length()), 1)
