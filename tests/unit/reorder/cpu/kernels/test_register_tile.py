"""The shapes of tiles."""

from __future__ import annotations

from reorder.cpu.kernels.loop_group import TileShape
from reorder.cpu.kernels.register_tile import tile_heights, tile_shapes
from reorder.cpu.target import is_arm


def test_tiles_are_as_high_as_a_cache_line_and_as_parts_of_it() -> None:
    # half a line on 64-bit ARM, whose registers hold no more
    assert tile_heights(8) == ((32, 16, 8, 4) if is_arm() else (64, 32, 16, 8, 4))
    assert tile_heights(8, streams=True) == (64, 32, 16, 8, 4)
    assert tile_heights(16) == (32, 16, 8, 4, 2)
    assert tile_heights(32) == (16, 8, 4, 2)
    assert tile_heights(64) == (8, 4, 2)


def test_tiles_have_one_lane_where_they_are_lower_than_a_cache_line() -> None:
    for bits in (8, 16, 32):
        assert tile_shapes(bits, 256 // bits) == [TileShape(256 // bits, 128 // bits)]


def test_tiles_as_high_as_a_cache_line_have_rows_of_whole_lanes() -> None:
    for bits in (16, 32, 64):
        line, lane = 512 // bits, 128 // bits
        assert all(shape.width % lane == 0 for shape in tile_shapes(bits, line))
        if is_arm():
            assert tile_shapes(bits, line) == [TileShape(line, 2 * lane)]
            assert tile_shapes(bits, line, streams=True) == [TileShape(line, lane)]
