"""Which micro-kernel moves a box, and which of its nodes it takes: a pure function."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.plan.nodes import Node

if TYPE_CHECKING:
    from reorder.plan.nodes import Box

__all__ = ["KERNELS", "RUN", "STRIDED", "TILE", "TRANSPOSED", "Choice", "choose"]

RUN, STRIDED, TRANSPOSED = 0, 1, 2
KERNELS = {RUN: "run", STRIDED: "strided", TRANSPOSED: "transposed"}

_ONE = Node(1, 1, (1, 1))
# A vector's worth of elements: longer nests gain nothing from being longer.
_LANES = 16
_MAX_NEST = 4096
# Elements on a side of a cache tile: a nest of half of it is left as it is.
TILE = 256


class Choice(NamedTuple):
    """The loops of a box: `outer` walked, the others taken by the kernel.

    Nests come innermost node first. For `TRANSPOSED` the columns are contiguous in src and
    the rows in dst; otherwise the columns are one node, and the rows lie anywhere.
    """

    kernel: int
    outer: tuple[Node, ...]
    rows: tuple[Node, ...]
    columns: tuple[Node, ...]

    def __str__(self) -> str:
        parts = [" ".join(map(str, nodes)) for nodes in (self.outer, self.rows, self.columns)]
        return f"{KERNELS[self.kernel]}({parts[1]} | {parts[2]}) in [{parts[0]}]"


def choose(box: Box) -> Choice:
    """Choose the kernel for a box.

    Two nests that share no node, one contiguous in src and one in dst, are transposed; a
    node that is contiguous on both sides is copied as a run; what is left goes element by
    element.
    """
    nodes = box.nodes
    if not box.is_zero:
        columns, rows = _nests(nodes)
        if columns and rows:
            taken = {*columns, *rows}
            return Choice(
                TRANSPOSED, tuple(node for node in nodes if node not in taken), rows, columns
            )
    run = nodes[-1] if nodes else _ONE
    kernel = RUN if run.strides[1] == 1 and (run.strides[0] == 1 or box.is_zero) else STRIDED
    rows = _inside(nodes[:-1])
    return Choice(kernel, nodes[: len(nodes) - 1 - len(rows)], rows or (_ONE,), (run,))


def _inside(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the innermost nodes that a table of rows holds, innermost first."""
    rows: list[Node] = []
    size = 1
    for node in reversed(nodes):
        if (rows and rows[-1].valid < rows[-1].extent) or (
            2 * size >= TILE and size * node.extent >= 2 * TILE
        ):
            break
        rows.append(node)
        size *= node.extent
    return tuple(rows)


def _chain(nodes: tuple[Node, ...], side: int) -> tuple[Node, ...]:
    """Return the longest nest that is contiguous on a side, innermost first."""
    chain: list[Node] = []
    size = 1
    while True:
        follower = next(
            (node for node in nodes if node.strides[side] == size and node not in chain), None
        )
        if follower is None or (2 * size >= TILE and size * follower.extent >= 2 * TILE):
            return tuple(chain)
        chain.append(follower)
        size *= follower.extent
        if follower.valid < follower.extent:
            return tuple(chain)


def _nests(nodes: tuple[Node, ...]) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Return the two nests, cut so that they share no node and fill vectors best."""
    from_src, from_dst = _chain(nodes, 0), _chain(nodes, 1)
    best: tuple[tuple[int, ...], tuple[Node, ...], tuple[Node, ...]] = ((0, 0), (), ())
    for i in range(1, len(from_src) + 1):
        for j in range(1, len(from_dst) + 1):
            columns, rows = from_src[:i], from_dst[:j]
            if not set(columns).isdisjoint(rows):
                continue
            wide, high = prod(node.extent for node in columns), prod(node.extent for node in rows)
            score = (min(wide, _LANES) * min(high, _LANES), min(wide * high, _MAX_NEST))
            if score > best[0]:
                best = (score, columns, rows)
    return best[1], best[2]
