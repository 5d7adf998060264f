"""Where a tile lies in local memory, so that work items access different banks.

Local memory has 32 banks of words. The work items of a subgroup should access different ones when
they store a tile in the order of src and when they load it in the order of dst. Either higher bits
of the index of a word are added to those of its bank (exclusive or: a swizzle), or, where elements
narrower than a word are accessed one by one, each row has a gap at its end. Conversions store runs
of some rows: their rows have a pitch, and the runs gaps.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reorder.opencl.codegen.pattern import RunTile, Side, Tile

__all__ = ["conflicts", "spread", "spread_runs"]

_WORD, _BANK_BITS, _SUBGROUP = 4, 5, 32


@lru_cache(maxsize=256)
def spread(tile: Tile, work_items: int) -> Tile:
    """Return a tile with the swizzle, or the gap, with which few accesses share a bank."""
    if tile.unit == 1 and tile.nbytes < _WORD:
        gaps = range(0, (1 << _BANK_BITS) * _WORD, _WORD)
        tiles = [tile._replace(gap=gap) for gap in gaps]
        return min(tiles, key=lambda tried: conflicts(_accesses(tried, work_items), {}))
    return tile._replace(swizzle=_swizzle(_accesses(tile, work_items)))


@lru_cache(maxsize=256)
def spread_runs(tile: RunTile, length: int, nbytes: int) -> RunTile:
    """Return a tile with the pitch and the gap with which few accesses share a bank.

    Work items store runs of `length` elements of `nbytes` bytes, and load those of a row.
    """
    step = max(_WORD // nbytes, 1)
    gaps = range(0, (1 << _BANK_BITS) * step, step) if length > 1 else (0,)
    tiles = [tile._replace(pitch=tile.height + more, gap=gap) for more in (0, step) for gap in gaps]
    return min(tiles, key=lambda tried: conflicts(_run_accesses(tried, length, nbytes), {}))


def _run_accesses(tile: RunTile, length: int, nbytes: int) -> tuple[list[int], list[int]]:
    """Return the words that the first work items store first, and those that they load."""
    stored, loaded = [], []
    for item in range(_SUBGROUP):
        row, run = divmod(item, tile.width // length)
        column, chunk = divmod(item, tile.height // tile.length)
        stored.append((run * (length * tile.pitch + tile.gap) + row) * nbytes // _WORD)
        start = column * tile.pitch + column // length * tile.gap + chunk * tile.length
        loaded.append(start * nbytes // _WORD)
    return stored, loaded


def _swizzle(accesses: tuple[list[int], list[int]]) -> tuple[tuple[int, int], ...]:
    """Return (shift, mask) of the bits to add to those of the bank."""
    bits = max(max(words) for words in accesses).bit_length()
    moves: dict[int, int] = {}
    best = conflicts(accesses, moves)
    for bit in range(bits - 1, _BANK_BITS - 1, -1):
        for bank in range(_BANK_BITS):
            tried = moves | {bit: bank}
            cost = conflicts(accesses, tried)
            if cost < best:
                best, moves = cost, tried
    masks: dict[int, int] = {}
    for bit, bank in moves.items():
        masks[bit - bank] = masks.get(bit - bank, 0) | 1 << bank
    return tuple(sorted(masks.items()))


def conflicts(accesses: tuple[list[int], list[int]], moves: dict[int, int]) -> int:
    """Return in how many steps the banks serve both accesses."""
    steps = 0
    for words in accesses:
        banks: dict[int, set[int]] = {}
        for word in words:
            moved = word
            for bit, bank in moves.items():
                moved ^= (word >> bit & 1) << bank
            banks.setdefault(moved & (1 << _BANK_BITS) - 1, set()).add(word)
        steps += max(map(len, banks.values()))
    return steps


def _accesses(tile: Tile, work_items: int) -> tuple[list[int], list[int]]:
    """Return the words that the first work items store first, and those that they load."""
    count = min(work_items, _SUBGROUP)
    stored = [_word(tile, tile.src, item, tile.src_chunks, tile.unit) for item in range(count)]
    loaded = [_word(tile, tile.dst, item, tile.dst_chunks, 1) for item in range(count)]
    return stored, loaded


def _word(tile: Tile, side: Side, item: int, chunks: int, unit: int) -> int:
    """Return the word in local memory of the first element that a work item moves."""
    strides = tile.local_strides
    item, at = divmod(item, chunks)
    at *= side.lanes
    address = 0
    for k in side.run[:-1]:
        at, digit = divmod(at, tile.extents[k])
        address += digit * strides[k]
    address += at * strides[side.run[-1]]
    for k in side.rest:
        scale = unit if k == tile.dst.run[0] else 1
        item, digit = divmod(item, tile.extents[k] // scale)
        address += digit * scale * strides[k]
    return address // _WORD
