"""Shuffles of elements between vector registers, each one instruction on every machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reorder.cpu.kernels.emit import Builder, Value

__all__ = ["LANE_BITS", "concatenate", "exchange", "mask", "pick", "transpose"]

# Within lanes of this many bits every machine shuffles with one instruction.
LANE_BITS = 128


def transpose(builder: Builder, vectors: list[Value]) -> list[Value]:
    """Transpose n vectors in each 128-bit lane: the results hold column after column.

    A lane is an n x m matrix, n a power of two up to the m elements that a lane holds. To
    interleave the first half of the vectors with the second moves one bit of the index of the
    row to the front of that of the column, so log2(n) rounds make a transposition, all of them
    of one kind of unpack instruction.
    """
    count = vectors[0].type.count
    lane = min(count, LANE_BITS // vectors[0].type.element.width)
    halves = []
    for start in (0, lane // 2):
        both = (
            (first + start + k, count + first + start + k)
            for first in range(0, count, lane)
            for k in range(lane // 2)
        )
        halves.append(mask(j for pair in both for j in pair))
    distance = len(vectors) // 2
    rounds = len(vectors).bit_length() - 1
    for _ in range(rounds):
        vectors = [
            builder.shuffle_vector(vectors[k], vectors[k + distance], half)
            for k in range(distance)
            for half in halves
        ]
    return vectors


def exchange(builder: Builder, vectors: list[Value], lane: int) -> list[Value]:
    """Collect equal lanes of n vectors, n a power of two, lanes of `lane` elements.

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


def concatenate(builder: Builder, vectors: list[Value]) -> Value:
    """Join a power of two of vectors into one."""
    while len(vectors) > 1:
        both = mask(range(2 * vectors[0].type.count))
        vectors = [
            builder.shuffle_vector(*vectors[k : k + 2], both) for k in range(0, len(vectors), 2)
        ]
    return vectors[0]


def pick(
    builder: Builder, vector: Value, indices: Iterable[int], second: Value | None = None
) -> Value:
    """Return the elements of a vector, or of two joined, at some indices."""
    other = ir.Constant(vector.type, ir.Undefined) if second is None else second
    return builder.shuffle_vector(vector, other, mask(indices))


def mask(indices: Iterable[int]) -> Value:
    """Return the constant that tells a shuffle which elements to pick."""
    chosen = list(indices)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(chosen)), chosen)
