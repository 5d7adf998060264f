"""The source of kernels without a device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from memdesc import image_desc, memory_desc
from reorder.opencl.codegen.params import param_names
from reorder.opencl.codegen.source import kernel_source
from reorder.opencl.schedule.placement import ImageShape
from reorder.opencl.schedule.transfers import OperandSpec, plan_transfers
from tests.opencl.test_laws import image_cases
from tests.strategies import desc_pairs

if TYPE_CHECKING:
    from memdesc import ImageDesc, MemoryDesc
    from reorder.opencl.schedule.lower import Launch


def launches(src: OperandSpec, dst: OperandSpec, max_work_items: int = 1024) -> list[Launch]:
    return [
        launch
        for transfer in plan_transfers(src, dst, max_work_items, is_aligned=True)
        for launch in transfer.launches
    ]


def image_spec(image: ImageDesc) -> OperandSpec:
    return OperandSpec(image.desc, ImageShape.of(image), image.dtype.name)


def check_source(launch: Launch) -> None:
    source = kernel_source(launch.pattern)
    names = param_names(launch.pattern)
    assert len(names) == len(set(names)) == len(launch.params)
    # every parameter that is used is passed, and every one that is passed is declared
    assert set(re.findall(r"\bp\.(\w+)", source)) <= set(names)
    struct = source[source.index("{") : source.index("}")]
    assert re.findall(r"\w+", struct.replace("index_t ", "")) == names
    assert source.count("{") == source.count("}")
    assert source.count("(") == source.count(")")
    limit = 2**63 if launch.pattern.is_wide else 2**31
    assert all(-limit <= value < limit for value in launch.params)
    assert all(
        0 < count <= (2**31 - 1 if axis == 0 else 65535) for axis, count in enumerate(launch.groups)
    )


@settings(max_examples=200, deadline=None)
@given(image_cases())
def test_every_parameter_of_a_kernel_is_passed_by_name(
    case: tuple[MemoryDesc, ImageDesc, MemoryDesc],
) -> None:
    src, image, dst = case
    for launch in (
        *launches(OperandSpec(src, None, image.dtype.name), image_spec(image)),
        *launches(image_spec(image), OperandSpec(dst, None, image.dtype.name)),
    ):
        check_source(launch)


@settings(max_examples=200, deadline=None)
@given(desc_pairs(max_ndims=8).filter(lambda pair: pair[0].dtype.bits > 4))
def test_kernels_between_buffers_too(pair: tuple[MemoryDesc, MemoryDesc]) -> None:
    for launch in launches(OperandSpec(pair[0], None, "bits"), OperandSpec(pair[1], None, "bits")):
        check_source(launch)


def test_source_depends_on_the_pattern_not_on_the_sizes() -> None:
    sources = set()
    for dims in ((2, 8, 5, 6), (3, 64, 70, 900), (9, 256, 31, 33)):
        image = image_desc(dims, "f32", "in_out_channel")
        sources |= {
            kernel_source(launch.pattern)
            for launch in launches(
                OperandSpec(memory_desc(dims, "f32", "nchw"), None, "f32"), image_spec(image)
            )
        }
    assert len(sources) == 1


def test_a_kernel_reads_as_one_would_write_it() -> None:
    image = image_desc((1, 64, 8, 8), "f16", "in_out_channel")
    (launch,) = launches(
        OperandSpec(memory_desc(image.dims, "f16", "nhwc"), None, "f16"),
        image_spec(image),
        max_work_items=256,
    )
    assert kernel_source(launch.pattern) == GOLDEN


def test_large_tensors_take_64_bits_and_small_ones_do_not() -> None:
    for rows, is_wide in ((2**15, False), (2**17, True)):
        src, dst = memory_desc((rows, 2**15), "u8", "ab"), memory_desc((rows, 2**15), "u8", "ba")
        (launch,) = launches(OperandSpec(src, None, "u8"), OperandSpec(dst, None, "u8"))
        assert launch.pattern.is_wide == is_wide


@pytest.mark.parametrize("max_work_items", [1, 32, 64, 100, 128, 256, 1024])
@pytest.mark.parametrize("dims", [(8, 4096), (4096, 8), (64, 64), (9, 300), (300, 9), (1000, 1000)])
@pytest.mark.parametrize("dtype", ["u8", "f16", "f32", "f64"])
def test_tiles_in_local_memory_have_no_more_rows_or_columns_than_work_items(
    dtype: str, dims: tuple[int, int], max_work_items: int
) -> None:
    src, dst = (OperandSpec(memory_desc(dims, dtype, tag), None, dtype) for tag in ("ab", "ba"))
    (launch,) = launches(src, dst, max_work_items)
    check_source(launch)
    pattern = launch.pattern
    assert pattern.work_items <= max_work_items
    if pattern.is_transposed:
        values = dict(zip(param_names(pattern), launch.params, strict=True))
        width, height = 1 << values["shift0"], pattern.loops[1].steps << values["shift1"]
        assert max(width, height) <= pattern.work_items
        assert width * height == pattern.work_items * pattern.loops[1].steps


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


GOLDEN = """\
typedef int index_t;
typedef struct {
    index_t src, dst_x, dst_y, extent0, valid0, shift0, src0, dst_x0;
    index_t dst_y0, extent1, valid1, shift1, src1, dst_x1, dst_y1, extent2;
    index_t valid2, shift2, src2, dst_x2, dst_y2;
} params_t;

__kernel __attribute__((reqd_work_group_size(128, 1, 1)))
void reorder(__global const half *restrict src, __write_only image2d_t dst, const params_t p)
{
    uint item = get_local_id(0);
    uint group0 = get_group_id(0);
    uint group1 = get_group_id(1);
    uint group2 = get_group_id(2);
    const index_t i0 = (((index_t)(group0)) << p.shift0) + (index_t)(item & ((1u << p.shift0) - 1));
    item >>= p.shift0;
    const index_t i1 = (((index_t)(group1)) << p.shift1) + (index_t)(item & ((1u << p.shift1) - 1));
    item >>= p.shift1;
    const index_t i2 = (((index_t)(group2)) << p.shift2) + (index_t)(item & ((1u << p.shift2) - 1));
    item >>= p.shift2;
    if (i0 >= p.extent0 || i1 >= p.extent1 || i2 >= p.extent2) return;
    const index_t src_offset = p.src + i0 * p.src0 + i1 * p.src1 + i2 * p.src2;
    const int dst_x = (int)(p.dst_x + i0 * p.dst_x0 + i1 * p.dst_x1 + i2 * p.dst_x2);
    const int dst_y = (int)(p.dst_y + i0 * p.dst_y0 + i1 * p.dst_y1 + i2 * p.dst_y2);
    float4 v0 = (float4)(0);
    if (i0 < p.valid0 && i1 < p.valid1 && i2 < p.valid2) \
{ v0 = vloada_half4((src_offset) / 4, src); }
    { write_imagef(dst, (int2)(dst_x, dst_y), v0); }
}
"""
