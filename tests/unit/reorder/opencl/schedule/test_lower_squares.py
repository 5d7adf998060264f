from __future__ import annotations

import pytest

from memdesc import memory_desc
from reorder.opencl.schedule.profile import GPU, TileShape
from reorder.opencl.schedule.transfers import OperandSpec
from tests.unit.reorder.opencl.launches import check_source, launches

EVERY = GPU._replace(min_tiled=0)


def spec(dims: tuple[int, ...], tag: str) -> OperandSpec:
    return OperandSpec(memory_desc(dims, "u4", tag), None, "b4")


@pytest.mark.parametrize(
    ("dims", "src", "dst", "nbytes"),
    [
        ((64, 128), "ab", "ba", 32),
        # rows that start at multiples of 4 bytes
        ((72, 136), "ab", "ba", 8),
        ((2, 64, 8, 8), "nchw", "nhwc", 32),
        ((32, 3, 64), "abc", "cba", 32),
    ],
)
def test_squares_of_four_bits_are_elements_of_a_tile(
    dims: tuple[int, ...], src: str, dst: str, nbytes: int
) -> None:
    (launch,) = launches(spec(dims, src), spec(dims, dst), profile=EVERY)
    tile = launch.pattern.tile
    assert tile is not None
    assert tile.is_paired
    assert (tile.nbytes, tile.src.nbytes, tile.dst.nbytes) == (2, nbytes, nbytes)
    check_source(launch)


@pytest.mark.parametrize(
    ("dims", "dst"),
    [
        ((65, 128), "ba"),
        ((64, 127), "ba"),
        # rows of bytes, but not of words
        ((66, 130), "ba"),
        # runs of less than 16 bytes
        ((16, 64), "ba"),
        # one square along src
        ((64, 2), "ba"),
        # bytes as they are
        ((64, 128), "Ba32b"),
    ],
)
def test_other_elements_of_four_bits_are_no_squares(dims: tuple[int, int], dst: str) -> None:
    found = launches(spec(dims, "ab"), spec(dims, dst), profile=EVERY)
    assert not any(one.pattern.tile and one.pattern.tile.is_paired for one in found)


def test_few_bytes_take_no_squares() -> None:
    operands = spec((64, 128), "ab"), spec((64, 128), "ba")
    assert all(one.pattern.tile is None for one in launches(*operands))


@pytest.mark.parametrize(("shape", "is_paired"), [((128, 128), True), ((256, 128), False)])
def test_tiles_of_a_profile_that_take_more_than_48_kib_take_no_squares(
    shape: tuple[int, int], is_paired: bool
) -> None:
    profile = EVERY._replace(tiles=(TileShape(*shape, 16384, 256, 1), *GPU.tiles[1:]))
    dims = (4096, 4096)
    found = launches(spec(dims, "ab"), spec(dims, "ba"), profile=profile)
    tiles = [one.pattern.tile for one in found if one.pattern.tile is not None]
    assert any(tile.is_paired for tile in tiles) == is_paired
    assert all(4 * tile.local_words <= 48 << 10 for tile in tiles)
