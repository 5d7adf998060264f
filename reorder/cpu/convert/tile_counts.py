"""The size of a tile: how many steps of each node of a box it takes.

Nodes are given by their number in the box. First each side gets a chain of nodes that is
contiguous there, so that whole cache lines are used; then the largest count is halved until the
tile fits; then the counts grow to what the scratch holds, of the innermost nodes first: to whole
nodes where these fit.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from reorder.plan.nodes import Node

__all__ = [
    "GROWN",
    "LONG_ROW_BITS",
    "MIN_RUN",
    "SIDES",
    "SlotLimits",
    "tile_counts",
]

# Elements of the chain that is contiguous in src, and of the one in dst, if these differ.
SIDES = 64, 64
# Contiguous elements from which on a side is converted in place: a vector of the fewest lanes.
MIN_RUN = 8
# Tiles grow to this many elements, so that each call of a walker or stage has enough work.
GROWN = 4096
# Conversions write rows from this length on by non-temporal stores where data exceed the caches:
# the first and last lines of a row, written in part, cost little then.
LONG_ROW_BITS = 1 << 13
# Limit of the elements of a tile that is converted in place, without scratch.
_MAX_IN_PLACE = 1 << 14


class SlotLimits(NamedTuple):
    """Limits of the elements of a tile, and the size that it should have."""

    # limit for any tile
    elements: int
    # limit for a tile of whole rows, of which only narrow elements are in the scratch
    narrow: int
    # size that tiles grow to, for enough work, or half of `elements` where that is more
    grown: int = GROWN


def tile_counts(
    nodes: tuple[Node, ...],
    limits: SlotLimits,
    sides: tuple[int, int],
    *,
    in_place: bool,
    padded: bool = False,
    whole: int = 0,
) -> dict[int, int]:
    """Return the steps of each node that a tile takes, by the number of the node.

    Parameters
    ----------
    nodes : tuple of Node
        The nodes of the box.
    limits : SlotLimits
        Elements that fit the scratch.
    sides : tuple of int
        Elements of the chains of src and of dst.
    in_place : bool
        Whether tiles that are contiguous on both sides need no scratch.
    padded : bool, optional
        Whether padding counts too, because the scratch holds it with the data.
    whole : int, optional
        Elements that fit where a node is taken whole that would leave a tail, if that is more.
    """
    limit = limits.elements
    first = [next(iter(_chain(nodes, side, 2)), None) for side in (0, 1)]
    # the node that is contiguous on both sides, if there is one
    common = first[0] if first[0] == first[1] else None
    if in_place and common is not None and nodes[common].valid >= MIN_RUN:
        limit = _MAX_IN_PLACE
    wanted = [
        limit if first[0] == first[1] else min(side, max(1, limit // other))
        for side, other in (sides, sides[::-1])
    ]
    counts = _chain(nodes, 0, wanted[0])
    for k, count in _chain(nodes, 1, wanted[1]).items():
        counts[k] = max(count, counts.get(k, 1))

    def count_elements(counts: dict[int, int]) -> int:
        return prod(count if padded else min(count, nodes[k].valid) for k, count in counts.items())

    if common is not None and counts[common] == nodes[common].extent:
        # whole runs of the common node, not parts of more runs: accesses stay closer together
        runs = max(1, limit // counts[common])
        counts = {k: count if k == common else min(count, runs) for k, count in counts.items()}
    while count_elements(counts) > limit:
        k = max(counts, key=lambda k: counts[k])
        counts[k] = -(-counts[k] // 2)
    for k in sorted(counts, reverse=True):
        # a whole node, where it fits, leaves no tail
        grown = counts | {k: nodes[k].extent}
        most = max(limit, whole) if nodes[k].extent % counts[k] else limit
        counts = grown if count_elements(grown) <= most else counts
    for k in range(len(nodes) - 1, -1, -1):
        factor = min(limit, max(limits.grown, limit // 2)) // count_elements(counts)
        if factor > 1 and counts.get(k, 1) < nodes[k].extent:
            counts[k] = min(nodes[k].extent, counts.get(k, 1) * factor)
    return counts


def _chain(nodes: tuple[Node, ...], side: int, wanted: int) -> dict[int, int]:
    """Return the longest chain of nodes that is contiguous on a side, up to `wanted` elements."""
    taken: dict[int, int] = {}
    size = 1
    while size < wanted:
        followers = (
            k for k, node in enumerate(nodes) if k not in taken and abs(node.strides[side]) == size
        )
        k = next(followers, None)
        if k is None:
            break
        taken[k] = min(nodes[k].extent, -(-wanted // size))
        size *= taken[k]
        if taken[k] < nodes[k].extent:
            break
    return taken
