"""The source of kernels without a device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from memdesc import image_desc, memory_desc
from reorder import Attr
from reorder.opencl import kernel_texts
from reorder.opencl.kernel.launch import kernel_source
from reorder.opencl.kernel.profile import GPU
from reorder.opencl.kernel.transfers import OperandSpec
from tests.opencl.test_laws import image_cases
from tests.strategies import desc_pairs
from tests.unit.reorder.opencl.launches import (
    check_source,
    constant_operands,
    image_spec,
    launches,
)

if TYPE_CHECKING:
    from memdesc import ImageDesc, MemoryDesc


@settings(max_examples=80, deadline=None)
@given(image_cases())
def test_every_parameter_of_a_kernel_is_passed_by_name(
    case: tuple[MemoryDesc, ImageDesc, MemoryDesc],
) -> None:
    src, image, dst = case
    for launch in (
        *launches(OperandSpec(src), image_spec(image)),
        *launches(image_spec(image), OperandSpec(dst)),
    ):
        check_source(launch)


@settings(max_examples=80, deadline=None)
@given(desc_pairs(max_ndims=8).filter(lambda pair: pair[0].dtype.bits > 4))
def test_kernels_between_buffers_too(pair: tuple[MemoryDesc, MemoryDesc]) -> None:
    for launch in launches(OperandSpec(pair[0]), OperandSpec(pair[1])):
        check_source(launch)


@pytest.mark.parametrize("dtype", ["u8", "f16", "f32"])
@pytest.mark.parametrize("dims", [(81, 20), (300, 9), (9, 300), (300, 9, 7)])
def test_no_logical_operator_has_a_constant_operand(dims: tuple[int, ...], dtype: str) -> None:
    axes = "abc"[: len(dims)]
    src, dst = (OperandSpec(memory_desc(dims, dtype, tag)) for tag in (axes, axes[::-1]))
    for most in (16, 64, 128, 256, 1024):
        for launch in launches(src, dst, most, GPU._replace(min_tiled=0)):
            check_source(launch)
    assert constant_operands("const int one = 1; x = a < 1 && one ? 2 : 3;") == {"one"}
    assert constant_operands("if (a < 1 && 1) x = 2 || b;") == {"1", "2"}
    assert not constant_operands("int one = 1; x = a >= 4 && one && b == 4 || c;")


def test_no_comparison_of_floats_changes_a_nan() -> None:
    # NVIDIA's compiler makes minima of them, whose NaN has another sign and payload
    one, other = (memory_desc((64,), dtype, "a") for dtype in ("f16", "bf16"))
    (text,) = kernel_texts(one, other, Attr(saturate=True))
    assert not re.search(r"x [<>] ", text)
    (text,) = kernel_texts(one, other, Attr(src_scale=3.0, saturate=True))
    assert text.index("lowered < -") < text.index("as_float(0x7fc00000u) : saturated")


def test_source_depends_on_the_pattern_not_on_the_sizes() -> None:
    sources = set()
    # tiles depend on the sizes of small loops
    profile = GPU._replace(min_tiled=1 << 40)
    for dims in ((2, 8, 5, 6), (3, 64, 70, 900), (9, 256, 31, 33)):
        image = image_desc(dims, "f32", "in_out_channel")
        sources |= {
            kernel_source(launch.pattern)
            for launch in launches(
                OperandSpec(memory_desc(dims, "f32", "nchw")),
                image_spec(image),
                profile=profile,
            )
        }
    assert len(sources) == 1
