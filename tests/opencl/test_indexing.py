import ml_dtypes
import numpy as np
import pyopencl as cl
import pytest
from pyopencl.array import to_device

from memdesc import image_desc, memory_desc
from memdesc.errors import OutOfRangeError
from reorder import opencl, reorder
from tests.opencl.runtimes import Runtime

X = np.random.default_rng(5).random((2, 17, 5, 4), np.float32)
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
    rest = to_device(runtime.queue, X.reshape(-1))[17:]
    desc = memory_desc((3, 2), "f32", "ba")
    assert opencl.DeviceMemory(runtime.queue, rest, desc)[2, 1] == X.reshape(-1)[17 + 5]
