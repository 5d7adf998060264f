"""Known reorders between arrays of pyopencl, whose fields callers may change between two calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest

from memdesc import OverlapError, memory_desc
from reorder import opencl, reorder
from tests.opencl.runtimes import refused
from tests.opencl.test_known_kinds import COMPLETE, NHWC, PLAIN, X, array

if TYPE_CHECKING:
    from tests.opencl.runtimes import Runtime


def test_events_of_another_context_are_refused(runtime: Runtime) -> None:
    src, dst = array(runtime), array(runtime)
    opencl.enqueue_reorder(runtime.queue, *src, *dst)
    other = cl.UserEvent(cl.Context([runtime.device.device]))
    src[0].add_event(other)
    with refused("wait_for has an event of another context than the queue"):
        opencl.enqueue_reorder(runtime.queue, *src, *dst)
    other.set_status(COMPLETE)


def test_an_array_is_used_where_it_lies_now(runtime: Runtime) -> None:
    base = cl.array.to_device(runtime.queue, np.arange(3 * X.size, dtype=np.float32))
    src, dst = base[: X.size], cl.array.zeros(runtime.queue, X.shape, np.float32)
    for start in (0, X.size, 2 * X.size):
        src.offset = 4 * start
        opencl.enqueue_reorder(runtime.queue, src, PLAIN, dst, NHWC)
        wanted = np.arange(start, start + X.size, dtype=np.float32).reshape(X.shape)
        assert dst.get().tobytes() == wanted.transpose(0, 2, 3, 1).tobytes()
    src.offset += 4
    with refused(f"src has {X.nbytes - 4} bytes"):
        opencl.enqueue_reorder(runtime.queue, src, PLAIN, dst, NHWC)
    src.offset = 2
    with refused("starts at byte 2 of its buffer, not a multiple of the 4 bytes"):
        opencl.enqueue_reorder(runtime.queue, src, PLAIN, dst, NHWC)
    src.offset, src.base_data = 0, runtime.buffer(X)
    opencl.enqueue_reorder(runtime.queue, src, PLAIN, dst, NHWC)
    assert dst.get().tobytes() == X.transpose(0, 2, 3, 1).tobytes()
    src.base_data = runtime.buffer(X[:1])
    with refused(f"src has {X.nbytes // 2} bytes"):
        opencl.enqueue_reorder(runtime.queue, src, PLAIN, dst, NHWC)


def test_an_array_that_is_reversed_later_is_read_from_its_lowest_element(first: Runtime) -> None:
    x = np.arange(24, dtype=np.int16)
    src, dst = cl.array.to_device(first.queue, x), cl.array.zeros(first.queue, 8, np.int16)
    desc = memory_desc((8,), "s16")
    src.offset = 20  # in bytes, of element 10
    for strides, shape, lowest in (((2,), (8,), 10), ((-2,), (8,), 3), ((-2,), (11,), 0)):
        src.strides, src.shape = strides, shape
        opencl.enqueue_reorder(first.queue, src, desc, dst, desc)
        assert dst.get().tolist() == x[lowest : lowest + 8].tolist()
    src.shape = (8,)
    assert reorder(src, out=dst).get().numpy().tolist() == x[10:2:-1].tolist()


def test_what_an_array_is_of_now_is_its_type(first: Runtime) -> None:
    src, dst = array(first)[0], cl.array.zeros(first.queue, X.shape, np.float16)
    for dtype in (np.float32, np.int32):
        x = (X * 9).astype(dtype)
        src = cl.array.to_device(first.queue, x)
        for _ in range(2):
            reorder(src, out=dst)
            assert dst.get().tobytes() == x.astype(np.float16).tobytes()


def test_arrays_in_one_buffer_are_refused_where_they_overlap(runtime: Runtime) -> None:
    base = cl.array.to_device(runtime.queue, np.arange(3 * X.size, dtype=np.float32))
    src = base[: X.size]
    for _ in range(2):
        opencl.enqueue_reorder(runtime.queue, src, PLAIN, base[X.size :], NHWC).wait()
        with pytest.raises(OverlapError, match="src and dst share device memory"):
            opencl.enqueue_reorder(runtime.queue, src, PLAIN, base[X.size - 1 :], NHWC)
