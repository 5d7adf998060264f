"""Patterns: the structure of a loop nest without its numbers, which decides the kernel source."""

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

    Each work item runs `steps` iterations, as far apart as there are work items along the loop.
    `grid_dim` is the dimension of the NDRange that counts the work-groups along it.
    """

    steps: int
    grid_dim: int


class GatherShape(NamedTuple):
    """The structure of a `Lookup`: its dims; for each axis its dims and its number of blocks."""

    dims: tuple[int, ...]
    src: tuple[tuple[tuple[int, ...], int], ...]
    dst: tuple[tuple[tuple[int, ...], int], ...]


class Pattern(NamedTuple):
    """What the source of a kernel depends on.

    `lanes` has an entry for each element that a work item moves: its lane in an image src, its
    index among the lanes for a buffer, or -1 if zero is written. A work-group has `work_items`
    work items. With `is_wide` offsets have 64 bits. With `is_transposed` loops 0 and 1 go through
    a tile in local memory.
    """

    src: Access
    dst: Access
    lanes: tuple[int, ...]
    loops: tuple[LoopShape, ...]
    work_items: int
    gathers: tuple[GatherShape, ...] = ()
    is_wide: bool = False
    is_transposed: bool = False
