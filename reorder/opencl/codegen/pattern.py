"""What the source of a kernel depends on: the structure of a loop nest, without its numbers."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Access", "AccessKind", "GatherShape", "LoopShape", "Pattern"]


class AccessKind:
    """How a kernel accesses an operand.

    Constants, not an enum: patterns are made in every call.
    """

    NONE = "none"  # zeros are written, nothing is read
    BUFFER = "buffer"
    VECTOR = "vector"  # a buffer whose lanes are contiguous and aligned
    IMAGE = "image"


class Access(NamedTuple):
    """How an operand is read or written.

    `kind` is one of `AccessKind`, `element` names the type of an element: ``f16``,
    ``unorm8``, or raw bits such as ``b32``.
    """

    kind: str
    element: str


class LoopShape(NamedTuple):
    """How a loop is divided among work items.

    Each work item takes `steps` iterations, a tile apart. The work-groups along the loop
    are counted in dimension `grid_dim` of the NDRange.
    """

    steps: int
    grid_dim: int


class GatherShape(NamedTuple):
    """The structure of a `Lookup`: its dims; of each axis the dims and the number of blocks."""

    dims: tuple[int, ...]
    src: tuple[tuple[tuple[int, ...], int], ...]
    dst: tuple[tuple[tuple[int, ...], int], ...]


class Pattern(NamedTuple):
    """A kernel without its numbers.

    `lanes` has an entry for each element that a work item moves: its lane in src (in a
    buffer its index among the lanes), or -1 where zero is written. A work-group has
    `work_items` work items. Where `is_wide`, offsets take 64 bits.
    """

    src: Access
    dst: Access
    lanes: tuple[int, ...]
    loops: tuple[LoopShape, ...]
    work_items: int
    gathers: tuple[GatherShape, ...] = ()
    is_wide: bool = False
    is_transposed: bool = False
