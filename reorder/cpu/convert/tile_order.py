"""The order of the nodes of a tile, and the sides on which it is converted in place."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.cpu.convert.records import ZEROED_LANES
from reorder.cpu.convert.row_tables import contiguous_nodes
from reorder.cpu.convert.tile_counts import LONG_ROW_BITS, MIN_RUN
from reorder.cpu.convert.tile_pieces import covered_steps
from reorder.cpu.kernels.interleave import MOST
from reorder.cpu.target import BYTE_BITS
from reorder.plan.nodes import Node

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["TileOrder", "order_between", "order_by_cost", "order_of_side"]

# A conversion writes long rows by non-temporal stores, a move does not: writing them costs a move
# this many times as much.
_TEMPORAL_COST = 2.5
# 4-bit elements are moved as bytes, which are unpacked or packed in a step of their own.
_PACKED_COST = 2 * BYTE_BITS


class TileOrder(NamedTuple):
    """The order of a tile's nodes, outermost first, by their number in the box."""

    nodes: list[int]
    # whether the tile is read from src in place, and written to dst in place
    reads: bool
    writes: bool
    # whether the conversion writes zeros behind its rows in dst
    zeroes: bool = False


def order_of_side(nodes: tuple[Node, ...], chosen: Iterable[int], side: int) -> list[int]:
    """Return nodes in the order of their strides on a side, outermost first."""
    return sorted(chosen, key=lambda k: (-abs(nodes[k].strides[side]), -nodes[k].extent))


def order_by_cost(
    nodes: tuple[Node, ...],
    counts: dict[int, int],
    widths: tuple[int, int],
    *,
    streams: bool,
    masks: bool = False,
    writes: bool = True,
) -> TileOrder:
    """Return the order of dst or of src, whichever leaves cheaper moves; dst wins ties.

    Parameters
    ----------
    nodes : tuple of Node
        The nodes of the box.
    counts : dict
        The steps of each that a tile takes, see `tile_counts`.
    widths : tuple of int
        Bits of elements of src and of dst.
    streams : bool
        Whether conversions write dst by non-temporal stores.
    masks : bool, optional
        Whether conversions may write zeros behind rows, after rows of `ZEROED_LANES`.
    writes : bool, optional
        Whether the tile may be converted in place in dst.
    """
    temporal = 1.0
    best: tuple[float, TileOrder] | None = None
    for side in (1, 0):
        order = order_of_side(nodes, counts, side)
        runs, total = _runs(nodes, counts, order)
        is_read, is_written = (run >= min(MIN_RUN, total) for run in runs)
        zeroes = masks and side == 1 and _ends_in_zeros(nodes, counts, order, runs[0])
        if zeroes:
            # masked loads and stores are as fast for rows of any length
            is_read = is_written = True
        is_written &= writes
        if side == 1 and streams and runs[1] * widths[1] >= LONG_ROW_BITS:
            temporal = _TEMPORAL_COST
        cost = _cost(widths[0]) * (not is_read) + temporal * _cost(widths[1]) * (not is_written)
        if best is None or cost < best[0]:
            best = cost, TileOrder(order, is_read, is_written, zeroes)
    assert best is not None  # noqa: S101 - there are two sides
    return best[1]


def _ends_in_zeros(
    nodes: tuple[Node, ...], counts: dict[int, int], order: list[int], run: int
) -> bool:
    """Whether all padding of tiles follows short rows that are runs of src and of dst.

    `run` is the length of the runs of src: if they are longer, they are converted as such, and
    moved. Operands have one value or neighbouring values along such a row.
    """
    if not order:
        return False
    innermost = order[-1]
    covered = {k: covered_steps(nodes[k], counts[k], pads=True) for k in order}
    padded = [k for k in order if covered[k] > nodes[k].valid]
    src, dst, *others = nodes[innermost].strides
    is_row = src == dst == 1 and all(other in {0, 1} for other in others)
    is_short = run <= counts[innermost] <= ZEROED_LANES
    return padded == [innermost] and is_row and is_short


def _runs(
    nodes: tuple[Node, ...], counts: dict[int, int], order: list[int]
) -> tuple[list[int], int]:
    """Return the lengths of the contiguous runs of a tile in src and in dst, and its size."""
    taken = tuple(Node(counts[k], min(counts[k], nodes[k].valid), ()) for k in order)
    runs = []
    for side in (0, 1):
        inner = contiguous_nodes(taken, [nodes[k].strides[side] for k in order])
        runs.append(prod(node.valid for node in taken[len(taken) - inner :]))
    return runs, prod(node.valid for node in taken)


def order_between(nodes: tuple[Node, ...], counts: dict[int, int]) -> TileOrder:
    """Return an order in which both sides are moved by vectors, for boxes scattered on both.

    The innermost nodes of src and of dst change places in one of the two moves, and the other one
    moves runs. If the second move does it, the order from outermost to innermost is: nodes in the
    order of dst; the innermost node of dst; as many of the next inner nodes of dst as make
    `MIN_RUN` elements; the innermost node of src. If the first one does: the innermost node of
    src; nodes in the order of dst.
    """
    *rest, innermost = order_of_side(nodes, counts, 1)
    src_innermost = min(rest, key=lambda k: abs(nodes[k].strides[0]))
    rest.remove(src_innermost)
    size, dst_size = counts[src_innermost], counts[innermost]
    # few elements are interleaved; runs of three fill no wider element
    if size <= MOST and (dst_size > MOST or size & (size - 1)):
        return TileOrder([src_innermost, *rest, innermost], reads=False, writes=False)
    inside = [src_innermost]
    while rest and size < MIN_RUN:
        inside.insert(0, rest.pop())
        size *= counts[inside[0]]
    return TileOrder([*rest, innermost, *inside], reads=False, writes=False)


def _cost(bits: int) -> int:
    """Return what moving an element costs, in bits."""
    return bits if bits >= BYTE_BITS else _PACKED_COST
