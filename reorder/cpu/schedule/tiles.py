"""Tiles of a conversion: boxes cut until they fit into the scratch of a thread.

A tile is small enough for the scratch of a thread, and long enough on both sides that whole cache
lines are read and written. It is converted in the order of one side. On the other side it is moved
by the kernels for elements of one width. That is the side of the narrower elements, which cost less
to move, unless dst exceeds the caches, where the rows written to it matter more.

The size of a tile is how many steps of each node it takes. A tile is one run of dst if it has whole
lines of src then. Otherwise each side gets a chain of nodes that is contiguous there, and the
largest count is halved until the tile fits the scratch. Then counts grow as far as the scratch
allows, innermost nodes first. Nodes are given by their index in the box.
"""

from collections.abc import Iterable, Iterator
from itertools import compress, product
from math import prod

from memdesc.dtypes import BYTE_BITS
from memdesc.tuples import NamedTuple
from reorder.cpu.machine import LINE_BITS
from reorder.cpu.schedule.loops import contiguous_loops
from reorder.cpu.schedule.operands import dense_strides, find_rows, run_of
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


class TileSpec(NamedTuple):
    """What the tiles of a reorder depend on besides their box."""

    # bits of elements of src and dst
    widths: tuple[int, int]
    # how many of the wider ones a slot holds
    limit: int
    # whether one stage computes dst from src, so only elements that are moved need scratch
    is_single: bool
    # elements from the start of a cache line to dst; None: any number
    place: int | None = None
    # whether src and dst exceed the caches
    exceeds: bool = False

    @property
    def line(self) -> int:
        """How many elements of dst a cache line has."""
        return LINE_BITS // self.widths[DST]

    def start_of(self, box: Box) -> int | None:
        """Return the elements from the start of a cache line to where a box starts in dst."""
        return None if self.place is None else self.place + box.offsets[DST]


def cut_into_tiles(box: Box, spec: TileSpec) -> tuple[list[Tile], list[Box]]:
    """Cut a box without indirect loops into tiles and boxes of zeros.

    Tiles start at lines of dst where they can.
    """
    nodes, widths = box.nodes, spec.widths
    if box.is_zero:
        return [], [src_and_dst(box)]
    # 4-bit elements of dst are packed together with the padding
    padded = widths[DST] < BYTE_BITS
    if widths[SRC] == widths[DST] < BYTE_BITS:
        counts = _tile_counts(nodes, spec.limit, padded=padded)
        order = _TileOrder(_order_of_side(nodes, counts, DST), reads=False, writes=False)
        return _tiles_of(box, counts, {}, order)
    narrow, wide = sorted(max(BYTE_BITS, width) for width in widths)
    # Tiles may be larger if only the narrower elements go through the scratch. A tile that needs no
    # scratch gains nothing from that, and many small ones are shared more evenly among threads.
    # A tile is one run of dst if it is written in place then, and has whole lines of src.
    for bits, line in product(
        (0, narrow, wide) if spec.is_single else (wide,), (LINE_BITS // widths[SRC], 0)
    ):
        counts = _tile_counts(nodes, spec.limit * wide // (bits or wide), line, padded=padded)
        heads = _heads(box, spec, counts)
        order = _order_by_cost(box, spec, counts, 0 if heads else spec.start_of(box))
        scratch = compress(widths, (not order.reads, not order.writes))
        if max(scratch, default=0) <= bits and (order.writes or not line):
            break
    return _tiles_of(box, counts, heads, order)


# The cost of rows shorter than this many lines.
_ROW_COSTS = (2, 4.0), (16, 2.5), (32, 1.5)


def _cost_of_rows(box: Box, spec: TileSpec, start: int | None, inner: tuple[Node, ...]) -> float:
    """Return the cost of writing the rows of a tile to a dst that exceeds the caches.

    Moving the elements costs 1. `start` is where dst starts in its cache line, None for anywhere.
    The model: whole lines, which non-temporal stores write, cost nothing. Parts of lines, at both
    ends of rows that do not start at lines, cost much: rows that start at lines may be 16 times
    shorter, unless they are short because operands change.
    """
    run = row = run_of(inner, SRC, DST)
    for k in range(DST + 1, len(box.offsets)):
        nodes = (
            node._replace(strides=(*node.strides[: DST + 1], node.strides[k])) for node in inner
        )
        row = min(row, find_rows(tuple(nodes), []).columns)
    starts = [node.strides[DST] for node in box.nodes if abs(node.strides[DST]) >= row]
    is_aligned = start is not None and not any(at % spec.line for at in (start, *starts))
    lines = row // spec.line * (16 if is_aligned and row == run else 1)
    return next((cost for limit, cost in _ROW_COSTS if lines < limit), 0.0)


def _heads(box: Box, spec: TileSpec, counts: dict[int, int]) -> dict[int, int]:
    """Return the steps before the first line of a node that is cut into whole lines of dst.

    There are no such steps unless all rows start at the same known place in their lines.
    """
    start, heads = spec.start_of(box), {}
    if start is None:
        return {}
    for k, node in enumerate(box.nodes):
        is_contiguous = node.strides[DST] == 1 and counts.get(k, 0) < node.valid
        if is_contiguous and counts.get(k, 0) % spec.line == 0:
            heads[k] = -start % spec.line
        elif node.strides[DST] % spec.line:
            return {}
    return heads


def _tiles_of(
    box: Box, counts: dict[int, int], heads: dict[int, int], order: "_TileOrder"
) -> tuple[list[Tile], list[Box]]:
    """Return tiles that take some steps of each node, and the zeros beyond them."""
    parts = [
        [*_parts_of(node, counts.get(k, 0), heads.get(k, 0), pads=not order.writes)]
        for k, node in enumerate(box.nodes)
    ]
    tiles = []
    for part in product(*parts):
        offsets = box.offsets
        for node, (start, _, _) in zip(box.nodes, part, strict=True):
            offsets = moved(offsets, node, start)
        outer = tuple(over for _, over, _ in part if over.extent > 1)
        inner = tuple(part[k][2] for k in order.nodes if part[k][2].extent > 1)
        tiles.append(Tile(offsets, outer, inner, order.reads, order.writes))
    covered = [
        max((start + over.extent * max(1, inside.extent) for start, over, inside in of), default=0)
        for of in parts
    ]
    return tiles, list(simplify(tuple(zeros_beyond(src_and_dst(box), covered))))


def _parts_of(node: Node, count: int, head: int, *, pads: bool) -> Iterator[tuple[int, Node, Node]]:
    """Yield where equal tiles of the data of a node start, the loop over them and the loop inside.

    With a count of 0, the node only loops over tiles. With `pads`, tiles have padding, up to the
    end of the last one.
    """
    if head:
        yield 0, Node(1, 1, node.strides), Node(head, head, node.strides)
    whole, tail = divmod(node.valid - head, count or 1)
    if whole:
        strides = tuple((count or 1) * stride for stride in node.strides)
        yield head, Node(whole, whole, strides), Node(count, count, node.strides)
    if tail:
        start = head + whole * count
        extent = min(node.extent - start, count) if pads else tail
        yield start, Node(1, 1, node.strides), Node(extent, tail, node.strides)


# Elements of the chain that is contiguous in src, and of the one in dst, if they differ.
_SIDE = 64
# The fewest contiguous elements of a side that is converted in place: the narrowest vector.
_MIN_RUN = 8
# Conversions write rows of at least this length by non-temporal stores if the data exceed the
# caches: the partly written first and last lines of a row then cost little.
LONG_ROW_BITS = 1 << 13


def _tile_counts(
    nodes: tuple[Node, ...], limit: int, line: int = 0, *, padded: bool
) -> dict[int, int]:
    """Return how many steps of each node a tile takes, by the index of the node.

    If a cache line has `line` elements of src, a tile may be one run of dst. With `padded` padding
    counts too, because the scratch holds it with the data.
    """
    first = [next(iter(_chain(nodes, side, 2)), None) for side in (0, 1)]
    # the node that is contiguous on both sides, if there is one
    common = first[0] if first[0] == first[1] else None
    wanted = limit if first[0] == first[1] else min(_SIDE, max(1, limit // _SIDE))
    counts = _whole_run(nodes, limit, line) if line and common is None else {}
    if not counts:
        counts = _chain(nodes, SRC, wanted)
        for k, count in _chain(nodes, DST, wanted).items():
            counts[k] = max(count, counts.get(k, 1))

    def count_elements(counts: dict[int, int]) -> int:
        return prod(count if padded else min(count, nodes[k].valid) for k, count in counts.items())

    while count_elements(counts) > limit:
        # whole runs of the common node, instead of parts of more runs: accesses stay closer
        # together
        k = max(counts, key=lambda k: (counts[k] > 1 and k != common, counts[k]))
        counts[k] = -(-counts[k] // 2)
    for k in range(len(nodes) - 1, -1, -1):
        factor = limit // count_elements(counts)
        if factor > 1 and counts.get(k, 1) < nodes[k].extent:
            counts[k] = min(nodes[k].extent, counts.get(k, 1) * factor)
    return counts


def _whole_run(nodes: tuple[Node, ...], limit: int, line: int) -> dict[int, int]:
    """Return the counts of a tile that is one run of dst, if it has whole lines of src."""
    counts: dict[int, int] = {}
    room = limit
    for k in contiguous_loops(nodes, DST, backwards=True):
        extent = nodes[k].extent
        counts[k] = extent if extent <= room else 1 << room.bit_length() - 1
        room //= extent
        if room < 1 or nodes[k].valid < extent:
            break
    reads = _chain(nodes, SRC, line).items()
    return counts if all(counts.get(k, 0) >= count for k, count in reads) else {}


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
    box: Box, spec: TileSpec, counts: dict[int, int], start: int | None
) -> _TileOrder:
    """Return the order of dst or of src, whichever leaves cheaper moves; dst wins ties.

    `counts` are those of `_tile_counts`. Moving an element costs its bits, and beyond the caches
    writing rows of dst costs `_cost_of_rows` times that: elements may be moved out of src to make
    these rows longer.
    """
    widths, orders = spec.widths, []
    for side in (DST, SRC):
        order = _order_of_side(box.nodes, counts, side)
        inner = tuple(
            box.nodes[k]._replace(valid=min(counts[k], box.nodes[k].valid)) for k in order
        )
        extents = [node.valid for node in inner]
        # whether contiguous runs of a tile in src and in dst are long enough
        is_read, is_written = (
            run_of(inner, of) >= min(_MIN_RUN, prod(extents)) for of in (SRC, DST)
        )
        for reads in (True, False) if is_read else (False,):
            cost: float = widths[SRC] * (not reads) + widths[DST] * (not is_written)
            if spec.exceeds:
                scratch = (
                    node._replace(strides=(stride, *node.strides[1:]))
                    for node, stride in zip(inner, dense_strides(extents), strict=True)
                )
                read = inner if reads else tuple(scratch)
                cost += widths[DST] * _cost_of_rows(box, spec, start, read)
            orders.append((cost, _TileOrder(order, reads, is_written)))
    return min(orders, key=lambda pair: pair[0])[1]
