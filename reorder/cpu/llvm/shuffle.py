"""Shuffles of elements between vector registers, composed of single instructions."""

from collections.abc import Iterable

from llvmlite import ir

from reorder.cpu.llvm.emit import Value
from reorder.cpu.machine import LANE_BITS


def transpose(vectors: list[Value]) -> list[Value]:
    """Transpose n vectors in each 128-bit lane: the results hold column after column.

    A lane is an n x m matrix, where n is a power of two and at most m, the elements of a lane.
    Each round interleaves the first half of the vectors with the second half, which moves one bit
    of the row index to the column index. So log2(n) rounds of unpack instructions transpose it,
    the fewest that instructions of two operands can take (Floyd, "Permuting information in
    idealized two-level storage", 1972).
    """
    count = vectors[0].type.count
    lane = min(count, LANE_BITS // vectors[0].type.element.width)
    halves = _interleavings(count, lane)
    distance = len(vectors) // 2
    rounds = len(vectors).bit_length() - 1
    for _ in range(rounds):
        vectors = [
            vectors[k].shuffle_vector(vectors[k + distance], half)
            for k in range(distance)
            for half in halves
        ]
    return vectors


def _interleavings(count: int, lane: int) -> list[Value]:
    """Return the masks that interleave the lower halves of lanes of two vectors, and the upper."""
    halves = []
    for start in (0, lane // 2):
        both = (
            (first + start + k, count + first + start + k)
            for first in range(0, count, lane)
            for k in range(lane // 2)
        )
        halves.append(_mask(j for pair in both for j in pair))
    return halves


def exchange(vectors: list[Value], lane: int) -> list[Value]:
    """Transpose n vectors as matrices of lanes: the k-th result has the k-th lane of each.

    n is a power of two, and a lane has `lane` elements. Vectors of more than n lanes hold several
    matrices side by side.
    """
    if len(vectors) == 1:
        return vectors
    count = vectors[0].type.count
    width = len(vectors) * lane // 2
    results = []
    for half in (0, width):
        both = _mask(
            first + half + k for first in range(0, 2 * count, 2 * width) for k in range(width)
        )
        joined = [
            vectors[k].shuffle_vector(vectors[k + 1], both) for k in range(0, len(vectors), 2)
        ]
        results += exchange(joined, lane)
    return results


def concatenate(vectors: list[Value]) -> Value:
    """Join a power of two of vectors into one."""
    while len(vectors) > 1:
        both = _mask(range(2 * vectors[0].type.count))
        vectors = [
            vectors[k].shuffle_vector(vectors[k + 1], both) for k in range(0, len(vectors), 2)
        ]
    return vectors[0]


def pick(vector: Value, indices: Iterable[int], second: Value | None = None) -> Value:
    """Return the elements of a vector, or of two concatenated ones, at some indices."""
    other = ir.Constant(vector.type, ir.Undefined) if second is None else second
    return vector.shuffle_vector(other, _mask(indices))


def _mask(indices: Iterable[int]) -> Value:
    """Return the constant mask of a shuffle: the indices of the elements that it picks."""
    chosen = list(indices)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(chosen)), chosen)
