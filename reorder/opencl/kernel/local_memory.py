"""Tiles in local memory: the loops along their runs, and the banks that work items access.

Local memory has 32 banks of words. The work items of a subgroup should access different banks, both
when they store a tile and when they load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from reorder.opencl.kernel.access import VECTOR
from reorder.opencl.kernel.launch import ceil_log2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from reorder.opencl.kernel.placement import Loop

    # the words that a subgroup stores at the same time, and those that it loads
    Accesses = tuple[list[int], list[int]]

T = TypeVar("T")

_BANK_BITS = 5
BANKS, SUBGROUP = 1 << _BANK_BITS, 32
# local memory that every kernel on NVIDIA's devices may use
MAX_LOCAL_NBYTES = 48 << 10


class Chain(NamedTuple):
    """The loops that form a contiguous run in an operand, and the steps of each in a tile."""

    run: tuple[int, ...]
    extents: tuple[int, ...]


def chain_of(loops: Sequence[Loop], operand: int, limit: int) -> Chain | None:
    """Return the contiguous loops of an operand until their run has `limit` elements."""
    run: list[int] = []
    extents: list[int] = []
    length = 1
    while length < limit:
        steps = (k for k, loop in enumerate(loops) if loop.stride(operand) == length)
        k = next((k for k in steps if k not in run and loops[k].extent > 1), None)
        if k is None:
            break
        loop, needed = loops[k], -(-limit // length)
        run.append(k)
        # of a longer loop, the least power of two that is enough
        extents.append(loop.extent if loop.extent <= needed else 1 << ceil_log2(needed))
        length *= extents[-1]
        # a run continues only after whole loops of data
        if operand == 0 and loop.valid != loop.extent:
            break
    return Chain(tuple(run), tuple(extents)) if run else None


def _conflicts(accesses: Accesses, moves: Mapping[int, int] = {}) -> int:
    """Return the steps in which the banks serve both accesses.

    `moves` are the bits of a word's address, each with the bit of its bank that it is added to.
    """
    steps = 0
    for words in accesses:
        banks: dict[int, set[int]] = {}
        for word in words:
            moved = word
            for bit, bank in moves.items():
                moved ^= (word >> bit & 1) << bank
            banks.setdefault(moved % BANKS, set()).add(word)
        steps += max(map(len, banks.values()))
    return steps


def least_conflicts(tiles: Iterable[T], accesses: Callable[[T], Accesses]) -> T:
    """Return the tile whose accesses take the fewest steps, such as that with the best gap."""
    return min(tiles, key=lambda tile: _conflicts(accesses(tile)))


def best_swizzle(accesses: Accesses) -> tuple[tuple[int, int], ...]:
    """Return (shift, mask) of the address bits to add to those of the bank, for few conflicts."""
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


class LocalLayout(NamedTuple):
    """Where a tile is in local memory: bytes between the steps of each loop, and in total."""

    strides: dict[int, int]
    nbytes: int


def local_layout(
    nbytes: int, run: Iterable[tuple[int, int]], rest: Iterable[tuple[int, int]], gap: int
) -> LocalLayout:
    """Lay out a tile of elements of some bytes; loops come as (loop, steps), innermost first.

    Runs start at multiples of a vector, with `gap` bytes more between them.
    """
    strides, stride = {}, nbytes
    for loop, steps in run:
        strides[loop] = stride
        stride *= steps
    stride = -(-stride // VECTOR) * VECTOR + gap
    for loop, steps in rest:
        strides[loop] = stride
        stride *= steps
    return LocalLayout(strides, stride)


def row_of(index: str, pitch: int, per: int, gap: int) -> str:
    """Return where a row of local memory starts; after each `per` rows there is a gap."""
    return f"{index} * {pitch}{f' + {index} / {per} * {gap}' if gap else ''}"


def offset_of(index: int, digits: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the offset of an index over (steps, stride), innermost first, and the rest of it."""
    offset = 0
    for steps, stride in digits:
        index, digit = divmod(index, steps)
        offset += digit * stride
    return offset, index
