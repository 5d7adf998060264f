"""In which order the nodes of a tile are taken, and on which sides it is converted in place."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.cpu.convert.row_tables import contiguous_nodes
from reorder.cpu.convert.tile_counts import MIN_RUN
from reorder.plan.nodes import Node

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["TileOrder", "order_between", "order_by_cost", "order_of_side"]

# A conversion writes rows of this length by non-temporal stores, a move does not: it costs so
# many times as much.
_LONG_BITS, _TEMPORAL_COST = 1 << 13, 2.5
_BYTE_BITS = 8
# 4-bit elements are moved without vectors: one costs as much as 64 bytes.
_PACKED_COST = 8 * 64


class TileOrder(NamedTuple):
    """The order of a tile's nodes, outermost first, by their number in the box."""

    nodes: list[int]
    # whether the tile is converted where it lies in src, and in dst
    reads: bool
    writes: bool


def order_of_side(nodes: tuple[Node, ...], chosen: Iterable[int], side: int) -> list[int]:
    """Return nodes as they follow each other on a side, outermost first."""
    return sorted(chosen, key=lambda k: (-abs(nodes[k].strides[side]), -nodes[k].extent))


def order_by_cost(
    nodes: tuple[Node, ...],
    counts: dict[int, int],
    widths: tuple[int, int],
    *,
    streams: bool,
    writes: bool = True,
) -> TileOrder:
    """Return the order of the side whose elements need not be moved: that of dst, then of src.

    Parameters
    ----------
    nodes : tuple of Node
        The nodes of the box.
    counts : dict
        What a tile takes of them, see `tile_counts`.
    widths : tuple of int
        Bits of elements of src and of dst.
    streams : bool
        Whether conversions write dst by non-temporal stores.
    writes : bool, optional
        Whether the tile may be converted in place in dst.
    """
    temporal = 1.0
    best: tuple[float, TileOrder] | None = None
    for side in (1, 0):
        order = order_of_side(nodes, counts, side)
        runs, total = _runs(nodes, counts, order)
        is_read, is_written = (run >= min(MIN_RUN, total) for run in runs)
        is_written &= writes
        if side == 1 and streams and runs[1] * widths[1] >= _LONG_BITS:
            temporal = _TEMPORAL_COST
        cost = _cost(widths[0]) * (not is_read) + temporal * _cost(widths[1]) * (not is_written)
        if best is None or cost < best[0]:
            best = cost, TileOrder(order, is_read, is_written)
    assert best is not None  # noqa: S101 - there are two sides
    return best[1]


def _runs(
    nodes: tuple[Node, ...], counts: dict[int, int], order: list[int]
) -> tuple[list[int], int]:
    """Return how many innermost elements of a tile are contiguous in src and in dst, and all."""
    taken = tuple(Node(counts[k], min(counts[k], nodes[k].valid), ()) for k in order)
    runs = []
    for side in (0, 1):
        inner = contiguous_nodes(taken, [nodes[k].strides[side] for k in order])
        runs.append(prod(node.valid for node in taken[len(taken) - inner :]))
    return runs, prod(node.valid for node in taken)


def order_between(nodes: tuple[Node, ...], counts: dict[int, int]) -> TileOrder:
    """Return an order in which both sides are moved by vectors, for boxes scattered on both.

    It is the order of dst, with some of its innermost nodes, but the last, inside of what is
    innermost in src.
    """
    *rest, innermost = order_of_side(nodes, counts, 1)
    src_innermost = min(rest, key=lambda k: abs(nodes[k].strides[0]))
    rest.remove(src_innermost)
    inside, size = [src_innermost], counts[src_innermost]
    while rest and size < MIN_RUN:
        inside.insert(0, rest.pop())
        size *= counts[inside[0]]
    return TileOrder([*rest, innermost, *inside], reads=False, writes=False)


def _cost(bits: int) -> int:
    """Return what moving an element costs, in bits."""
    return bits if bits >= _BYTE_BITS else _PACKED_COST
