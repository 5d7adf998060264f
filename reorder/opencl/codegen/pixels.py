"""Tiles between a buffer and an image: runs of the buffer, and the order of their pixels."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

__all__ = ["LANES", "PixelTile"]

# the index of the lanes of a pixel among the loops of a tile
LANES = -1
_LANES, _VECTOR = 4, 16


class PixelTile(NamedTuple):
    """A part of a nest between a buffer and an image that goes through local memory.

    `extents` has the steps of each loop of the pattern in a tile; a pixel has 4 elements of
    `nbytes` bytes. The loops of `run`, innermost first, are contiguous in the buffer, where
    vectors of `vector` bytes are moved; `rest` are the other loops of the tile. Either has `LANES`.
    Local memory holds the tile in that order, with `gap` bytes more between runs. `order` has
    (loop, steps), innermost first: adjacent work items take adjacent pixels of the image. A loop
    may occur in it again.
    """

    extents: tuple[int, ...]
    nbytes: int
    run: tuple[int, ...]
    rest: tuple[int, ...]
    vector: int
    order: tuple[tuple[int, int], ...]
    gap: int = 0

    def steps(self, loop: int) -> int:
        """Return the steps of a loop in a tile."""
        return _LANES if loop == LANES else self.extents[loop]

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.vector // self.nbytes

    @property
    def chunks(self) -> int:
        """Vectors of a run."""
        return prod(map(self.steps, self.run)) // self.lanes

    @property
    def vectors(self) -> int:
        """Vectors of a tile."""
        return self.chunks * prod(map(self.steps, self.rest))

    @property
    def pixels(self) -> int:
        """Pixels of a tile."""
        return prod(self.extents)

    @property
    def has_whole_pixels(self) -> bool:
        """Whether the lanes of a pixel are contiguous in the buffer."""
        return self.run[0] == LANES

    @property
    def local_strides(self) -> dict[int, int]:
        """Bytes between steps of each loop in local memory; runs start at multiples of 16."""
        strides, stride = {}, self.nbytes
        for k in self.run:
            strides[k] = stride
            stride *= self.steps(k)
        stride = -(-stride // _VECTOR) * _VECTOR + self.gap
        for k in self.rest:
            strides[k] = stride
            stride *= self.steps(k)
        return strides

    @property
    def local_vectors(self) -> int:
        """Vectors of 16 bytes of local memory."""
        run = -(-self.chunks * self.vector // _VECTOR) * _VECTOR + self.gap
        return -(-run * prod(map(self.steps, self.rest)) // _VECTOR)
