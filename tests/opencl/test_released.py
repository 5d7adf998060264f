"""Memory that this library allocated and that was released: an error, no crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest

from memdesc import image_desc, memory_desc
from reorder import opencl, reorder
from tests.opencl.runtimes import refused

if TYPE_CHECKING:
    from tests.opencl.runtimes import Runtime

X = np.arange(30, dtype=np.float32).reshape(1, 5, 3, 2)
PLAIN = memory_desc(X.shape, "f32")
IMAGE = image_desc(X.shape, "f32", "in_out_channel")


def made_by_reorder(runtime: Runtime, kind: str) -> opencl.DeviceMemory:
    """Return memory on the device: a buffer, an image, or an array in a buffer."""
    memory = reorder(X, IMAGE if kind == "image" else "nhwc", queue=runtime.queue)
    runtime.queue.finish()
    if kind != "array":
        return memory
    array = cl.array.Array(runtime.queue, X.size, np.float32, data=memory.data)
    return opencl.DeviceMemory(runtime.queue, array, memory.desc, memory.event)


def release(memory: opencl.DeviceMemory) -> None:
    data: Any = memory.data
    if isinstance(data, cl.array.Array):
        data = data.base_data
    data.release()


@pytest.mark.parametrize("kind", ["buffer", "image", "array"])
def test_released_memory_of_a_result_is_refused(kind: str, runtime: Runtime) -> None:
    memory = made_by_reorder(runtime, kind)
    release(memory)
    noun = "an Image" if kind == "image" else "a Buffer"
    with refused(f"the memory is {noun} that was released"):
        memory.get()
    with refused(f"src is {noun} that was released"):
        reorder(memory, "nchw")
    with refused(f"dst is {noun} that was released"):
        reorder(X, out=memory)


@pytest.mark.parametrize("kind", ["buffer", "image", "array"])
def test_memory_that_is_not_released_is_read_again(kind: str, runtime: Runtime) -> None:
    memory = made_by_reorder(runtime, kind)
    assert np.asarray(memory.get()).tobytes() == np.asarray(memory.get()).tobytes()


def test_released_results_of_pack_and_unpack_are_refused(runtime: Runtime) -> None:
    image, event = opencl.pack(runtime.queue, X, IMAGE)
    buffer, event = opencl.unpack(runtime.queue, image, IMAGE, PLAIN, wait_for=[event])
    event.wait()
    image.release()
    buffer.release()
    target = runtime.buffer(X)
    with refused("src is an Image that was released"):
        opencl.unpack(runtime.queue, image, IMAGE, "nchw")
    with refused("dst is an Image that was released"):
        opencl.enqueue_pack(runtime.queue, X, image, IMAGE)
    with refused("src is a Buffer that was released"):
        opencl.pack(runtime.queue, buffer, IMAGE, src_desc=PLAIN)
    with refused("dst is a Buffer that was released"):
        opencl.enqueue_reorder(runtime.queue, target, PLAIN, buffer, PLAIN)


def test_memory_is_given_back_to_the_runtime_once(runtime: Runtime) -> None:
    memory = made_by_reorder(runtime, "buffer")
    release(memory)
    with pytest.raises(cl.LogicError, match="double-unref"):
        release(memory)
    with refused("the memory is a Buffer that was released"):
        memory.get()
