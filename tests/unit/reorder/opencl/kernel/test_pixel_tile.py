from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memdesc import ImageDesc, image_desc, memory_desc
from reorder.bench.device_cases import IMAGES
from reorder.opencl.kernel.pixel_tile import LANES, PixelTile
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
def test_tiles_of_an_image_have_each_pixel_once_and_fit_into_local_memory(case: DeviceCase) -> None:
    src, dst = case.descs
    (launch,) = launches(spec(src), spec(dst))
    check_source(launch)
    tile = launch.pattern.body
    assert isinstance(tile, PixelTile)
    assert tile.local_vectors * 16 <= 32768
    assert {*tile.run, *tile.rest} >= {LANES}
    # every pixel once
    steps = dict.fromkeys(range(len(tile.extents)), 1)
    for k, count in tile.order:
        steps[k] *= count
    assert tuple(steps.values()) == tile.extents


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
