"""How a box that converts is cut into tiles: a pure function of the box and of two widths.

A tile is small enough for the scratch of a thread, and long enough on both sides that cache
lines are read and written whole. It is converted in the order of one side, and moved on the
other, by the kernels that move elements of one width: on the narrower one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reorder.cpu.convert.selection import is_scattered
from reorder.cpu.convert.tile_counts import SIDES, SIDES_16_BIT, tile_counts
from reorder.cpu.convert.tile_order import (
    TileOrder,
    order_between,
    order_by_cost,
    order_of_side,
)
from reorder.cpu.convert.tile_pieces import covered_steps, each_piece
from reorder.plan.passes import simplify, src_and_dst, zeros_beyond

if TYPE_CHECKING:
    from reorder.plan.nodes import Box, Node

__all__ = ["Tile", "tile_box"]

_BYTE_BITS, _HALF_BITS = 8, 16


class Tile(NamedTuple):
    """Equal tiles: where the first lies, the loops over tiles, and those inside of one.

    `inner` is in the order in which the tile is converted, outermost first; `reads` and `writes`
    say whether that is done in place in src, and in dst.
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


def tile_box(
    box: Box, widths: tuple[int, int], limit: int, *, in_place: bool, streams: bool = False
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
    in_place : bool
        Whether tiles that are contiguous on both sides need no scratch.
    streams : bool, optional
        Whether conversions write dst by non-temporal stores.
    """
    nodes = box.nodes
    if box.is_zero:
        return [], [src_and_dst(box)]
    if widths[0] == widths[1] < _BYTE_BITS:
        # moved as bytes, and padding with them
        counts = tile_counts(nodes, limit, SIDES, in_place=False, padded=True)
        order = TileOrder(order_of_side(nodes, counts, 1), reads=False, writes=False)
        return _tiles_of(box, counts, order, streams=streams)

    def has_padding(counts: dict[int, int]) -> bool:
        return any(
            covered_steps(nodes[k], count, pads=True) > nodes[k].valid
            for k, count in counts.items()
        )

    sides = SIDES_16_BIT if streams and min(widths) == _HALF_BITS else SIDES
    counts = tile_counts(nodes, limit, sides, in_place=in_place)
    order = order_by_cost(nodes, counts, widths, streams=streams)
    if in_place and not (order.reads and order.writes and not has_padding(counts)):
        # it needs the scratch, so it must fit
        counts = tile_counts(nodes, limit, sides, in_place=False)
        order = order_by_cost(nodes, counts, widths, streams=streams)
    if widths[0] == widths[1] and is_scattered(src_and_dst(box)):
        order = order_between(nodes, counts)
    if order.writes and has_padding(counts):
        # moves write padding, conversions do not; a tile that is moved anyway gets it for free
        order = order_by_cost(nodes, counts, widths, writes=False, streams=streams)
    return _tiles_of(box, counts, order, streams=streams)


def _tiles_of(
    box: Box, counts: dict[int, int], order: TileOrder, *, streams: bool
) -> tuple[list[Tile], list[Box]]:
    """Return tiles that take some steps of each node, and the zeros beyond them."""
    pads = not order.writes
    tiles = []
    for offsets, outer, inner in each_piece(box, counts, pads=pads):
        inside = sorted(inner, key=lambda numbered: order.nodes.index(numbered[0]))
        # beyond the caches, tiles that continue the rows of src follow each other
        loops = tuple(sorted(outer, key=lambda node: -abs(node.strides[0]))) if streams else outer
        nodes = tuple(node for _, node in inside)
        tiles.append(Tile(offsets, loops, nodes, order.reads, order.writes))
    covered = [covered_steps(node, counts.get(k, 0), pads=pads) for k, node in enumerate(box.nodes)]
    return tiles, list(simplify(tuple(zeros_beyond(src_and_dst(box), covered))))
