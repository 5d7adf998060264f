"""Calls give on a device what they give on the CPU: layouts, bytes, scales, elements."""

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

from memdesc import Extra, MemoryDesc, image_desc, memory_desc
from memdesc.dtypes import DATA_TYPES
from memdesc.errors import OutOfRangeError
from reorder import Attr, Memory, Quantized, dequantize, opencl, quantize, reorder
from reorder.opencl import DeviceMemory
from tests.opencl.runtimes import Runtime, refused

X = np.random.default_rng(5).normal(size=(2, 17, 5, 4)).astype(np.float32)
IMAGE = image_desc(X.shape, "f32", "in_out_channel")
PIXELS = np.asarray(reorder(X, IMAGE))
# what lines name
_NAMES = {
    "np": np,
    "ml_dtypes": ml_dtypes,
    "memory_desc": memory_desc,
    "Extra": Extra,
    "X": X,
    "IMAGE": IMAGE,
    "PIXELS": PIXELS,
    "Attr": Attr,
}
# on a device `reorder`, `quantize` and `dequantize` have its queue, and `array` is pyopencl's
_CALLS = """
reorder(X, "nhwc", dtype="s8", attr=Attr(dst_scale=0.5, dst_zero_point=3))
reorder(X, "nhwc", attr=Attr(src_scale=2.0))
reorder(X, "nhwc", attr=Attr(src_scale=3.0))
reorder(X.transpose(0, 2, 3, 1).copy(), "nChw8c", src="nhwc")
reorder(X.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)[..., ::3], "nChw8c")
reorder(X.mean() < X, "nhwc")
reorder(X.astype(ml_dtypes.bfloat16), "nhwc")
reorder(np.broadcast_to(X[:1], X.shape), "nhwc")
reorder(np.broadcast_to(np.arange(3, dtype=np.float32), (4, 3)), dtype="f16")
reorder(np.zeros((2, 0, 3), np.float32), "acb")
reorder(np.zeros((0, 5), np.float32), memory_desc((0, 5), "f32", strides=(5, 1), offset0=2))
reorder(np.ones(7, ml_dtypes.uint4), "a")
reorder(np.ones((33, 65), ml_dtypes.uint4), "ba")
reorder(np.ones(7, ml_dtypes.uint4), "A3a")
reorder(np.ones((3, 5), np.uint8), memory_desc((3, 5), "u8", strides=(8, 1)))
reorder(np.ones((3, 5), np.float32), memory_desc((3, 5), "f32", strides=(5, 1), offset0=2))
reorder(np.ones((3, 1), np.int8), memory_desc((3, 1), "s8", "ab").with_extra(Extra(s8s8_mask=1)))
reorder(reorder(X, "nChw8c"), dtype="f32")
reorder(X, "in_out_channel")
reorder(PIXELS, "nhwc", src=IMAGE)
reorder(array(np.array([0x10, 0x32, 0x54], np.uint8)), "a", src=memory_desc((6,), "u4"))
reorder(array(np.zeros((0, 3), np.float32)), "ba")
quantize(reorder(X, "nChw8c"), "u8", axis=1, dst="nChw16c")
quantize(X.reshape(10, 68), "u4", axis=(0, 1), groups=(1, 17))
quantize(array(X.reshape(10, 68)), "u4", axis=(0, 1), groups=(1, 17))
quantize(X[:0], "s8")
dequantize(quantize(X, "s8", axis=1), dst="nhwc")
"""
_LINES = [
    *_CALLS.strip().splitlines(),
    *(
        f"reorder(array(numbers('{name}')), 'ba')"
        for name, dtype in DATA_TYPES.items()
        if not dtype.is_packed
    ),
]


def numbers(dtype: str) -> Any:
    return np.arange(24).reshape(4, 6).astype(DATA_TYPES[dtype].numpy)


def made(given: Any) -> tuple[object, ...]:
    """Return what a call made: its layout if it is no image, its bytes, what quantize found."""
    if isinstance(given, Quantized):
        points = np.asarray(given.zero_points).tolist()
        found = given.scales.tobytes(), points, given.axis, given.groups
        return (*made(given.memory), *found)
    held = given.get() if isinstance(given, DeviceMemory) else given
    desc = given.desc if isinstance(given, Memory | DeviceMemory) else None
    data = held.data if isinstance(held, Memory) else held
    return desc if isinstance(desc, MemoryDesc) else None, data.tobytes()


@pytest.mark.parametrize("line", _LINES)
def test_a_call_gives_what_it_gives_on_the_cpu(line: str, runtime: Runtime) -> None:
    queue = runtime.queue
    functions: dict[str, Any] = {"reorder": reorder, "quantize": quantize, "dequantize": dequantize}
    on_cpu = _NAMES | functions | {"numbers": numbers, "array": np.asarray}
    on_device = {name: partial(function, queue=queue) for name, function in functions.items()}
    on_device |= {"array": partial(cl_array.to_device, queue)}
    wanted = made(eval(line, on_cpu))
    for _ in range(3):
        # runtimes allocate again what was released
        runtime.buffer(np.full(1 << 12, 0xFF, np.uint8)).release()
        assert made(eval(line, on_cpu | on_device)) == wanted


def test_arrays_and_images_have_types_of_their_own(runtime: Runtime) -> None:
    half = cl_array.empty(runtime.queue, (2, 5, 4, 17), np.float16)
    image, event = opencl.pack(runtime.queue, X, "in_out_channel", attr=Attr(src_scale=2.0))
    given: dict[str, Any] = {"attr": Attr(src_scale=0.25), "wait_for": [event]}
    event = opencl.enqueue_unpack(runtime.queue, image, half, "nhwc", IMAGE, **given)
    assert half.events == [event]
    assert half.get().tobytes() == (X / 2).transpose(0, 2, 3, 1).astype(np.float16).tobytes()
    m = reorder(cl_array.to_device(runtime.queue, X), "nhwc", out=half)
    assert m.desc == memory_desc(X.shape, "f16", "nhwc")
    assert half.get().tobytes() == X.transpose(0, 2, 3, 1).astype(np.float16).tobytes()
    pixels = reorder(X, "in_out_channel", queue=runtime.queue)
    assert pixels.desc == IMAGE
    assert reorder(X, "in_out_channel", out=pixels).desc == IMAGE
    assert reorder(pixels, dtype="f16").desc == image_desc(X.shape, "f16", "in_out_channel")
    # a descriptor describes raw bytes
    whole = cl_array.empty(runtime.queue, (X.nbytes,), np.uint8)
    with refused(f"out has {X.nbytes - 4} bytes"):
        desc = memory_desc(X.shape, "f32", "nhwc")
        opencl.enqueue_unpack(runtime.queue, image, whole[4:], desc, IMAGE)


def test_arrays_without_elements_are_written(first: Runtime) -> None:
    empty = np.zeros((0, 3), np.float32)
    out = cl_array.to_device(first.queue, empty)
    for _ in range(3):
        assert reorder(empty, out=out).get().shape == (0, 3)
    memory, desc = first.buffer(X), memory_desc((0, 3), "f32")
    opencl.enqueue_reorder(first.queue, memory, memory, src=desc, dst=desc).wait()


def test_memory_on_a_device_shows_its_layout(first: Runtime) -> None:
    for desc in (memory_desc(X.shape, "f32", "nChw8c"), IMAGE):
        memory = reorder(X, desc, queue=first.queue)
        assert repr(memory) == f"DeviceMemory({desc!r})"
        assert memory._repr_html_() == desc._repr_html_()


KEYS = (np.s_[1, 16, 4, 3], np.s_[0, -1], np.s_[:, 3:9:2, ::-1, 0], np.s_[...], np.s_[1:1])


def test_device_memory_is_indexed_as_memory_is(runtime: Runtime) -> None:
    for dst in ("nChw8c", "nhwc", "in_out_channel", "ac|bD|4d"):
        m = reorder(X, dst, queue=runtime.queue)
        assert (m.shape, m.dtype.name, m.ndim, len(m), bool(m)) == (X.shape, "f32", 4, 2, True)
        for key in KEYS:
            assert np.array_equal(m[key], X[key])
            assert np.shape(m[key]) == np.shape(X[key])
        assert [row.shape for row in m] == [X.shape[1:]] * 2
        letter = "b" if "|" in dst else "c"
        with pytest.raises(OutOfRangeError, match=f"index 17 of {letter}"):
            m[0, 17]


def test_bytes_lanes_and_arrays_that_start_elsewhere_are_read(runtime: Runtime) -> None:
    four = np.arange(-8, 8).reshape(4, 4).astype(ml_dtypes.int4)
    m = reorder(reorder(four, "Ab2a"), "Ab2a", queue=runtime.queue)
    assert [int(m[i, 3]) for i in range(4)] == [-5, -1, 3, 7]
    s8 = np.arange(-30, 30, dtype=np.int8).reshape(1, 5, 3, 4)
    image = image_desc(s8.shape, "s8", "in_out_channel")
    pixels = np.asarray(reorder(s8, image)).astype(np.int32)
    wide = cl.create_image(
        runtime.context,
        cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR,
        cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.SIGNED_INT32),
        shape=(image.width, image.height),
        hostbuf=pixels,
    )
    in_lanes = opencl.DeviceMemory(runtime.queue, wide, image)
    assert np.array_equal(in_lanes[0, 4], s8[0, 4])
    assert in_lanes.nbytes == image.nbytes == 4 * 2 * 12
    assert np.array_equal(in_lanes.get().numpy(), s8)
    rest = cl_array.to_device(runtime.queue, X.reshape(-1))[17:]
    desc = memory_desc((3, 2), "f32", "ba")
    assert opencl.DeviceMemory(runtime.queue, rest, desc)[2, 1] == X.reshape(-1)[17 + 5]
