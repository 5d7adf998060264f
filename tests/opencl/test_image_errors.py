"""Images that a device cannot hold: an error that says what is wrong, before any allocation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl
import pytest

from memdesc import OverlapError, UnsupportedFormatError, image_desc
from reorder import opencl, reorder
from reorder.opencl import image_formats
from tests.opencl.runtimes import refused

if TYPE_CHECKING:
    from tests.opencl.runtimes import Runtime

FLAGS = cl.mem_flags
IMAGE = image_desc((1, 5, 3, 2), "f32", "in_out_channel")
X = np.arange(30, dtype=np.float32).reshape(1, 5, 3, 2)


def test_a_too_large_image_is_refused_with_the_direction_and_the_limit(runtime: Runtime) -> None:
    device = runtime.device.device
    wide = image_desc((1, 4, 1, device.image2d_max_width + 1), "f32", "in_out_channel")
    limit = device.image2d_max_width
    with refused(f"width {limit + 1} is more than the {limit} pixels allowed on device"):
        opencl.pack(runtime.queue, np.zeros(wide.dims, np.float32), wide)
    high = image_desc((1, 4, device.image2d_max_height + 1, 1), "f32", "in_out_channel")
    limit = device.image2d_max_height
    with refused(f"height {limit + 1} is more than the {limit} pixels allowed on device"):
        opencl.pack(runtime.queue, np.zeros(high.dims, np.float32), high)


def test_a_device_without_images_is_refused_and_told_of_buffers(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    # no runtime here has such a device
    monkeypatch.setattr(image_formats, "_limits", lambda *_: ((0, 0), False, True))
    with refused("has no images; reorder into a buffer of image.desc instead"):
        opencl.pack(runtime.queue, X, IMAGE)


def test_dtypes_and_channel_types_without_images_are_refused(runtime: Runtime) -> None:
    desc = image_desc((1, 4, 2, 2), "bf16", "in_out_channel")
    with refused("OpenCL has no image of bf16 lanes; images hold f32, f16, s32, s8, u8"):
        opencl.pack(runtime.queue, reorder(np.zeros((1, 4, 2, 2), np.float32), "nchw"), desc)
    with refused("channel_type 'SNORM_INT8' (SNORM_INT8) does not hold f32; use FLOAT"):
        opencl.pack(runtime.queue, X, IMAGE, channel_type="SNORM_INT8")
    with refused("does not hold f32"):
        opencl.pack(runtime.queue, X, IMAGE, channel_type=cl.channel_type.UNORM_INT8)
    half = cl.create_image(
        runtime.context,
        FLAGS.READ_WRITE,
        cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.HALF_FLOAT),
        shape=(9, 9),
    )
    with refused(
        "dst is an image of RGBA HALF_FLOAT, "
        "but image_desc((1, 5, 3, 2), 'f32', 'in_out_channel') needs RGBA FLOAT"
    ):
        opencl.enqueue_pack(runtime.queue, X, half, IMAGE)


def test_a_format_that_no_device_has_is_refused(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    # runtimes here have all formats
    monkeypatch.setattr(image_formats, "_supported", lambda _: frozenset())
    with refused("the devices of the context have no images of RGBA FLOAT"):
        opencl.pack(runtime.queue, X, IMAGE)


def test_what_makes_no_image_is_refused_with_the_reason(runtime: Runtime) -> None:
    with pytest.raises(
        UnsupportedFormatError,
        match=re.escape("holds G g G^T of each 3x3 filter, which a reorder cannot make"),
    ):
        image_desc((8, 8, 3, 3), "f32", "winograd_filter")
    with refused("dw_conv2d_filter has multiplier m = 2: the kernels fill the image only for 1"):
        image_desc((2, 8, 3, 3), "f32", "dw_conv2d_filter")
    with refused("image_desc must be an ImageDesc, not 'in_out_channel'; see memdesc.image_desc"):
        opencl.pack(runtime.queue, X, "in_out_channel")  # type: ignore[arg-type] # the mistake


def test_an_image_onto_itself_is_refused(runtime: Runtime) -> None:
    image, _ = opencl.pack(runtime.queue, X, IMAGE)
    with pytest.raises(OverlapError, match="src and dst share device memory"):
        opencl.enqueue_reorder(runtime.queue, image, IMAGE, image, IMAGE)
