"""Vectors that change places in registers: shuffles that every machine has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LANE_BITS", "concatenate", "exchange", "mask", "pick", "transpose"]

# shuffles within so many bits are one instruction everywhere
LANE_BITS = 128


def transpose(builder: Any, lines: list[Any]) -> list[Any]:
    """Transpose n vectors in each 128-bit lane: their elements, read one vector after the other, come column by column.

    A lane is an n x m matrix, n a power of two up to the m elements that a lane holds. Zipping
    the first half of the vectors with the second moves one bit of the index of the row to the
    front of that of the column, so log2(n) rounds make a transposition, all of them of one
    kind of unpack instruction.
    """
    count = lines[0].type.count
    lane = min(count, LANE_BITS // lines[0].type.element.width)
    halves = []
    for start in (0, lane // 2):
        both = (
            (first + start + k, count + first + start + k)
            for first in range(0, count, lane)
            for k in range(lane // 2)
        )
        halves.append(mask(j for pair in both for j in pair))
    distance = len(lines) // 2
    rounds = len(lines).bit_length() - 1
    for _ in range(rounds):
        lines = [
            builder.shuffle_vector(lines[k], lines[k + distance], half)
            for k in range(distance)
            for half in halves
        ]
    return lines


def exchange(builder: Any, vectors: list[Any], lane: int) -> list[Any]:
    """Collect the lanes of n vectors that stand at one place, n a power of two.

    Each vector is a row of matrices of n lanes; column k of all of them makes the k-th result.
    """
    if len(vectors) == 1:
        return vectors
    count = vectors[0].type.count
    width = len(vectors) * lane // 2
    results = []
    for half in (0, width):
        both = mask(
            first + half + k for first in range(0, 2 * count, 2 * width) for k in range(width)
        )
        joined = [
            builder.shuffle_vector(*vectors[k : k + 2], both) for k in range(0, len(vectors), 2)
        ]
        results += exchange(builder, joined, lane)
    return results


def concatenate(builder: Any, vectors: list[Any]) -> Any:
    """Join a power of two of vectors into one."""
    while len(vectors) > 1:
        both = mask(range(2 * vectors[0].type.count))
        vectors = [
            builder.shuffle_vector(*vectors[k : k + 2], both) for k in range(0, len(vectors), 2)
        ]
    return vectors[0]


def pick(builder: Any, vector: Any, picks: Iterable[int]) -> Any:
    """Return some elements of a vector, in an order of their own."""
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask(picks))


def mask(picks: Iterable[int]) -> Any:
    """Return the constant that tells a shuffle which elements to pick."""
    chosen = list(picks)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(chosen)), chosen)
