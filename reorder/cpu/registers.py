"""Vectors that change places in registers: shuffles that every machine has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LANE_BITS", "concatenate", "mask", "transpose"]

# shuffles within so many bits are one instruction everywhere
LANE_BITS = 128


def transpose(builder: Any, lines: list[Any], wide: int) -> list[Any]:
    """Turn `high` vectors of `wide` elements into `wide` vectors of `high`.

    The longer side is first cut into squares of the shorter one.
    """
    high = len(lines)
    if high > wide:
        # blocks of `wide` rows, transposed each, joined side by side
        blocks = [_square(builder, lines[k : k + wide]) for k in range(0, high, wide)]
        return [concatenate(builder, [block[i] for block in blocks]) for i in range(wide)]
    undefined = ir.Constant(lines[0].type, ir.Undefined)
    parts = []
    for start in range(0, wide, high):
        picks = mask(range(start, start + high))
        parts += _square(builder, [builder.shuffle_vector(line, undefined, picks) if high < wide else line for line in lines])
    return parts


def _square(builder: Any, lines: list[Any]) -> list[Any]:
    """Transpose V vectors of V elements.

    First in each 128-bit lane, by the unpack instructions that every machine has: lines of
    a pair are interleaved by elements, pairs of pairs by two elements, and so on. Then whole
    lanes change places: pairs at half the distance exchange halves, then quarters.
    """
    side = len(lines)
    lane = min(side, LANE_BITS // lines[0].type.element.width)
    groups = [_in_lanes(builder, lines[k : k + lane], lane) for k in range(0, side, lane)]
    columns: list[Any] = [None] * side
    for k in range(lane):
        across = [group[k] for group in groups]
        distance = len(groups) // 2
        while distance:
            low = mask(_exchange(side, lane, distance, upper=False))
            high = mask(_exchange(side, lane, distance, upper=True))
            for i in range(len(across)):
                if not i & distance:
                    pair = across[i], across[i + distance]
                    across[i], across[i + distance] = builder.shuffle_vector(*pair, low), builder.shuffle_vector(*pair, high)
            distance //= 2
        for n, vector in enumerate(across):
            columns[n * lane + k] = vector
    return columns


def _in_lanes(builder: Any, lines: list[Any], lane: int) -> list[Any]:
    """Transpose the first `lane` rows of every lane."""
    side = lines[0].type.count
    grain = 1
    groups = [[line] for line in lines]
    while len(groups) > 1:
        picks = []
        for half in (0, lane // 2):
            chunks = [range(n + half + c, n + half + c + grain) for n in range(0, side, lane) for c in range(0, lane // 2, grain)]
            picks.append(mask(j + from_second * side for chunk in chunks for from_second in (0, 1) for j in chunk))
        joined = []
        for first, second in zip(groups[0::2], groups[1::2], strict=True):
            joined.append([builder.shuffle_vector(a, b, mask) for a, b in zip(first, second, strict=True) for mask in picks])
        groups = joined
        grain *= 2
    return groups[0]


def _exchange(side: int, lane: int, distance: int, *, upper: bool) -> list[int]:
    """Return which elements of two vectors make the first, or the second, after an exchange of lanes."""
    picks = []
    for j in range(side):
        is_second = bool(j // lane & distance)
        if upper:
            picks.append(side + j if is_second else j + distance * lane)
        else:
            picks.append(side + j - distance * lane if is_second else j)
    return picks


def concatenate(builder: Any, vectors: list[Any]) -> Any:
    """Join a power of two of vectors into one."""
    while len(vectors) > 1:
        both = mask(range(2 * vectors[0].type.count))
        vectors = [builder.shuffle_vector(*vectors[k : k + 2], both) for k in range(0, len(vectors), 2)]
    return vectors[0]


def mask(picks: Iterable[int]) -> Any:
    """Return the constant that tells a shuffle which elements to pick."""
    chosen = list(picks)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(chosen)), chosen)
