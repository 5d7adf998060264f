"""Box and Node: a reorder as plain loop nests over its operands.

For every index of a box's nest: if all i_k < valid_k, dst gets src's element, else
dst gets 0. Offsets and strides are in elements, one per operand: src, dst, then the
scales and zero points that differ along the dims.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import Axis, Block

__all__ = ["NOWHERE", "Box", "Lookup", "Node"]

# The offset in src of what has no element there; others may be negative, relative to their box.
NOWHERE = -(2**63)


class Node(NamedTuple):
    """One loop: `extent` steps of `strides`, of which the first `valid` hold data."""

    extent: int
    valid: int
    strides: tuple[int, ...]

    def __str__(self) -> str:
        part = "" if self.valid == self.extent else f"({self.valid})"
        return f"{self.extent}{part}:{':'.join(map(str, self.strides))}"


class Lookup(NamedTuple):
    """One loop whose offsets follow no stride: blocks that do not divide each other.

    The loop runs over the padded indices of dst's axes, row-major; src has no element
    where one of them is padding. Axes and blocks are those of the layouts, over the
    dims of `sizes`, so a lookup of any extent is a small value.
    """

    sizes: tuple[tuple[int, int], ...]
    src: tuple[tuple[Axis, tuple[Block, ...]], ...]
    dst: tuple[tuple[Axis, tuple[Block, ...]], ...]
    others: tuple[tuple[tuple[Axis, tuple[Block, ...]], ...], ...] = ()

    @property
    def extent(self) -> int:
        """Number of steps."""
        return prod(axis.padded for axis, _ in self.dst)

    def tables(self, start: int, stop: int) -> tuple[NDArray[np.int64], ...]:
        """Return the offsets of all operands for some steps; `NOWHERE` in src where dst is padding."""
        sizes = dict(self.sizes)
        rest = np.arange(start, stop, dtype=np.int64)
        to = np.zeros_like(rest)
        is_padding = np.zeros(rest.shape, np.bool_)
        index = {}
        for axis, blocks in reversed(self.dst):
            rest, i = np.divmod(rest, axis.padded)
            to += _offsets(blocks, i)
            is_padding |= i >= prod(sizes[dim] for dim in axis.dims)
            for dim in reversed(axis.dims):
                i, index[dim] = np.divmod(i, sizes[dim])
        source, *others = (_side_offsets(side, sizes, index) for side in (self.src, *self.others))
        source[is_padding] = NOWHERE
        return source, to, *others

    def __str__(self) -> str:
        sides = [
            " ".join(_axis_text(axis, blocks) for axis, blocks in side)
            for side in (self.src, self.dst, *self.others)
        ]
        return f"[{self.extent}: {' -> '.join(sides)}]"


class Box(NamedTuple):
    """A loop nest: where it starts in each operand, its lookups, its nodes, outermost first."""

    offsets: tuple[int, ...]
    nodes: tuple[Node, ...]
    lookups: tuple[Lookup, ...] = ()

    @property
    def is_zero(self) -> bool:
        """Whether the box only writes zeros."""
        return any(node.valid == 0 for node in self.nodes)

    @property
    def size(self) -> int:
        """Number of elements that the box writes."""
        return prod(loop.extent for loop in self.lookups) * prod(node.extent for node in self.nodes)

    def __str__(self) -> str:
        return " ".join(
            [f"@{':'.join(map(str, self.offsets))}", *map(str, self.lookups), *map(str, self.nodes)]
        )


def _side_offsets(
    side: tuple[tuple[Axis, tuple[Block, ...]], ...],
    sizes: dict[int, int],
    index: dict[int, NDArray[np.int64]],
) -> NDArray[np.int64]:
    """Return the offsets of one operand for given indices of the dims."""
    total = np.zeros_like(next(iter(index.values())))
    for axis, blocks in side:
        i = np.zeros_like(total)
        for dim in axis.dims:
            i = i * sizes[dim] + index[dim]
        total += _offsets(blocks, i)
    return total


def _offsets(blocks: tuple[Block, ...], i: NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = np.zeros_like(i)
    outermost = max(block.step for block in blocks)
    for block in blocks:
        digit = i // block.step
        offsets += (digit if block.step == outermost else digit % block.extent) * block.stride
    return offsets


def _axis_text(axis: Axis, blocks: tuple[Block, ...]) -> str:
    letters = "".join("abcdefghijkl"[dim] for dim in axis.dims)
    parts = [
        f"{letters}{f'/{b.step}' if b.step > 1 else ''}{f'%{b.extent}' if k else ''}*{b.stride}"
        for k, b in enumerate(blocks)
    ]
    return "+".join(parts)
