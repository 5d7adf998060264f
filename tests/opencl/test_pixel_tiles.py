"""Tiles of pixels in local memory, between buffers and images, on every runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memdesc import image_desc, memory_desc
from reorder import Attr
from tests.opencl.runtimes import check_image

if TYPE_CHECKING:
    from tests.opencl.runtimes import Runtime

CASES = [
    ("nhwc", "in_out_channel", (2, 40, 7, 9)),
    ("nhwc", "in_out_channel", (1, 70, 3, 5)),
    ("nchw", "in_out_channel", (2, 8, 6, 16)),
    ("nChw16c", "in_out_channel", (2, 36, 5, 6)),
    ("nhwc", "in_out_height", (2, 32, 9, 5)),
    ("nhwc", "in_out_width", (2, 48, 5, 14)),
    ("oihw", "conv2d_filter", (9, 16, 3, 3)),
    ("oihw", "weight_height", (16, 24, 3, 3)),
    ("oihw", "weight_width", (6, 20, 3, 3)),
]


def check(
    runtime: Runtime,
    case: tuple[str, str, tuple[int, ...]],
    dtypes: tuple[str, str],
    attr: Attr | None = None,
) -> None:
    """Pack a buffer of one type into an image of another with `attr`, and unpack it without."""
    buffer, image, dims = case
    desc, pixels = memory_desc(dims, dtypes[0], buffer), image_desc(dims, dtypes[1], image)
    check_image(runtime, (desc, pixels, desc), 1, (attr, None), min_tiled=0)


def test_pixels_through_local_memory_keep_their_bits(runtime: Runtime) -> None:
    check(runtime, CASES[6], ("f16", "f16"))


def test_pixels_convert_on_their_way_through_local_memory(runtime: Runtime) -> None:
    check(runtime, CASES[0], ("f32", "f16"))


@pytest.mark.campaign
@pytest.mark.parametrize("dtype", ["f32", "f16", "u8", "s8", "s32"])
@pytest.mark.parametrize("case", CASES)
def test_pixels_of_all_types_keep_their_bits(
    case: tuple[str, str, tuple[int, ...]], dtype: str, runtime: Runtime
) -> None:
    check(runtime, case, (dtype, dtype))


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("dtypes", "attr"),
    [
        (("f32", "f16"), None),
        (("bf16", "f32"), None),
        (("f32", "s8"), Attr(src_scale=0.75, dst_zero_point=3)),
        (("u8", "f32"), Attr(src_zero_point=5, dst_scale=0.3)),
        (("s32", "u8"), Attr(saturate=True)),
    ],
)
@pytest.mark.parametrize("case", CASES)
def test_pixels_of_all_layouts_convert_too(
    case: tuple[str, str, tuple[int, ...]],
    dtypes: tuple[str, str],
    attr: Attr | None,
    runtime: Runtime,
) -> None:
    check(runtime, case, dtypes, attr)
