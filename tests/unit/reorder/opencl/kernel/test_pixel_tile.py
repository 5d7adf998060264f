from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memdesc import ImageDesc, image_desc, memory_desc
from reorder.bench.device_cases import IMAGES
from reorder.opencl.kernel.pixel_tile import LANES, PixelTile
from reorder.opencl.kernel.profile import GPU, Profile
from reorder.opencl.kernel.transfers import OperandSpec
from tests.unit.reorder.opencl.launches import check_source, image_spec, launches

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from reorder.bench.device_cases import DeviceCase
    from reorder.opencl.kernel.launch import Launch


def spec(desc: MemoryDesc | ImageDesc) -> OperandSpec:
    if isinstance(desc, ImageDesc):
        return image_spec(desc)
    return OperandSpec(desc)


def is_tiled(launch: Launch) -> bool:
    return isinstance(launch.pattern.body, PixelTile)


@pytest.mark.parametrize("case", IMAGES)
def test_tiles_have_vectors_of_16_bytes_and_rectangles_of_an_image(case: DeviceCase) -> None:
    src, dst = case.descs
    (launch,) = launches(spec(src), spec(dst))
    check_source(launch)
    tile = launch.pattern.body
    assert isinstance(tile, PixelTile)
    assert tile.vector == 16
    # a run fills a cache line, but for rows of 9 elements
    assert tile.chunks * tile.vector >= 128
    assert tile.local_vectors * 16 <= 20480
    assert {*tile.run, *tile.rest} >= {LANES}
    # rectangles of 2 x 2 pixels or more
    assert min(steps for _, steps in tile.order[:2]) > 1
    # every pixel once
    steps = dict.fromkeys(range(len(tile.extents)), 1)
    for k, count in tile.order:
        steps[k] *= count
    assert tuple(steps.values()) == tile.extents


@pytest.mark.parametrize(
    ("buffer", "dtype", "dims", "profile"),
    [
        ("nchw", "f16", (2, 64, 55, 55), GPU),  # rows start at any element
        ("nhwc", "f32", (1, 8, 4, 4), GPU),  # small
    ],
)
def test_others_are_moved_without_tiles(
    buffer: str, dtype: str, dims: tuple[int, ...], profile: Profile
) -> None:
    image = image_desc(dims, dtype, "in_out_channel")
    operands = spec(memory_desc(dims, dtype, buffer)), spec(image)
    for src, dst in (operands, operands[::-1]):
        for launch in launches(src, dst, profile=profile):
            assert not is_tiled(launch)


def test_a_lane_without_data_is_moved_without_tiles() -> None:
    image = image_desc((4, 63, 56, 56), "f32", "in_out_channel")
    many = launches(spec(memory_desc(image.dims, "f32", "nchw")), spec(image))
    assert {is_tiled(launch) for launch in many} == {True, False}
    for launch in many:
        check_source(launch)
        is_whole = all(lane >= 0 for lane in launch.pattern.lanes)
        assert is_whole or not is_tiled(launch)


def test_small_work_groups_have_no_tiles_of_pixels() -> None:
    image = image_desc((4, 64, 56, 56), "f32", "in_out_channel")
    src, dst = spec(memory_desc(image.dims, "f32", "nhwc")), spec(image)
    assert not any(map(is_tiled, launches(src, dst, 64)))
    assert all(map(is_tiled, launches(src, dst, 256)))


@pytest.mark.parametrize(
    ("buffer", "image", "dims", "dtypes", "tiled"),
    [
        ("oihw", "conv2d_filter", (64, 64, 3, 3), ("f32", "f16"), True),
        ("oihw", "conv2d_filter", (64, 64, 3, 3), ("f64", "f16"), False),  # 64 bits
        ("nhwc", "in_out_channel", (4, 64, 56, 56), ("f32", "f16"), False),  # lanes together
    ],
)
def test_pixels_whose_lanes_are_apart_convert_in_tiles(
    buffer: str, image: str, dims: tuple[int, ...], dtypes: tuple[str, str], *, tiled: bool
) -> None:
    src, dst = spec(memory_desc(dims, dtypes[0], buffer)), spec(image_desc(dims, dtypes[1], image))
    for launch in (*launches(src, dst), *launches(dst, src)):
        check_source(launch)
        assert is_tiled(launch) == tiled
