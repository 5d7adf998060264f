"""Tiles in local memory: the loops along their runs, and the banks that work items access.

Local memory has 32 banks of words. The work items of a subgroup should access different banks, both
when they store a tile and when they load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from memdesc.banks import bank_steps
from reorder.opencl.kernel.launch import ceil_log2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from reorder.opencl.kernel.placement import Loop

    # the words that a subgroup stores at the same time, and those that it loads
    BankWords = tuple[list[int], list[int]]

T = TypeVar("T")

_BANK_BITS = 5
SUBGROUP = 32
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


def _conflicts(accesses: BankWords, moves: Mapping[int, int] = {}) -> int:
    """Return the steps in which the banks serve both accesses.

    `moves` are the bits of a word's address, each with the bit of its bank that it is added to.
    """
    return sum(bank_steps(_moved(word, moves) for word in words) for words in accesses)


def _moved(word: int, moves: Mapping[int, int]) -> int:
    moved = word
    for bit, bank in moves.items():
        moved ^= (word >> bit & 1) << bank
    return moved


def least_conflicts(tiles: Iterable[T], accesses: Callable[[T], BankWords]) -> T:
    """Return the tile whose accesses take the fewest steps, such as that with the best gap."""
    return min(tiles, key=lambda tile: _conflicts(accesses(tile)))


def best_swizzle(accesses: BankWords) -> tuple[tuple[int, int], ...]:
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
    """Where a tile is in local memory.

    `element` has the bytes of an element, `strides` those between the steps of each loop, and then
    of the lanes of a pixel. After each `gap_steps` steps of a loop, `gap` more bytes follow.
    `swizzle` has the (shift, mask) that move words between banks.
    """

    element: int
    strides: tuple[int, ...] = ()
    nbytes: int = 0
    gap: int = 0
    gap_loop: int = 0
    gap_steps: int = 1
    swizzle: tuple[tuple[int, int], ...] = ()

    def offset(self, loop: int, index: int) -> int:
        """Return the bytes from the start of the tile to a step of a loop."""
        gap = self.gap if loop == self.gap_loop else 0
        return index * self.strides[loop] + index // self.gap_steps * gap

    def terms(self, loop: int, index: str) -> list[str]:
        """Return the expressions whose sum is the `offset` of a step of a loop."""
        gaps = self.gap and loop == self.gap_loop
        more = [f"{index} / {self.gap_steps} * {self.gap}"] if gaps else []
        return [f"{index} * {self.strides[loop]}", *more]
