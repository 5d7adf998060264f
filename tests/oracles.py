"""The meaning of layouts in plain Python loops, which share no code with memdesc."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memdesc import MemoryDesc

__all__ = ["Digits", "offsets", "positions"]

# a digit: letters, step, extent; None is the outer digit, which counts whole steps
Digits = list[tuple[str, int, int | None]]


def offsets(desc: MemoryDesc) -> dict[tuple[int, ...], int]:
    """Return the offset of every padded index, one index per axis, by the formula of blocks."""
    found = {}
    for index in product(*(range(axis.padded) for axis in desc.axes)):
        found[index] = desc.offset0 + sum(
            index[b.axis] // b.step % b.extent * b.stride for b in desc.blocks
        )
    return found


def positions(
    digits: Sequence[tuple[str, int, int | None]], sizes: dict[str, int], padded: dict[str, int]
) -> Iterator[tuple[int, dict[str, int]]]:
    """Visit memory from its first element on: yield each position and its index by letter.

    A digit is (letters, step, extent), outermost first; extent None counts whole steps of
    the padded extent. Several letters are one row-major index. Padding is left out.
    """
    counts = [extent or padded[letters] // step for letters, step, extent in digits]
    for position, values in enumerate(product(*map(range, counts))):
        index = dict.fromkeys(padded, 0)
        for (letters, step, _), value in zip(digits, values, strict=True):
            index[letters] += value * step
        if all(i < prod(sizes[letter] for letter in letters) for letters, i in index.items()):
            for letters in [fused for fused in index if len(fused) > 1]:
                i = index.pop(letters)
                for letter in reversed(letters):
                    i, index[letter] = divmod(i, sizes[letter])
            yield position, index
