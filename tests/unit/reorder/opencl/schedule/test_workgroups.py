from __future__ import annotations

import pytest

from memdesc import image_desc, memory_desc
from reorder.opencl.schedule.profile import GPU
from reorder.opencl.schedule.transfers import OperandSpec
from tests.unit.reorder.opencl.launches import check_source, image_spec, launches


@pytest.mark.parametrize("max_work_items", [1, 32, 64, 100, 128, 256, 1024])
@pytest.mark.parametrize("dims", [(8, 4096), (4096, 8), (64, 64), (9, 300), (300, 9), (1000, 1000)])
@pytest.mark.parametrize("dtype", ["u8", "f16", "f32", "f64"])
def test_tiles_fit_into_local_memory_and_work_groups(
    dtype: str, dims: tuple[int, int], max_work_items: int
) -> None:
    src, dst = (OperandSpec(memory_desc(dims, dtype, tag), None, dtype) for tag in ("ab", "ba"))
    (launch,) = launches(src, dst, max_work_items, GPU._replace(min_tiled=0))
    check_source(launch)
    pattern = launch.pattern
    assert pattern.work_items <= max_work_items
    tile = pattern.tile or pattern.skewed
    assert tile is not None
    assert tile.local_words * 4 <= 32768


def test_work_groups_are_no_larger_than_the_device_has_them() -> None:
    image = image_desc((2, 64, 9, 9), "f32", "in_out_channel")
    for most in (1, 2, 7, 64, 100, 1024):
        for side in (
            OperandSpec(memory_desc(image.dims, "f32", "nhwc"), None, "f32"),
            OperandSpec(memory_desc(image.dims, "f32", "nchw"), None, "f32"),
        ):
            for launch in (
                *launches(side, image_spec(image), most),
                *launches(image_spec(image), side, most),
            ):
                assert launch.pattern.work_items <= most
                check_source(launch)
