"""Kernel text without a device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hypothesis import given, settings

from memdesc import image_desc, memory_desc
from reorder.opencl.codegen.params import fields
from reorder.opencl.codegen.source import kernel_text
from reorder.opencl.schedule.placement import Raster
from reorder.opencl.schedule.stages import Side, plan_stages
from tests.opencl.test_laws import image_cases
from tests.strategies import desc_pairs

if TYPE_CHECKING:
    from memdesc import ImageDesc, MemoryDesc
    from reorder.opencl.schedule.lower import Launch


def launches(src: Side, dst: Side, max_items: int = 1024) -> list[Launch]:
    return [
        launch
        for stage in plan_stages(src, dst, max_items, is_aligned=True)
        for launch in stage.launches
    ]


def image_side(image: ImageDesc) -> Side:
    return Side(image.desc, Raster.of(image), image.dtype.name)


def check_text(launch: Launch) -> None:
    text = kernel_text(launch.pattern)
    names = fields(launch.pattern)
    assert len(names) == len(set(names)) == len(launch.numbers)
    # every number that is used is passed, and every one that is passed is declared
    assert set(re.findall(r"\bn\.(\w+)", text)) <= set(names)
    struct = text[text.index("{") : text.index("}")]
    assert re.findall(r"\w+", struct.replace("index ", "")) == names
    assert text.count("{") == text.count("}")
    assert text.count("(") == text.count(")")
    limit = 2**63 if launch.pattern.is_wide else 2**31
    assert all(-limit <= number < limit for number in launch.numbers)
    assert all(
        0 < count <= (2**31 - 1 if axis == 0 else 65535) for axis, count in enumerate(launch.groups)
    )


@settings(max_examples=200, deadline=None)
@given(image_cases())
def test_every_number_of_a_kernel_is_passed_by_name(
    case: tuple[MemoryDesc, ImageDesc, MemoryDesc],
) -> None:
    src, image, dst = case
    for launch in (
        *launches(Side(src, None, image.dtype.name), image_side(image)),
        *launches(image_side(image), Side(dst, None, image.dtype.name)),
    ):
        check_text(launch)


@settings(max_examples=200, deadline=None)
@given(desc_pairs(max_ndims=8).filter(lambda pair: pair[0].dtype.bits > 4))
def test_kernels_between_buffers_too(pair: tuple[MemoryDesc, MemoryDesc]) -> None:
    for launch in launches(Side(pair[0], None, "bits"), Side(pair[1], None, "bits")):
        check_text(launch)


def test_text_depends_on_the_pattern_not_on_the_sizes() -> None:
    texts = set()
    for dims in ((2, 8, 5, 6), (3, 64, 70, 900), (9, 256, 31, 33)):
        image = image_desc(dims, "f32", "in_out_channel")
        texts |= {
            kernel_text(launch.pattern)
            for launch in launches(
                Side(memory_desc(dims, "f32", "nchw"), None, "f32"), image_side(image)
            )
        }
    assert len(texts) == 1


def test_a_kernel_reads_as_one_would_write_it() -> None:
    image = image_desc((1, 64, 8, 8), "f16", "in_out_channel")
    (launch,) = launches(
        Side(memory_desc(image.dims, "f16", "nhwc"), None, "f16"), image_side(image), max_items=256
    )
    assert kernel_text(launch.pattern) == GOLDEN


def test_large_tensors_take_64_bits_and_small_ones_do_not() -> None:
    for rows, is_wide in ((2**15, False), (2**17, True)):
        src, dst = memory_desc((rows, 2**15), "u8", "ab"), memory_desc((rows, 2**15), "u8", "ba")
        (launch,) = launches(Side(src, None, "u8"), Side(dst, None, "u8"))
        assert launch.pattern.is_wide == is_wide


def test_groups_are_no_larger_than_the_device_has_them() -> None:
    image = image_desc((2, 64, 9, 9), "f32", "in_out_channel")
    for most in (1, 2, 7, 64, 100, 1024):
        for side in (
            Side(memory_desc(image.dims, "f32", "nhwc"), None, "f32"),
            Side(memory_desc(image.dims, "f32", "nchw"), None, "f32"),
        ):
            for launch in (
                *launches(side, image_side(image), most),
                *launches(image_side(image), side, most),
            ):
                assert launch.pattern.items <= most
                check_text(launch)


GOLDEN = """\
typedef int index;
typedef struct {
    index src, dst_x, dst_y, extent0, valid0, shift0, src0, dst_x0;
    index dst_y0, extent1, valid1, shift1, src1, dst_x1, dst_y1, extent2;
    index valid2, shift2, src2, dst_x2, dst_y2;
} numbers;

__kernel __attribute__((reqd_work_group_size(128, 1, 1)))
void move(__global const half *restrict src, __write_only image2d_t dst, const numbers n)
{
    uint item = get_local_id(0);
    uint group0 = get_group_id(0);
    uint group1 = get_group_id(1);
    uint group2 = get_group_id(2);
    const index i0 = (((index)(group0)) << n.shift0) + (index)(item & ((1u << n.shift0) - 1));
    item >>= n.shift0;
    const index i1 = (((index)(group1)) << n.shift1) + (index)(item & ((1u << n.shift1) - 1));
    item >>= n.shift1;
    const index i2 = (((index)(group2)) << n.shift2) + (index)(item & ((1u << n.shift2) - 1));
    item >>= n.shift2;
    if (i0 >= n.extent0 || i1 >= n.extent1 || i2 >= n.extent2) return;
    const index src_at = n.src + i0 * n.src0 + i1 * n.src1 + i2 * n.src2;
    const int dst_x = (int)(n.dst_x + i0 * n.dst_x0 + i1 * n.dst_x1 + i2 * n.dst_x2);
    const int dst_y = (int)(n.dst_y + i0 * n.dst_y0 + i1 * n.dst_y1 + i2 * n.dst_y2);
    float4 v0 = (float4)(0);
    if (i0 < n.valid0 && i1 < n.valid1 && i2 < n.valid2) { v0 = vloada_half4((src_at) / 4, src); }
    { write_imagef(dst, (int2)(dst_x, dst_y), v0); }
}
"""
