"""What kernel text depends on: everything of a task but its numbers."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Access", "LookupShape", "LoopShape", "Pattern", "Space"]


class Space:
    """Where a side lies. Constants, not an enum: patterns are built on every call."""

    NOWHERE = "nowhere"  # zeros are written, nothing is read
    BUFFER = "buffer"
    VECTOR = "vector"  # a buffer whose lanes are contiguous and aligned
    IMAGE = "image"


class Access(NamedTuple):
    """How a side is read or written: its space, and the element (``f16``, ``unorm8``, or raw bits such as ``b32``)."""

    space: str
    element: str


class LoopShape(NamedTuple):
    """How a loop is shared out.

    Each work item takes `steps` of it, a tile apart; the groups along it are counted in
    dimension `axis` of the grid.
    """

    steps: int
    axis: int


class LookupShape(NamedTuple):
    """The structure of a lookup: the dims of each axis of src and dst, and how many blocks cut it."""

    dims: tuple[int, ...]
    src: tuple[tuple[tuple[int, ...], int], ...]
    dst: tuple[tuple[tuple[int, ...], int], ...]


class Pattern(NamedTuple):
    """A kernel without its numbers.

    A group has `items` work items. `lanes` has an entry for each element that an item moves: its lane in src (in a
    buffer its place in the row), or -1 where zero is written.
    """

    src: Access
    dst: Access
    lanes: tuple[int, ...]
    loops: tuple[LoopShape, ...]
    items: int
    lookups: tuple[LookupShape, ...] = ()
    is_wide: bool = False
    is_transposed: bool = False
