"""Division of a box into tiles: a pure function of the box and of the widths of elements.

A tile is small enough for the scratch of a thread, and long enough on both sides that whole cache
lines are read and written. It is converted in the order of one side. On the other side it is
moved by the kernels for elements of one width; that is the side of the narrower elements, since
moving these costs less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reorder.cpu.convert.selection import is_scattered
from reorder.cpu.convert.tile_counts import SIDES, tile_counts
from reorder.cpu.convert.tile_order import (
    TileOrder,
    order_between,
    order_by_cost,
    order_of_side,
)
from reorder.cpu.convert.tile_pieces import covered_steps, each_piece
from reorder.cpu.target import BYTE_BITS
from reorder.plan.passes import simplify, src_and_dst, zeros_beyond

if TYPE_CHECKING:
    from reorder.cpu.convert.tile_counts import SlotLimits
    from reorder.plan.nodes import Box, Node

__all__ = ["Tile", "tile_box"]

# Elements are narrow if they have at most one over this of the others' width.
_NARROW = 2


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


def tile_box(
    box: Box,
    widths: tuple[int, int],
    limits: SlotLimits,
    *,
    in_place: bool,
    streams: bool = False,
    masks: bool = False,
) -> tuple[list[Tile], list[Box]]:
    """Cut a box into tiles and boxes of zeros.

    Parameters
    ----------
    box : Box
        Without lookups.
    widths : tuple of int
        Bits of elements of src and dst.
    limits : SlotLimits
        Elements that fit the scratch.
    in_place : bool
        Whether tiles that are contiguous on both sides need no scratch.
    streams : bool, optional
        Whether conversions write dst by non-temporal stores.
    masks : bool, optional
        Whether conversions may write zeros behind rows.
    """
    nodes = box.nodes
    if box.is_zero:
        return [], [src_and_dst(box)]
    if widths[0] == widths[1] < BYTE_BITS:
        # moved as bytes, the padding too
        counts = tile_counts(nodes, limits, SIDES, in_place=False, padded=True)
        order = TileOrder(order_of_side(nodes, counts, 1), reads=False, writes=False)
        return _tiles_of(box, counts, order, streams=streams)
    counts = tile_counts(nodes, limits, SIDES, in_place=in_place)
    order = order_by_cost(nodes, counts, widths, streams=streams, masks=masks)
    is_padded = _has_padding(nodes, counts) and not order.zeroes
    if in_place and not (order.reads and order.writes and not is_padded):
        # the tile needs the scratch, so it must fit there
        for whole in (limits.narrow, limits.elements):
            counts = tile_counts(nodes, limits, SIDES, in_place=False, whole=whole)
            order = order_by_cost(nodes, counts, widths, streams=streams, masks=masks)
            if _moves_narrow(order, widths) and not _moves_padding(nodes, counts, order):
                break
    if widths[0] == widths[1] and is_scattered(src_and_dst(box), widths[0]):
        order = order_between(nodes, counts)
    if _moves_padding(nodes, counts, order):
        # in a tile that is moved its padding costs nothing extra
        order = order_by_cost(nodes, counts, widths, writes=False, streams=streams)
    return _tiles_of(box, counts, order, streams=streams)


def _has_padding(nodes: tuple[Node, ...], counts: dict[int, int]) -> bool:
    """Whether tiles of these counts have padding."""
    return any(
        covered_steps(nodes[k], count, pads=True) > nodes[k].valid for k, count in counts.items()
    )


def _moves_padding(nodes: tuple[Node, ...], counts: dict[int, int], order: TileOrder) -> bool:
    """Whether a conversion would write dst, which has padding that it does not write."""
    return order.writes and _has_padding(nodes, counts) and not order.zeroes


def _moves_narrow(order: TileOrder, widths: tuple[int, int]) -> bool:
    """Whether a tile has only elements in the scratch that are at most half as wide as others."""
    src, dst = widths
    if min(widths) < BYTE_BITS or order.reads == order.writes:
        return False
    return _NARROW * dst <= src if order.reads else _NARROW * src <= dst


def _tiles_of(
    box: Box, counts: dict[int, int], order: TileOrder, *, streams: bool
) -> tuple[list[Tile], list[Box]]:
    """Return tiles that take some steps of each node, and the zeros beyond them."""
    pads = order.zeroes or not order.writes
    tiles = []
    for offsets, outer, inner in each_piece(box, counts, pads=pads):
        inside = sorted(inner, key=lambda numbered: order.nodes.index(numbered[0]))
        # if the data exceed the caches, successive tiles continue the rows of src
        loops = tuple(sorted(outer, key=lambda node: -abs(node.strides[0]))) if streams else outer
        nodes = tuple(node for _, node in inside)
        tiles.append(Tile(offsets, loops, nodes, order.reads, order.writes))
    covered = [covered_steps(node, counts.get(k, 0), pads=pads) for k, node in enumerate(box.nodes)]
    return tiles, list(simplify(tuple(zeros_beyond(src_and_dst(box), covered))))
