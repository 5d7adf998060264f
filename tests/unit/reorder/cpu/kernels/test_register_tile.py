"""The shapes of tiles."""

from __future__ import annotations

from reorder.cpu.kernels.register_tile import tile_heights
from reorder.cpu.target import is_arm


def test_tiles_are_as_high_as_a_cache_line_and_as_parts_of_it() -> None:
    # half a line on 64-bit ARM, whose registers hold no more
    assert tile_heights(8) == ((32, 16, 8, 4) if is_arm() else (64, 32, 16, 8, 4))
    assert tile_heights(8, streams=True) == (64, 32, 16, 8, 4)
    assert tile_heights(16) == (32, 16, 8, 4, 2)
    assert tile_heights(32) == (16, 8, 4, 2)
    assert tile_heights(64) == (8, 4, 2)
