from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from memdesc import data_type, image_desc, memory_desc
from reorder import Memory, opencl, reorder
from tests.images import IMAGES
from tests.opencl.runtimes import Runtime

DTYPES = ("f32", "f16", "s32", "s8", "u8")
# Shapes for each image type; a campaign runs 40. Together they have every dtype and every layout of
# the host.
SHAPES = pytest.mark.parametrize("count", [3, pytest.param(40, marks=pytest.mark.campaign)])
HOST = ("nchw", "nhwc", "nChw16c", "cdab", "aBcd2b", "ABcd3b2a", "dcba")


def shapes(name: str, count: int) -> list[tuple[int, ...]]:
    """Return sizes most of which no block divides."""
    rng = np.random.default_rng(len(name))
    ndims = 1 if name == "argument" else 4
    found = []
    for k in range(count):
        sizes = rng.integers(1, 40 if ndims == 1 else 12 if k % 4 else 4, ndims)
        if name == "dw_conv2d_filter":
            sizes[0] = 1
        if name == "image_2d_rgba":
            sizes[:2] = 1, rng.integers(3, 5)
        found.append(tuple(map(int, sizes)))
    return found


def expected_pixels(name: str, x: NDArray[Any]) -> NDArray[Any]:
    """Return what the image must hold, pixel by pixel and lane by lane."""
    (width, height, channels), to_index = IMAGES[name](*x.shape)
    out = np.zeros((height, width, channels), x.dtype)
    for at in np.ndindex(height, width, channels):
        index = to_index(at[1], at[0], at[2])
        if all(i < size for i, size in zip(index, x.shape, strict=True)):
            out[at] = x[index]
    return out


def bits(dims: tuple[int, ...], dtype: str, seed: int) -> NDArray[Any]:
    """Return random bits: NaN, infinities, subnormal numbers, -0.0.

    f16 has no NaN, because images may change its payload.
    """
    kind = data_type(dtype)
    found = np.random.default_rng(seed).integers(0, 256, (*dims, kind.bits // 8), np.uint8)
    x = found.view(kind.numpy).reshape(dims)
    if dtype == "f16":
        x[np.isnan(x)] = np.float16(-0.0)
    return x


@SHAPES
@pytest.mark.parametrize("name", IMAGES)
def test_shapes_with_tails_of_every_type_are_packed_as_the_mapping_table_says(
    name: str, count: int, runtime: Runtime
) -> None:
    for k, dims in enumerate(shapes(name, count), list(IMAGES).index(name)):
        dtype = DTYPES[k % 5]
        desc = image_desc(dims, dtype, name)
        x = bits(dims, dtype, k)
        host = Memory(memory_desc(dims, dtype, HOST[k % 7])) if len(dims) == 4 else reorder(x, "a")
        reorder(x, out=host)
        # a larger image, as pools hand out
        poison = bits((desc.height + k % 3, desc.width + k % 2, desc.channels), dtype, 7)
        image = runtime.image(desc, poison)
        event = opencl.enqueue_pack(runtime.queue, host, image, desc)
        found = runtime.pixels(image, poison.dtype, event)
        wanted = poison.copy()
        wanted[: desc.height, : desc.width] = expected_pixels(name, x)
        assert found.tobytes() == wanted.tobytes(), (name, dims, dtype)


def test_a_host_buffer_in_the_orders_of_2018_gives_the_same_image(runtime: Runtime) -> None:
    x = np.arange(2 * 3 * 2 * 5, dtype=np.float32).reshape(2, 3, 2, 5)
    desc = image_desc(x.shape, "f32", "conv2d_filter")
    hwoi = np.ascontiguousarray(x.transpose(2, 3, 0, 1))
    image, event = opencl.pack(runtime.queue, hwoi, desc, src="HWOI")
    assert (runtime.pixels(image, np.float32, event) == expected_pixels("conv2d_filter", x)).all()
    own = opencl.pack(
        runtime.queue, runtime.buffer(hwoi), desc, src=memory_desc(x.shape, "f32", "HWOI")
    )
    assert (runtime.pixels(own[0], np.float32, own[1]) == expected_pixels("conv2d_filter", x)).all()
    depthwise = image_desc((1, 3, 2, 5), "f32", "dw_conv2d_filter")
    hwim = np.ascontiguousarray(x[:1].transpose(2, 3, 1, 0))
    image, event = opencl.pack(runtime.queue, hwim, depthwise, src="HWIM")
    assert (
        runtime.pixels(image, np.float32, event) == expected_pixels("dw_conv2d_filter", x[:1])
    ).all()


@pytest.mark.parametrize(
    ("dtype", "channel_type", "lane"),
    [
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
    image, event = opencl.pack(runtime.queue, x, desc, channel_type=channel_type)
    assert (runtime.pixels(image, lane, event) == expected_pixels("in_out_channel", x)).all()
    for tag in ("nchw", "nhwc"):
        buffer, event = opencl.unpack(runtime.queue, image, tag, desc)
        got = Memory(memory_desc(x.shape, dtype, tag), runtime.read(buffer, event))
        assert got.numpy().tobytes() == x.tobytes()


def test_an_image_becomes_another_one(runtime: Runtime) -> None:
    x = bits((6, 5, 3, 2), "f32", 1)
    names = (
        "in_out_channel",
        "conv2d_filter",
        "weight_height",
        "weight_width",
        "in_out_width",
        "image_2d_weights_c1_b_fyx",
        "ac|Bd|4b",
    )
    for one in names:
        src = image_desc(x.shape, "f32", one)
        image, _ = opencl.pack(runtime.queue, x, src)
        for other in names:
            desc = image_desc(x.shape, "f32", other)
            out = runtime.image(
                desc, np.full((desc.height, desc.width, desc.channels), np.nan, np.float32)
            )
            event = opencl.enqueue_reorder(runtime.queue, image, out, src=src, dst=desc)
            known = other if other in IMAGES else "in_out_channel"
            assert (
                runtime.pixels(out, np.float32, event).tobytes()
                == expected_pixels(known, x).tobytes()
            ), (one, other)
