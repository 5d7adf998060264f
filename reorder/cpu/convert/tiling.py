"""How a box that converts is cut into tiles: a pure function of the box and of two widths.

A tile is small enough for the scratch of a thread, and long enough on both sides that cache
lines are read and written whole. It is converted in the order of one side, and moved on the
other, by the kernels that move elements of one width: on the narrower one.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.cpu.convert.row_tables import contiguous_nodes
from reorder.cpu.schedule.select import TRANSPOSED, choose
from reorder.plan.nodes import Node
from reorder.plan.passes import simplify, src_and_dst, zeros_beyond

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.plan.nodes import Box

__all__ = ["Tile", "cut", "is_scattered"]

# Elements that a tile takes of a nest that is contiguous on one side only, and those of any tile.
_SIDE, _ENOUGH = 64, 2048
# Those of src, and of dst, where one has 16-bit elements and both are beyond the caches.
_SIDES_16 = 32, 128
# Neighbours that are worth converting where they lie.
_MIN_RUN = 8
# How many times as much a move costs that writes long runs through the caches, where a conversion would write past them.
_PAST, _LONG_BITS = 2.5, 1 << 13
_BYTE = 8
# Elements that are too few for a kernel to be called for.
_FEW = 64
# Elements of a tile that needs no scratch.
_MAX_STRAIGHT = 1 << 14


class Tile(NamedTuple):
    """Boxes of equal tiles: where the first lies, the loops over tiles, and those inside of one.

    `inner` is in the order in which the tile is converted, outermost first; `reads` and `writes` say
    whether that is done where src, and dst, lie.
    """

    offsets: tuple[int, ...]
    outer: tuple[Node, ...]
    inner: tuple[Node, ...]
    reads: bool
    writes: bool

    def __str__(self) -> str:
        loops = [" ".join(map(str, nodes)) for nodes in (self.outer, self.inner)]
        return f"@{':'.join(map(str, self.offsets))} [{loops[0]}] {loops[1]}, {'reads' * self.reads} {'writes' * self.writes}"


def is_scattered(box: Box) -> bool:
    """Whether no kernel takes more than a few elements of a box at once, so that two moves are faster than one.

    So it is where each side has pairs of another dim, as `8b16a2b` and `8a16b2a` have.
    """
    choice = choose(box)
    if (
        choice.kernel != TRANSPOSED
        or prod(node.extent for node in (*choice.rows, *choice.columns)) >= _FEW
    ):
        return False
    return box.size > _FEW and not box.lookups


def _between(nodes: tuple[Node, ...], counts: dict[int, int]) -> list[int]:
    """Return an order of nodes that both sides reach by vectors: some of dst's innermost, but the very first, inside of that."""
    order = sorted(counts, key=lambda k: (-abs(nodes[k].strides[1]), -nodes[k].extent))
    *rest, innermost = order
    near_src = min(rest, key=lambda k: abs(nodes[k].strides[0]))
    rest.remove(near_src)
    inside, size = [near_src], counts[near_src]
    while rest and size < _MIN_RUN:
        inside.insert(0, rest.pop())
        size *= counts[inside[0]]
    return [*rest, innermost, *inside]


def cut(
    box: Box, widths: tuple[int, int], limit: int, *, straight: bool, streams: bool = False
) -> tuple[list[Tile], list[Box]]:
    """Cut a box into tiles and boxes of zeros.

    Parameters
    ----------
    box : Box
        Without lookups.
    widths : tuple of int
        Bits of elements of src and dst.
    limit : int
        Elements that fit the scratch.
    straight : bool
        Whether runs that are contiguous on both sides need no scratch.
    streams : bool, optional
        Whether what is converted into dst goes past the caches.
    """
    nodes = box.nodes
    if box.is_zero:
        return [], [src_and_dst(box)]
    if widths[0] == widths[1] < _BYTE:
        # moved as bytes, and padding with them
        counts = _counts(nodes, limit, (_SIDE, _SIDE), straight=False, padded=True)
        return _tiles_of(
            box,
            counts,
            sorted(counts, key=lambda k: -abs(nodes[k].strides[1])),
            reads=False,
            writes=False,
            streams=streams,
        )
    sides = _SIDES_16 if streams and min(widths) == 2 * _BYTE else (_SIDE, _SIDE)
    counts = _counts(nodes, limit, sides, straight=straight)
    order, reads, writes = _order(nodes, counts, widths, streams=streams)
    if straight and not (
        reads
        and writes
        and not any(_covered(nodes[k], counts[k], ragged=True) > nodes[k].valid for k in order)
    ):
        # it needs the scratch, so it must fit
        counts = _counts(nodes, limit, sides, straight=False)
        order, reads, writes = _order(nodes, counts, widths, streams=streams)
    if widths[0] == widths[1] and is_scattered(src_and_dst(box)):
        order, reads, writes = _between(nodes, counts), False, False
    if writes and any(_covered(nodes[k], counts[k], ragged=True) > nodes[k].valid for k in order):
        # what writes padding too is the move; where the tile moves anyway, that is for free
        order, reads, writes = _order(nodes, counts, widths, writes=False, streams=streams)
    return _tiles_of(box, counts, order, reads=reads, writes=writes, streams=streams)


def _tiles_of(
    box: Box, counts: dict[int, int], order: list[int], *, reads: bool, writes: bool, streams: bool
) -> tuple[list[Tile], list[Box]]:
    """Return tiles of so many steps, in an order of their nodes, and the zeros that they leave."""
    ragged = not writes
    tiles = []
    for offsets, outer, inner in _pieces(box, counts, ragged=ragged):
        placed = sorted(inner, key=lambda own: order.index(own[0]))
        # beyond the caches, tiles that continue the rows of src follow each other
        loops = tuple(sorted(outer, key=lambda node: -abs(node.strides[0]))) if streams else outer
        tiles.append(Tile(offsets, loops, tuple(node for _, node in placed), reads, writes))
    covered = [_covered(node, counts.get(k, 0), ragged=ragged) for k, node in enumerate(box.nodes)]
    return tiles, list(simplify(tuple(zeros_beyond(src_and_dst(box), covered))))


def _chain(nodes: tuple[Node, ...], side: int, want: int) -> dict[int, int]:
    """Return which nodes, and how much of each, make the longest contiguous nest of a side up to `want`."""
    taken: dict[int, int] = {}
    size = 1
    while size < want:
        k = next(
            (
                k
                for k, node in enumerate(nodes)
                if k not in taken and abs(node.strides[side]) == size
            ),
            None,
        )
        if k is None:
            break
        taken[k] = min(nodes[k].extent, -(-want // size))
        size *= taken[k]
        if taken[k] < nodes[k].extent:
            break
    return taken


def _counts(
    nodes: tuple[Node, ...],
    limit: int,
    sides: tuple[int, int],
    *,
    straight: bool,
    padded: bool = False,
) -> dict[int, int]:
    """Return the steps of each node that a tile takes."""
    first = [next(iter(_chain(nodes, side, 2)), None) for side in (0, 1)]
    if (
        straight
        and first[0] is not None
        and first[0] == first[1]
        and nodes[first[0]].valid >= _MIN_RUN
    ):
        limit = _MAX_STRAIGHT
    wants = [
        limit if first[0] == first[1] else min(side, max(1, limit // other))
        for side, other in (sides, sides[::-1])
    ]
    counts = _chain(nodes, 0, wants[0])
    for k, count in _chain(nodes, 1, wants[1]).items():
        counts[k] = max(count, counts.get(k, 1))

    def count_data() -> int:
        return prod(count if padded else min(count, nodes[k].valid) for k, count in counts.items())

    if first[0] == first[1] and first[0] is not None and counts[first[0]] == nodes[first[0]].extent:
        # pieces of several runs are further apart than whole ones
        counts = {
            k: min(count, max(1, limit // counts[first[0]])) if k != first[0] else count
            for k, count in counts.items()
        }

    while count_data() > limit:
        k = max(counts, key=lambda k: counts[k])
        counts[k] = -(-counts[k] // 2)
    for k in range(len(nodes) - 1, -1, -1):
        room = min(limit, max(_ENOUGH, limit // 2)) // count_data()
        if room > 1 and counts.get(k, 1) < nodes[k].extent:
            counts[k] = min(nodes[k].extent, counts.get(k, 1) * room)
    return counts


def _order(
    nodes: tuple[Node, ...],
    counts: dict[int, int],
    widths: tuple[int, int],
    *,
    streams: bool,
    writes: bool = True,
) -> tuple[list[int], bool, bool]:
    """Return the nodes of the tile in the order of the side whose elements need not move."""
    past = 1.0
    best: tuple[float, list[int], bool, bool] | None = None
    for side in (1, 0):
        order = sorted(counts, key=lambda k: (-abs(nodes[k].strides[side]), -nodes[k].extent))
        sized = tuple(Node(counts[k], min(counts[k], nodes[k].valid), ()) for k in order)
        runs = []
        for own in (0, 1):
            count = contiguous_nodes(sized, [nodes[k].strides[own] for k in order])
            runs.append(prod(node.valid for node in sized[len(sized) - count :]))
        total = prod(node.valid for node in sized)
        is_read, is_written = (run >= min(_MIN_RUN, total) for run in runs)
        is_written &= writes
        if side == 1 and streams and runs[1] * widths[1] >= _LONG_BITS:
            past = _PAST
        cost = _cost(widths[0]) * (not is_read) + past * _cost(widths[1]) * (not is_written)
        if best is None or cost < best[0]:
            best = cost, order, is_read, is_written
    assert best is not None  # noqa: S101 - there are two sides
    return best[1:]


def _cost(bits: int) -> int:
    """Return what moving an element costs: 4-bit ones have no vectors."""
    return bits if bits >= _BYTE else 8 * _BYTE * _BYTE


def _pieces(
    box: Box, counts: dict[int, int], *, ragged: bool
) -> Iterator[tuple[tuple[int, ...], tuple[Node, ...], list[tuple[int, Node]]]]:
    """Yield the offsets, the loops over tiles, and those inside, of equal tiles that cover the data."""
    found: list[tuple[tuple[int, ...], tuple[Node, ...], list[tuple[int, Node]]]] = [
        (box.offsets, (), [])
    ]
    for k, node in enumerate(box.nodes):
        pieces = list(_cut_node(node, counts.get(k, 0), ragged=ragged))
        found = [
            (
                tuple(
                    at + start * stride for at, stride in zip(offsets, node.strides, strict=True)
                ),
                outer + ((over,) if over.extent > 1 else ()),
                inner + ([(k, own)] if own is not None and own.extent > 1 else []),
            )
            for offsets, outer, inner in found
            for start, over, own in pieces
        ]
    yield from found


def _cut_node(node: Node, count: int, *, ragged: bool) -> Iterator[tuple[int, Node, Node | None]]:
    """Yield the parts of a node that hold data: start, loop over tiles, loop inside of one."""
    if not count:
        yield 0, Node(node.valid, node.valid, node.strides), None
        return
    whole, rest = divmod(node.valid, count)
    if whole:
        yield (
            0,
            Node(whole, whole, tuple(count * stride for stride in node.strides)),
            Node(count, count, node.strides),
        )
    if rest:
        extent = _covered(node, count, ragged=ragged) - whole * count
        yield whole * count, Node(1, 1, node.strides), Node(extent, rest, node.strides)


def _covered(node: Node, count: int, *, ragged: bool) -> int:
    """Return how many steps of a node tiles write."""
    if not count or not ragged or node.valid % count == 0:
        return node.valid
    return min(node.extent, (node.valid // count + 1) * count)
