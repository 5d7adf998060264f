"""Sizes of tiles and work-groups on a device, as a table: data, not code."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["GPU", "Profile", "TileShape"]


class TileShape(NamedTuple):
    """Bytes of a run of src and of dst, and of a tile; the most work items of a group."""

    src_run: int
    dst_run: int
    tile: int
    work_items: int

    @property
    def runs(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Number of the operand and bytes of its run."""
        return (0, self.src_run), (1, self.dst_run)


class Profile(NamedTuple):
    """What suits a device: the shape of tiles for elements of 1, 2, 4 and 8 bytes.

    A nest that writes fewer than `min_tiled` bytes takes no tiles: their kernels are built for
    each layout, the others for all sizes.
    """

    tiles: tuple[TileShape, TileShape, TileShape, TileShape]
    min_tiled: int = 1 << 16

    def tile(self, nbytes: int) -> TileShape:
        """Return the shape for elements of some bytes."""
        return self.tiles[nbytes.bit_length() - 1]


GPU = Profile(
    (
        TileShape(128, 128, 16384, 256),
        TileShape(128, 128, 16384, 256),
        TileShape(128, 128, 16384, 256),
        TileShape(128, 128, 16384, 256),
    )
)
