from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memdesc import memory_desc
from reorder.opencl.kernel.profile import GPU, TileShape
from reorder.opencl.kernel.skewed import Skewed
from reorder.opencl.kernel.tile import Tile, spread
from reorder.opencl.kernel.transfers import OperandSpec
from tests.unit.reorder.opencl.launches import check_source, launches

if TYPE_CHECKING:
    from reorder.opencl.kernel.launch import Launch

EVERY = GPU._replace(min_tiled=0)


def tiles_of(many: list[Launch]) -> list[Tile]:
    return [one.pattern.body for one in many if isinstance(one.pattern.body, Tile)]


def spec(dims: tuple[int, ...], tag: str) -> OperandSpec:
    return OperandSpec(memory_desc(dims, "u4", tag))


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
    tile = launch.pattern.body
    assert isinstance(tile, Tile)
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
    assert not any(tile.is_paired for tile in tiles_of(found))


def test_few_bytes_take_no_squares() -> None:
    operands = spec((64, 128), "ab"), spec((64, 128), "ba")
    assert not tiles_of(launches(*operands))


@pytest.mark.parametrize(("shape", "is_paired"), [((128, 128), True), ((256, 128), False)])
def test_tiles_of_a_profile_that_take_more_than_48_kib_take_no_squares(
    shape: tuple[int, int], is_paired: bool
) -> None:
    profile = EVERY._replace(tiles=(TileShape(*shape, 16384, 256), *GPU.tiles[1:]))
    dims = (4096, 4096)
    found = launches(spec(dims, "ab"), spec(dims, "ba"), profile=profile)
    tiles = tiles_of(found)
    assert any(tile.is_paired for tile in tiles) == is_paired
    assert all(4 * tile.local_words <= 48 << 10 for tile in tiles)


@pytest.mark.parametrize("dtype", ["u8", "f16", "f32"])
def test_work_items_of_a_subgroup_store_and_load_different_banks(dtype: str) -> None:
    src, dst = (OperandSpec(memory_desc((4096, 4096), dtype, tag)) for tag in ("ab", "ba"))
    (launch,) = launches(src, dst)
    tile = launch.pattern.body
    assert isinstance(tile, Tile)
    assert spread(tile, launch.pattern.work_items) == tile
    moved = [word ^ sum(((word >> s) & m) for s, m in tile.swizzle) for word in range(1024)]
    # a swizzle moves words within a row of banks, and no two to one place
    assert sorted(moved) == list(range(1024))


@pytest.mark.parametrize("max_work_items", [1, 32, 64, 100, 128, 256, 1024])
@pytest.mark.parametrize("dims", [(8, 4096), (4096, 8), (64, 64), (9, 300), (300, 9), (1000, 1000)])
@pytest.mark.parametrize("dtype", ["u8", "f16", "f32", "f64"])
def test_tiles_fit_into_local_memory_and_work_groups(
    dtype: str, dims: tuple[int, int], max_work_items: int
) -> None:
    src, dst = (OperandSpec(memory_desc(dims, dtype, tag)) for tag in ("ab", "ba"))
    (launch,) = launches(src, dst, max_work_items, GPU._replace(min_tiled=0))
    check_source(launch)
    pattern = launch.pattern
    assert pattern.work_items <= max_work_items
    tile = pattern.body
    assert isinstance(tile, Tile | Skewed)
    assert tile.local_words * 4 <= 32768
