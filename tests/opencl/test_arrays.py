"""Memory of pyopencl: views of arrays, parts of buffers, memory of the host, shared memory."""

from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from pyopencl.tools import SVMAllocator, SVMPool

from memdesc import MemdescError, memory_desc
from memdesc.errors import OverlapError
from reorder import opencl, reorder
from reorder.opencl import execution
from tests.opencl.runtimes import Runtime, refused

FLAGS = cl.mem_flags
X = np.arange(64 * 48, dtype=np.float32).reshape(64, 48)
SHARED = memory_desc((32, 32), "f32")
TURNED = memory_desc((32, 32), "f32", "ba")


def _shared_array(runtime: Runtime, shape: tuple[int, int]) -> Any:
    # csvm_empty of pyopencl 2024.3 takes no queue
    flags, dtype = cl.svm_mem_flags.READ_WRITE, np.dtype(np.float32)
    return cl.svm_empty(runtime.context, flags, shape, dtype, queue=runtime.queue)


@pytest.fixture
def sharing(runtime: Runtime) -> Runtime:
    """A runtime whose kernels take shared virtual memory."""
    if not runtime.device.device.svm_capabilities:
        pytest.skip("the device shares no virtual memory")
    held = _shared_array(runtime, (3, 2))
    desc = memory_desc((3, 2), "f32")
    try:
        reorder(cl.SVM(held), "ba", src=desc, queue=runtime.queue).get()
    except MemdescError as refusal:
        assert "do not take shared virtual memory" in str(refusal)
        # and buffers are reordered as before
        m = reorder(X[:3, :2], "ba", queue=runtime.queue)
        assert m.get().numpy().tobytes() == X[:3, :2].tobytes()
        pytest.skip("kernels of the runtime do not take shared virtual memory")
    return runtime


def test_shared_virtual_memory_is_read_and_refused_as_buffers_are(sharing: Runtime) -> None:
    runtime = sharing
    x = np.arange(1024, dtype=np.float32).reshape(32, 32)
    held = _shared_array(runtime, (33, 32))
    src, flags = cl.SVM(held), cl.svm_mem_flags.READ_WRITE
    dst = cl.SVMAllocation(runtime.context, 4096, 0, flags, queue=runtime.queue)
    written = reorder(x, SHARED, out=dst, queue=runtime.queue)
    assert written.data is dst
    assert written[3, 4] == x[3, 4]
    with pytest.raises(OverlapError, match="x and out share device memory"):
        opencl.enqueue_reorder(runtime.queue, src, cl.SVM(held[1:]), src=SHARED, dst=TURNED)
    with refused("x is a pyopencl SVM, whose layout is not known; pass src="):
        reorder(src, "ba", queue=runtime.queue)
    with refused("out has 4096 bytes, but memory_desc((33, 32), 'f32', 'ab') touches 4224"):
        reorder(X[:33, :32], "ab", out=dst, queue=runtime.queue)
    runtime.queue.finish()
    dst.release()
    with refused("x is shared virtual memory that was released"):
        reorder(dst, TURNED, src=SHARED, queue=runtime.queue)


def test_kernels_that_took_shared_virtual_memory_take_it_again(
    sharing: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = sharing
    src, dst = (cl.SVM(_shared_array(runtime, (33, 32))) for _ in range(2))

    def enqueue() -> None:
        opencl.enqueue_reorder(runtime.queue, src, dst, src=SHARED, dst=TURNED).wait()

    enqueue()
    # a new kernel takes several times as long as a call
    monkeypatch.delattr(execution.PreparedLaunch, "new")
    enqueue()


def test_arrays_in_shared_virtual_memory_are_reordered(sharing: Runtime) -> None:
    runtime = sharing
    allocator = SVMAllocator(runtime.context, queue=runtime.queue)
    for allocate in (allocator, SVMPool(allocator)):
        array = cl.array.to_device(runtime.queue, X, allocator=allocate)
        assert reorder(array[::-1, 2:], "ba").get().numpy().tobytes() == X[::-1, 2:].tobytes()
        part = opencl.DeviceMemory(runtime.queue, array[3:], memory_desc((61, 48), "f32"))
        assert part.get().numpy().tobytes() == X[3:].tobytes()
        runtime.queue.finish()


def test_arrays_of_numpy_are_shared_where_the_device_shares_all_memory(runtime: Runtime) -> None:
    x = np.arange(1024, dtype=np.float32)
    capabilities = int(runtime.device.device.svm_capabilities)
    if capabilities & cl.device_svm_capabilities.FINE_GRAIN_SYSTEM:
        m = reorder(cl.SVM(x), TURNED, src=SHARED, queue=runtime.queue)
        assert m.get().numpy().tobytes() == x.tobytes()
        return
    with refused("x is shared virtual memory, but device"):
        reorder(cl.SVM(x), TURNED, src=SHARED, queue=runtime.queue)
