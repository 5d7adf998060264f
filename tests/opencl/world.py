"""Objects of a runtime in every state, for calls that are refused: the same for all such tests."""

from typing import Any

import ml_dtypes
import numpy as np
import pyopencl as cl
import pyopencl.array

from memdesc import image_desc, memory_desc
from reorder import opencl, reorder
from reorder.opencl import memory_objects
from tests.opencl.runtimes import Runtime

FLAGS = cl.mem_flags
IMAGE = image_desc((1, 5, 3, 2), "f32", "in_out_channel")
PLAIN = memory_desc((1, 5, 3, 2), "f32")
X = np.arange(30, dtype=np.float32).reshape(1, 5, 3, 2)


def released(runtime: Runtime) -> dict[str, Any]:
    """Return memory that was released: alone, in memory with a descriptor, in an array."""
    q = runtime.queue
    gone_image, event = opencl.pack(q, X, IMAGE)
    gone, event = opencl.unpack(q, gone_image, PLAIN, IMAGE, wait_for=[event])
    memory, lent = (reorder(X, "nhwc", queue=q) for _ in range(2))
    array = cl.array.Array(q, X.size, np.float32, data=lent.data)
    q.finish()
    for one in (gone, gone_image, memory.data, lent.data):
        one.release()
    return {
        "gone": gone,
        "gone_image": gone_image,
        "gone_memory": memory,
        "gone_array": opencl.DeviceMemory(q, array, lent.desc, lent.event),
    }


def world(runtime: Runtime) -> dict[str, Any]:
    """Return a queue, descriptors, memory that fits X, and memory that does not."""
    q, context, device = runtime.queue, runtime.context, runtime.device.device
    other = cl.Context([device])
    form = memory_objects.image_format(IMAGE)
    half = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.HALF_FLOAT)
    base = cl.array.zeros(q, 256, np.uint8)
    s4, u4 = (
        cl.array.to_device(q, np.arange(30).astype(kind))
        for kind in (ml_dtypes.int4, ml_dtypes.uint4)
    )
    image, event = opencl.pack(q, X, IMAGE)
    src = runtime.buffer(X)
    mark: Any = cl.enqueue_marker
    return released(runtime) | {
        "WIDE": image_desc((1, 4, 1, device.image2d_max_width + 1), "f32", "in_out_channel"),
        "HIGH": image_desc((1, 4, device.image2d_max_height + 1, 1), "f32", "in_out_channel"),
        "DEEP": image_desc((1, 4 * 100_000, 1, 1), "f32", "tvm_texture"),
        "q": q,
        "other": other,
        "src": src,
        "dst": runtime.buffer(np.full(64, 7, np.float32)),
        "far_view": src.get_sub_region(0, 120),
        "small": runtime.buffer(np.zeros(29, np.float32)),
        "foreign": cl.Buffer(other, FLAGS.READ_WRITE, 512),
        "foreign_event": mark(cl.CommandQueue(other)),
        "read_only": cl.Buffer(context, FLAGS.READ_ONLY, 512),
        "write_only": cl.Buffer(context, FLAGS.WRITE_ONLY, 512),
        "image": image,
        "event": event,
        "memory": reorder(X, "nhwc", queue=q),
        "array": cl.array.zeros(q, X.shape, np.float32),
        "slices": opencl.pack(q, np.ones((2, 6, 5, 7), np.float32), "tvm_texture")[0],
        "pixels": cl.create_image(context, FLAGS.READ_WRITE, form, shape=(2, 2)),
        "halves": cl.create_image(context, FLAGS.READ_WRITE, half, shape=(9, 9)),
        "odd": cl.array.Array(q, (30,), np.float32, data=base.base_data, offset=2),
        "s4": s4,
        "u4": u4,
    }
