"""Tiles of a conversion: boxes cut until they fit into the scratch of a thread.

A tile is small enough for the scratch of a thread, and long enough on both sides that whole cache
lines are read and written. It is converted in the order of one side. On the other side it is moved
by the kernels for elements of one width; that is the side of the narrower elements, which cost less
to move.

The size of a tile is how many steps of each node it takes. First each side gets a chain of nodes
that is contiguous there. Then the largest count is halved until the tile fits the scratch. Then
whole nodes are taken where they fit, starting with those that would leave a tail, and the remaining
counts grow as far as the scratch allows, innermost nodes first. Nodes are given by their index in
the box.
"""

from collections.abc import Iterable, Iterator
from itertools import compress
from math import prod

from memdesc.dtypes import BYTE_BITS
from memdesc.tuples import NamedTuple
from reorder.cpu.schedule.loops import contiguous_loops, count_contiguous
from reorder.cpu.schedule.select import is_scattered
from reorder.cpu.target import LINE_BITS
from reorder.plan.nodes import DST, SRC, Box, Node
from reorder.plan.passes import moved, simplify, src_and_dst, zeros_beyond


class Tile(NamedTuple):
    """Tiles of one shape: the offsets of the first, the loops over tiles, the loops of one tile.

    `inner` is in the order in which the tile is converted, outermost first. `reads` and `writes`
    say whether the conversion reads src in place, and writes dst in place.
    """

    offsets: tuple[int, ...]
    outer: tuple[Node, ...]
    inner: tuple[Node, ...]
    reads: bool
    writes: bool

    def __str__(self) -> str:
        outer, inner = (" ".join(map(str, nodes)) for nodes in (self.outer, self.inner))
        places = f"{'reads' * self.reads} {'writes' * self.writes}"
        return f"@{':'.join(map(str, self.offsets))} [{outer}] {inner}, {places}"


def cut_into_tiles(
    box: Box,
    widths: tuple[int, int],
    limit: int,
    *,
    in_place: bool,
    place: int | None = None,
) -> tuple[list[Tile], list[Box]]:
    """Cut a box without indirect loops into tiles and boxes of zeros.

    `widths` are the bits of elements of src and dst; a slot holds `limit` of the wider ones. With
    `in_place` one stage computes dst from src, so only elements that are moved need scratch. If dst
    starts `place` elements into a cache line, tiles start lines where they can.
    """
    nodes = box.nodes
    if box.is_zero:
        return [], [src_and_dst(box)]
    # 4-bit elements of dst are packed together with the padding
    padded = widths[1] < BYTE_BITS
    if widths[0] == widths[1] < BYTE_BITS:
        counts = _tile_counts(nodes, limit, padded=padded)
        order = _TileOrder(_order_of_side(nodes, counts, DST), reads=False, writes=False)
        return _tiles_of(box, _Cuts(counts, {}), order)
    narrow, wide = sorted(max(BYTE_BITS, width) for width in widths)
    # Tiles may be larger if only the narrower elements go through the scratch. A tile that needs no
    # scratch gains nothing from that, and many small ones are shared more evenly among threads.
    for bits in (0, narrow, wide) if in_place else (wide,):
        counts = _tile_counts(nodes, limit * wide // (bits or wide), padded=padded)
        order = _order_of(box, counts, widths)
        moved = compress(widths, (not order.reads, not order.writes))
        if max(moved, default=0) <= bits:
            break
    heads = {}
    if place is not None and widths[1] >= BYTE_BITS:
        heads = _heads(box, counts, LINE_BITS // widths[1], place)
    return _tiles_of(box, _Cuts(counts, heads), order)


class _Cuts(NamedTuple):
    """Where nodes are cut, by their index in the box."""

    # how many steps of each node a tile takes
    counts: dict[int, int]
    # how many steps come before the first line of dst
    heads: dict[int, int]


def _heads(box: Box, counts: dict[int, int], line: int, place: int) -> dict[int, int]:
    """Return the steps before the first line of a node that is cut into whole lines of dst.

    A line has `line` elements. There are no such steps unless all rows start alike.
    """
    heads = {}
    for k, node in enumerate(box.nodes):
        is_contiguous = node.strides[DST] == 1 and counts.get(k, 0) < node.valid
        if is_contiguous and counts.get(k, 0) % line == 0:
            heads[k] = -(place + box.offsets[DST]) % line
        elif node.strides[DST] % line:
            return {}
    return heads


def _order_of(box: Box, counts: dict[int, int], widths: tuple[int, int]) -> "_TileOrder":
    """Return the order of a tile's nodes: between those of src and dst, or of the cheaper one."""
    nodes = box.nodes
    if widths[0] == widths[1] and is_scattered(src_and_dst(box)):
        return _order_between(nodes, counts)
    return _order_by_cost(nodes, counts, widths)


def _tiles_of(box: Box, cuts: _Cuts, order: "_TileOrder") -> tuple[list[Tile], list[Box]]:
    """Return tiles that take some steps of each node, and the zeros beyond them."""
    pads = not order.writes
    tiles = []
    for offsets, outer, inner in _pieces_of(box, cuts, pads=pads):
        inside = sorted(inner, key=lambda numbered: order.nodes.index(numbered[0]))
        nodes = tuple(node for _, node in inside)
        tiles.append(Tile(offsets, outer, nodes, order.reads, order.writes))
    covered = [
        _covered_steps(node, cuts.counts.get(k, 0), cuts.heads.get(k, 0), pads=pads)
        for k, node in enumerate(box.nodes)
    ]
    return tiles, list(simplify(tuple(zeros_beyond(src_and_dst(box), covered))))


# Elements of the chain that is contiguous in src, and of the one in dst, if they differ.
_SIDE = 64
# Least contiguous elements of a side that is converted in place: the narrowest vector.
_MIN_RUN = 8
# Conversions write rows of at least this length by non-temporal stores if the data exceed the
# caches: the partly written first and last lines of a row then cost little.
LONG_ROW_BITS = 1 << 13


def _tile_counts(nodes: tuple[Node, ...], limit: int, *, padded: bool) -> dict[int, int]:
    """Return how many steps of each node a tile takes, by the index of the node.

    With `padded` padding counts too, because the scratch holds it with the data.
    """
    first = [next(iter(_chain(nodes, side, 2)), None) for side in (0, 1)]
    # the node that is contiguous on both sides, if there is one
    common = first[0] if first[0] == first[1] else None
    wanted = limit if first[0] == first[1] else min(_SIDE, max(1, limit // _SIDE))
    counts = _chain(nodes, 0, wanted)
    for k, count in _chain(nodes, 1, wanted).items():
        counts[k] = max(count, counts.get(k, 1))

    def count_elements(counts: dict[int, int]) -> int:
        return prod(count if padded else min(count, nodes[k].valid) for k, count in counts.items())

    while count_elements(counts) > limit:
        # whole runs of the common node, not parts of more runs: accesses stay closer together
        k = max(counts, key=lambda k: (counts[k] > 1 and k != common, counts[k]))
        counts[k] = -(-counts[k] // 2)
    for k in sorted(counts, key=lambda k: (nodes[k].extent % counts[k] == 0, -k)):
        # a whole node, where it fits, leaves no tail
        grown = counts | {k: nodes[k].extent}
        counts = grown if count_elements(grown) <= limit else counts
    for k in range(len(nodes) - 1, -1, -1):
        factor = limit // count_elements(counts)
        if factor > 1 and counts.get(k, 1) < nodes[k].extent:
            counts[k] = min(nodes[k].extent, counts.get(k, 1) * factor)
    return counts


def _chain(nodes: tuple[Node, ...], side: int, wanted: int) -> dict[int, int]:
    """Return the longest chain of nodes that is contiguous on a side, up to `wanted` elements."""
    taken: dict[int, int] = {}
    size = 1
    for k in contiguous_loops(nodes, side, backwards=True):
        if size >= wanted:
            break
        taken[k] = min(nodes[k].extent, -(-wanted // size))
        size *= taken[k]
    return taken


class _TileOrder(NamedTuple):
    """The order of a tile's nodes, outermost first, by their index in the box."""

    nodes: list[int]
    # whether the tile is read from src in place, and written to dst in place
    reads: bool
    writes: bool


def _order_of_side(nodes: tuple[Node, ...], chosen: Iterable[int], side: int) -> list[int]:
    """Return nodes in the order of their strides on a side, outermost first."""
    return sorted(chosen, key=lambda k: (-abs(nodes[k].strides[side]), -nodes[k].extent))


def _order_by_cost(
    nodes: tuple[Node, ...],
    counts: dict[int, int],
    widths: tuple[int, int],
) -> _TileOrder:
    """Return the order of dst or of src, whichever leaves cheaper moves; dst wins ties.

    `counts` are those of `_tile_counts`.
    """
    best: tuple[int, _TileOrder] | None = None
    for side in (DST, SRC):
        order = _order_of_side(nodes, counts, side)
        runs, total = _runs(nodes, counts, order)
        is_read, is_written = (run >= min(_MIN_RUN, total) for run in runs)
        cost = widths[0] * (not is_read) + widths[1] * (not is_written)
        if best is None or cost < best[0]:
            best = cost, _TileOrder(order, is_read, is_written)
    assert best is not None  # noqa: S101 - there are two sides
    return best[1]


def _runs(
    nodes: tuple[Node, ...], counts: dict[int, int], order: list[int]
) -> tuple[list[int], int]:
    """Return the lengths of the contiguous runs of a tile in src and in dst, and its size."""
    taken = tuple(Node(counts[k], min(counts[k], nodes[k].valid), ()) for k in order)
    runs = []
    for side in (SRC, DST):
        inner = contiguous_nodes(taken, [nodes[k].strides[side] for k in order])
        runs.append(prod(node.valid for node in taken[len(taken) - inner :]))
    return runs, prod(node.valid for node in taken)


def contiguous_nodes(nodes: tuple[Node, ...], strides: list[int]) -> int:
    """Return how many of the innermost nodes are contiguous together in an operand."""
    return count_contiguous([node.valid for node in reversed(nodes)], strides[::-1])


def _order_between(nodes: tuple[Node, ...], counts: dict[int, int]) -> _TileOrder:
    """Return an order in which vectors move both sides, for boxes scattered on both.

    The first move moves runs, and the second one swaps the innermost nodes of src and of dst. The
    order from outermost to innermost is: nodes in the order of dst; the innermost node of dst; as
    many of the next inner nodes of dst as make `_MIN_RUN` elements; the innermost node of src.
    """
    *rest, innermost = _order_of_side(nodes, counts, DST)
    src_innermost = min(rest, key=lambda k: abs(nodes[k].strides[SRC]))
    rest.remove(src_innermost)
    size, inside = counts[src_innermost], [src_innermost]
    while rest and size < _MIN_RUN:
        inside.insert(0, rest.pop())
        size *= counts[inside[0]]
    return _TileOrder([*rest, innermost, *inside], reads=False, writes=False)


class _Piece(NamedTuple):
    """Tiles of one shape: a loop nest over them, and the nest inside of each."""

    # where the first tile starts
    offsets: tuple[int, ...]
    # the loops over tiles
    outer: tuple[Node, ...]
    # the loops inside of a tile, with the index of their node in the box
    inner: tuple[tuple[int, Node], ...]


def _pieces_of(box: Box, cuts: _Cuts, *, pads: bool) -> list[_Piece]:
    """Return pieces that cover the data of a box; with `pads` tails may have padding."""
    pieces = [_Piece(box.offsets, (), ())]
    for k, node in enumerate(box.nodes):
        count, head = cuts.counts.get(k, 0), cuts.heads.get(k, 0)
        parts = list(_parts_of(node, count, head, pads=pads))
        pieces = [
            _Piece(
                moved(piece.offsets, node, start),
                (*piece.outer, over) if over.extent > 1 else piece.outer,
                (*piece.inner, (k, inside)) if inside.extent > 1 else piece.inner,
            )
            for piece in pieces
            for start, over, inside in parts
        ]
    return pieces


def _parts_of(node: Node, count: int, head: int, *, pads: bool) -> Iterator[tuple[int, Node, Node]]:
    """Yield where equal tiles of the data of a node start, the loop over them and the loop inside.

    With a count of 0 the node only loops over tiles.
    """
    if head:
        yield 0, Node(1, 1, node.strides), Node(head, head, node.strides)
    whole, tail = divmod(node.valid - head, count or 1)
    if whole:
        strides = tuple((count or 1) * stride for stride in node.strides)
        yield head, Node(whole, whole, strides), Node(count, count, node.strides)
    if tail:
        start = head + whole * count
        extent = _covered_steps(node, count, head, pads=pads) - start
        yield start, Node(1, 1, node.strides), Node(extent, tail, node.strides)


def _covered_steps(node: Node, count: int, head: int, *, pads: bool) -> int:
    """Return how many steps of a node tiles write: with `pads` they fill the last tile."""
    if not count or not pads or (node.valid - head) % count == 0:
        return node.valid
    return min(node.extent, head + ((node.valid - head) // count + 1) * count)
