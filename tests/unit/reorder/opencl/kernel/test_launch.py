from __future__ import annotations

from memdesc import image_desc, memory_desc
from reorder.opencl.kernel.transfers import OperandSpec
from tests.unit.reorder.opencl.launches import check_source, image_spec, launches


def test_work_groups_are_no_larger_than_the_device_has_them() -> None:
    image = image_desc((2, 64, 9, 9), "f32", "in_out_channel")
    for most in (1, 2, 7, 64, 100, 1024):
        for side in (
            OperandSpec(memory_desc(image.dims, "f32", "nhwc")),
            OperandSpec(memory_desc(image.dims, "f32", "nchw")),
        ):
            for launch in (
                *launches(side, image_spec(image), most),
                *launches(image_spec(image), side, most),
            ):
                assert launch.pattern.work_items <= most
                check_source(launch)


def test_large_tensors_take_64_bits_and_small_ones_do_not() -> None:
    for rows, is_wide in ((2**15, False), (2**17, True)):
        src, dst = memory_desc((rows, 2**15), "u8", "ab"), memory_desc((rows, 2**15), "u8", "ba")
        (launch,) = launches(OperandSpec(src), OperandSpec(dst))
        assert launch.pattern.is_wide == is_wide
