"""A box cut into pieces of equal tiles: the whole tiles along each node, and its tail."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reorder.plan.nodes import Node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.plan.nodes import Box

__all__ = ["Piece", "covered_steps", "each_piece"]


class Piece(NamedTuple):
    """Tiles of one shape: a loop nest over them, and the nest inside of each."""

    # where the first tile lies
    offsets: tuple[int, ...]
    # the loops over tiles
    outer: tuple[Node, ...]
    # the loops inside of a tile, by the number of their node in the box
    inner: tuple[tuple[int, Node], ...]


def each_piece(box: Box, counts: dict[int, int], *, pads: bool) -> Iterator[Piece]:
    """Yield pieces that cover the data of a box; with `pads` tails may have padding."""
    pieces = [Piece(box.offsets, (), ())]
    for k, node in enumerate(box.nodes):
        parts = list(_parts_of(node, counts.get(k, 0), pads=pads))
        pieces = [_extended(piece, k, node, part) for piece in pieces for part in parts]
    yield from pieces


class _Part(NamedTuple):
    """Equal tiles along one node: where they start, the loop over them, the loop inside."""

    start: int
    over: Node
    inside: Node | None


def _extended(piece: Piece, k: int, node: Node, part: _Part) -> Piece:
    """Return a piece extended by a part of one more node."""
    offsets = tuple(
        offset + part.start * stride
        for offset, stride in zip(piece.offsets, node.strides, strict=True)
    )
    outer, inner = piece.outer, piece.inner
    if part.over.extent > 1:
        outer = (*outer, part.over)
    if part.inside is not None and part.inside.extent > 1:
        inner = (*inner, (k, part.inside))
    return Piece(offsets, outer, inner)


def _parts_of(node: Node, count: int, *, pads: bool) -> Iterator[_Part]:
    """Yield the parts of a node that hold data; with a count of 0 it only loops over tiles."""
    if not count:
        yield _Part(0, Node(node.valid, node.valid, node.strides), None)
        return
    whole, tail = divmod(node.valid, count)
    if whole:
        strides = tuple(count * stride for stride in node.strides)
        yield _Part(0, Node(whole, whole, strides), Node(count, count, node.strides))
    if tail:
        start = whole * count
        extent = covered_steps(node, count, pads=pads) - start
        yield _Part(start, Node(1, 1, node.strides), Node(extent, tail, node.strides))


def covered_steps(node: Node, count: int, *, pads: bool) -> int:
    """Return how many steps of a node tiles write: with `pads` they fill the last tile."""
    if not count or not pads or node.valid % count == 0:
        return node.valid
    return min(node.extent, (node.valid // count + 1) * count)
