"""Images of every name, with and without slices: packed, read back, unpacked, made of another."""

from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from memdesc import ImageDesc, MemdescError, data_type, image_desc, memory_desc
from memdesc.names.images import IMAGES
from reorder import Memory, opencl, reorder
from tests.images import small_dims
from tests.opencl.runtimes import Runtime, check

# large enough for tiles in local memory
_LARGE = ("executorch_channels_packed", "tvm_texture", "tvm_texture_nhwc", "tflite_gpu_texture_2d")
_HOST = ("abcd", "acdb", "aBcd16b", "cdab", "aBcd2b", "ABcd3b2a", "dcba")


def check_both_ways(runtime: Runtime, image: ImageDesc, tags: tuple[str, str], seed: int) -> None:
    """Compare an image made of a layout, and what another layout makes of it."""
    src, dst = (memory_desc(image.dims, image.dtype, tag) for tag in tags)
    check(runtime, (src, image, None), seed)
    check(runtime, (image, dst, None), seed)


@pytest.mark.parametrize("dtype", ["f32", "f16", "u8"])
def test_every_image_is_packed_as_in_host_memory_and_unpacked(runtime: Runtime, dtype: str) -> None:
    for name in IMAGES:
        image = image_desc(small_dims(name), dtype, name)
        try:
            check_both_ways(runtime, image, ("plain", "plain"), 0)
        except MemdescError as error:
            if image.channels != 2:
                raise
            assert "no images of RG" in str(error)


@pytest.mark.parametrize("name", _LARGE)
def test_large_images_with_slices_too(runtime: Runtime, name: str) -> None:
    check_both_ways(runtime, image_desc((2, 37, 33, 41), "f32", name), ("abcd", "abcd"), 1)


@pytest.mark.parametrize("count", [1, pytest.param(40, marks=pytest.mark.campaign)])
def test_images_with_tails_are_packed_from_any_layout_and_unpacked(
    count: int, runtime: Runtime
) -> None:
    rng = np.random.default_rng(count)
    names = ["in_out_channel", "in_out_height", "in_out_width", "conv2d_filter", "weight_height"]
    for k, name in enumerate(count * [*names, "weight_width", "image_2d_weights_c1_b_fyx"]):
        dims = tuple(map(int, rng.integers(1, 12 if k % 4 else 4, 4)))
        dtype = ("f32", "f16", "s32", "s8", "u8")[k % 5]
        image = image_desc(dims, dtype, name)
        check_both_ways(runtime, image, (_HOST[k % 7], _HOST[(k + 3) % 7]), k)


@pytest.mark.parametrize(
    ("dtype", "channel_type", "lane"),
    [
        ("u8", "UNSIGNED_INT8", np.uint8),
        ("u8", "UNSIGNED_INT32", np.uint32),
        ("s8", "SIGNED_INT32", np.int32),
        ("u8", "UNORM_INT8", np.uint8),
    ],
)
def test_eight_bits_lie_in_the_lanes_that_are_asked_for(
    dtype: str, channel_type: str, lane: Any, runtime: Runtime
) -> None:
    x = np.arange(256).astype(data_type(dtype).numpy).reshape(2, 4, 4, 8)
    desc = image_desc(x.shape, dtype, "in_out_channel")
    wanted = np.asarray(reorder(x, desc)).astype(lane)
    # the second time, such a call is known
    for _ in range(2):
        image, event = opencl.pack(runtime.queue, x, desc, channel_type=channel_type)
        assert image.format.channel_data_type == getattr(cl.channel_type, channel_type)
        assert (runtime.pixels(image, lane, event) == wanted).all()
        opencl.pack(runtime.queue, x, desc)
    for tag in ("nchw", "nhwc"):
        buffer, event = opencl.unpack(runtime.queue, image, tag, desc)
        got = Memory(memory_desc(x.shape, dtype, tag), runtime.read(buffer, event))
        assert got.numpy().tobytes() == x.tobytes()


def test_an_image_becomes_another_one(runtime: Runtime) -> None:
    names = ("in_out_channel", "conv2d_filter", "weight_width", "image_2d_weights_c1_b_fyx")
    for one in names:
        for other in (*names, "weight_height", "in_out_width", "ac|Bd|4b"):
            src, dst = (image_desc((6, 5, 3, 2), "f32", name) for name in (one, other))
            check(runtime, (src, dst, None))
