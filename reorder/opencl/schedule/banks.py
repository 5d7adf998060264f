"""Swizzling: which bits of the index of a word in local memory choose its bank.

Local memory has 32 banks of words, and the work items of a subgroup should access different ones,
when they store a tile in the order of src and when they load it in the order of dst. Higher bits
of an index are added to those of the bank (exclusive or), so that both hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reorder.opencl.codegen.pattern import Tile

__all__ = ["swizzle_of"]

_WORD, _BANK_BITS, _SUBGROUP = 4, 5, 32


def swizzle_of(tile: Tile, work_items: int) -> tuple[tuple[int, int], ...]:
    """Return (shift, mask) of the bits to add, such that few accesses share a bank."""
    accesses = _stored_words(tile, work_items), _loaded_words(tile, work_items)
    bits = max(max(words) for words in accesses).bit_length()
    moves: dict[int, int] = {}
    best = _conflicts(accesses, moves)
    for bit in range(bits - 1, _BANK_BITS - 1, -1):
        for bank in range(_BANK_BITS):
            tried = moves | {bit: bank}
            cost = _conflicts(accesses, tried)
            if cost < best:
                best, moves = cost, tried
    masks: dict[int, int] = {}
    for bit, bank in moves.items():
        masks[bit - bank] = masks.get(bit - bank, 0) | 1 << bank
    return tuple(sorted(masks.items()))


def _conflicts(accesses: tuple[list[int], list[int]], moves: dict[int, int]) -> int:
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


def _stored_words(tile: Tile, work_items: int) -> list[int]:
    """Return the words that the first work items store first."""
    strides = tile.local_strides
    unit_loop = tile.dst.run[0]
    words = []
    for item in range(min(work_items, _SUBGROUP)):
        rest, at = divmod(item, tile.src_chunks)
        at *= tile.src.lanes
        address = 0
        for k in tile.src.run:
            at, digit = divmod(at, tile.extents[k])
            address += digit * strides[k]
        for k in tile.src.rest:
            scale = tile.unit if k == unit_loop else 1
            rest, digit = divmod(rest, tile.extents[k] // scale)
            address += digit * scale * strides[k]
        words.append(address // _WORD)
    return words


def _loaded_words(tile: Tile, work_items: int) -> list[int]:
    """Return the words that the first work items load first."""
    strides = tile.local_strides
    words = []
    for item in range(min(work_items, _SUBGROUP)):
        rest, chunk = divmod(item, tile.dst_chunks)
        address = chunk * tile.dst.nbytes
        for k in tile.dst.rest:
            rest, digit = divmod(rest, tile.extents[k])
            address += digit * strides[k]
        words.append(address // _WORD)
    return words
