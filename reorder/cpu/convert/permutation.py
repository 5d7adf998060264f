"""Rows that are contiguous on both sides, with their elements in another order: pure functions.

Example: filters of 3 x 3 bytes whose four input channels become neighbours, `4:9:1 9:1:4`: each 36
bytes are permuted. A vector of dst takes its bytes from two vectors of src where these are close
enough to each other, in one instruction.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reorder.cpu.convert.row_tables import offset_table
from reorder.cpu.target import BYTE_BITS, LINE_NBYTES
from reorder.plan.nodes import Node

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Permutation", "VectorMove", "has_permuted_rows", "permutation_of"]

# Bytes of the longest rows: the vectors of one row are a table, which stays in the caches.
_MAX_ROW_NBYTES = 2048
# Rows of 4 or 8 elements (2 x 2, 2 x 4 or 4 x 2) are faster as two moves of pairs or fours.
_SMALL_ROWS = 4, 8


class VectorMove(NamedTuple):
    """One vector of a row of dst, in bytes from the start of the row."""

    # where the vectors of src begin, and where that of dst does
    src: tuple[int, int]
    dst: int
    # places of the bytes of dst in the vectors of src, one behind the other
    places: NDArray[np.uint8]


class Permutation(NamedTuple):
    """Rows of equal size, and how the bytes of each are permuted."""

    # bytes of a row
    nbytes: int
    moves: list[VectorMove]
    # offsets of the rows in src and in dst, in bytes
    tables: tuple[list[int], list[int]]


def permutation_of(nodes: tuple[Node, ...], bits: int) -> Permutation | None:
    """Return the longest rows of a tile whose vectors take their bytes from two of src, if any.

    Parameters
    ----------
    nodes : tuple of Node
        Loops over data, with strides in elements of src and of dst.
    bits : int
        The width of an element, whole bytes.
    """
    size = bits // BYTE_BITS
    found = _permuted_row(nodes, size)
    if found is None:
        return None
    moves, around = found
    tables = _starts(around, 0, size), _starts(around, 1, size)
    return Permutation(_row_nbytes(nodes, around, size), moves, tables)


def has_permuted_rows(nodes: tuple[Node, ...], bits: int) -> bool:
    """Whether loops, of a tile or of a whole box, have rows that `permutation_of` finds."""
    return _permuted_row(nodes, bits // BYTE_BITS) is not None


def _row_nbytes(nodes: tuple[Node, ...], around: tuple[Node, ...], size: int) -> int:
    """Return the bytes of a row: those of all loops without the loops around it."""
    return size * prod(n.extent for n in nodes) // prod(n.extent for n in around)


def _permuted_row(
    nodes: tuple[Node, ...], size: int
) -> tuple[list[VectorMove], tuple[Node, ...]] | None:
    """Return the vectors of the longest row that has some, and the loops around it."""
    nodes = _with_short_loops(nodes, _MAX_ROW_NBYTES // size)
    for inner in _common_groups(nodes, _MAX_ROW_NBYTES // size):
        if prod(node.extent for node in inner) in _SMALL_ROWS:
            continue
        src, dst = (offset_table(inner, [n.strides[side] for n in inner], 1) for side in (0, 1))
        places = np.zeros(len(src), np.int64)
        places[dst] = src
        each_byte = (places[:, None] * size + np.arange(size)).ravel()
        moves = _vector_moves(each_byte)
        if moves is not None:
            return moves, tuple(node for node in nodes if node not in inner)
    return None


def _starts(nodes: tuple[Node, ...], side: int, size: int) -> list[int]:
    """Return the offsets of rows on a side, in bytes."""
    return offset_table(nodes, [node.strides[side] * size for node in nodes], 1)


def _vector_moves(places: NDArray[np.int64]) -> list[VectorMove] | None:
    """Return the vectors of a row, or None if one needs more than two vectors of src."""
    last = max(0, len(places) - LINE_NBYTES)
    moves = []
    for start in [*range(0, last, LINE_NBYTES), last]:
        part = places[start : start + LINE_NBYTES]
        first = min(int(part.min()), last)
        second = min(first + LINE_NBYTES, last)
        index = np.where(part < first + LINE_NBYTES, part - first, part - second + LINE_NBYTES)
        if index.max() >= 2 * LINE_NBYTES:
            return None
        whole = np.zeros(LINE_NBYTES, np.uint8)
        whole[: len(part)] = index
        moves.append(VectorMove((first, second), start, whole))
    return moves


def _with_short_loops(nodes: tuple[Node, ...], limit: int) -> tuple[Node, ...]:
    """Return loops of which none that continues a row on both sides makes it too long."""
    short: list[Node] = []
    for node in nodes:
        src, dst = node.strides
        steps = node.extent
        if src == dst and 0 < src <= limit < src * steps:
            steps = max(k for k in range(1, limit // src + 1) if node.extent % k == 0)
        count = node.extent // steps
        short.append(Node(steps, steps, node.strides))
        if count > 1:
            short.append(Node(count, count, (src * steps, dst * steps)))
    return tuple(short)


def _common_groups(nodes: tuple[Node, ...], limit: int) -> list[tuple[Node, ...]]:
    """Return groups that are contiguous on both sides, in different orders; longest first."""
    src, dst = (_chain(nodes, side) for side in (0, 1))
    counts = range(min(len(src), len(dst)), 1, -1)
    return [
        dst[:count]
        for count in counts
        if set(dst[:count]) == set(src[:count])
        and dst[:count] != src[:count]
        and prod(node.extent for node in dst[:count]) <= limit
    ]


def _chain(nodes: tuple[Node, ...], side: int) -> tuple[Node, ...]:
    """Return the loops that are contiguous on a side, innermost first."""
    chain: list[Node] = []
    stride = 1
    while True:
        follower = next((n for n in nodes if n.strides[side] == stride and n not in chain), None)
        if follower is None:
            return tuple(chain)
        chain.append(follower)
        stride *= follower.extent
