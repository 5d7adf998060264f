"""Reorders that were enqueued before take fewer checks, which refuse what all checks refuse."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pytest
from pyopencl.tools import clear_first_arg_caches

from memdesc import OverlapError, memory_desc
from reorder import Attr, opencl, reorder
from reorder.opencl import execution
from tests.opencl.runtimes import refused

if TYPE_CHECKING:
    from tests.opencl.runtimes import Runtime

X = np.arange(40, dtype=np.float32).reshape(5, 8)
ROWS, COLUMNS = (memory_desc(X.shape, "f32", tag) for tag in ("ab", "ba"))
FLAGS = cl.mem_flags


def enqueue(runtime: Runtime, src: Any, dst: Any, attr: Any = None) -> cl.Event:
    return opencl.enqueue_reorder(runtime.queue, src, ROWS, dst, COLUMNS, attr)


@pytest.fixture
def pair(runtime: Runtime) -> tuple[cl.Buffer, cl.Buffer]:
    """Two buffers between which the reorder is known."""
    src, dst = runtime.buffer(X), runtime.buffer(np.zeros(160, np.uint8))
    enqueue(runtime, src, dst)
    assert find(runtime, src, dst) is not None
    return src, dst


def find(runtime: Runtime, src: Any, dst: Any, attr: Any = None) -> Any:
    return execution.find_known(runtime.queue, (src, dst), (ROWS, COLUMNS), attr)[0]


def test_other_buffers_and_values_are_moved_too(
    runtime: Runtime, pair: tuple[cl.Buffer, cl.Buffer]
) -> None:
    src, dst = runtime.buffer(X * 3), runtime.buffer(np.full(200, 0xA5, np.uint8))
    event = enqueue(runtime, src, dst)
    found = runtime.read(dst, event)
    assert found[:160].tobytes() == (X * 3).T.tobytes()
    assert (found[160:] == 0xA5).all()
    event = enqueue(runtime, pair[1], src)
    assert runtime.read(src, event).tobytes() == X.T.reshape(X.shape).T.tobytes()
    assert find(runtime, *pair, Attr(src_scale=2.0)) is None
    event = enqueue(runtime, *pair, Attr(src_scale=2.0))
    assert runtime.read(pair[1], event).tobytes() == (X * 2).T.tobytes()


def test_events_of_the_caller_are_waited_for(
    runtime: Runtime, pair: tuple[cl.Buffer, cl.Buffer]
) -> None:
    gate = cl.UserEvent(runtime.context)
    queue = cl.CommandQueue(runtime.context)
    event = opencl.enqueue_reorder(queue, pair[0], ROWS, pair[1], COLUMNS, wait_for=[gate])
    assert event.command_execution_status != cl.command_execution_status.COMPLETE
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert runtime.read(pair[1], event).tobytes() == X.T.tobytes()
    with refused("wait_for must be a list of pyopencl.Event"):
        opencl.enqueue_reorder(queue, pair[0], ROWS, pair[1], COLUMNS, wait_for=[3])  # type: ignore[list-item] # the mistake


def test_what_all_checks_refuse_is_refused(
    runtime: Runtime, pair: tuple[cl.Buffer, cl.Buffer]
) -> None:
    src, dst = pair
    small = runtime.buffer(np.zeros(159, np.uint8))
    other = cl.Context([runtime.device.device])
    with refused("src has 159 bytes"):
        enqueue(runtime, small, dst)
    with refused("dst has 159 bytes"):
        enqueue(runtime, src, small)
    with refused("src belongs to another context"):
        enqueue(runtime, cl.Buffer(other, FLAGS.READ_WRITE, 160), dst)
    with refused("dst belongs to another context"):
        enqueue(runtime, src, cl.Buffer(other, FLAGS.READ_WRITE, 160))
    with refused("dst was created READ_ONLY"):
        enqueue(runtime, src, cl.Buffer(runtime.context, FLAGS.READ_ONLY, 160))
    with refused("src was created WRITE_ONLY"):
        enqueue(runtime, cl.Buffer(runtime.context, FLAGS.WRITE_ONLY, 160), dst)
    with pytest.raises(OverlapError, match="src and dst share device memory"):
        enqueue(runtime, src, src)
    with pytest.raises(OverlapError, match="src and dst share device memory"):
        enqueue(runtime, src.get_sub_region(0, 160), src)
    with refused("attr must be a reorder.Attr, not list"):
        enqueue(runtime, src, dst, [1])
    with refused("src_desc must be a MemoryDesc or an ImageDesc"):
        opencl.enqueue_reorder(runtime.queue, src, [1], dst, COLUMNS)  # type: ignore[arg-type] # the mistake


def test_memory_that_was_released_is_refused(
    runtime: Runtime, pair: tuple[cl.Buffer, cl.Buffer]
) -> None:
    gone = reorder(X, "ab", queue=runtime.queue)
    enqueue(runtime, gone.data, pair[1]).wait()
    gone.data.release()
    with refused("src is a Buffer that was released"):
        enqueue(runtime, gone.data, pair[1])


def test_memory_of_the_host_and_parts_are_checked_as_such(
    runtime: Runtime, pair: tuple[cl.Buffer, cl.Buffer]
) -> None:
    src, dst = pair
    bytes_ = np.zeros(176, np.uint8)
    start = (4 - bytes_.ctypes.data) % 16
    bytes_[start : start + 160] = X.reshape(-1).view(np.uint8)
    flags = FLAGS.READ_WRITE | FLAGS.USE_HOST_PTR
    on_host = cl.Buffer(runtime.context, flags, hostbuf=bytes_[start : start + 160])
    event = enqueue(runtime, on_host, dst)
    assert runtime.read(dst, event).tobytes() == X.T.tobytes()
    part = src.get_sub_region(0, 160)
    event = enqueue(runtime, part, dst)
    assert runtime.read(dst, event).tobytes() == X.T.tobytes()


def test_many_reorders_are_known_to_many_threads(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "_MAX_KEYS", 3)

    def move(k: int) -> bool:
        x = np.arange(6 * (k % 5 + 1), dtype=np.int16).reshape(2, -1)
        one, other = (memory_desc(x.shape, "s16", tag) for tag in ("ab", "ba"))
        queue = cl.CommandQueue(runtime.context)
        out = np.empty(x.size, np.int16)
        src = cl.Buffer(runtime.context, FLAGS.READ_WRITE | FLAGS.COPY_HOST_PTR, hostbuf=x)
        dst = cl.Buffer(runtime.context, FLAGS.READ_WRITE, x.nbytes)
        event = opencl.enqueue_reorder(queue, src, one, dst, other)
        cl.enqueue_copy(queue, out, dst, wait_for=[event])
        return out.tobytes() == x.T.tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(move, range(60)))


def test_what_is_known_is_released_with_the_kernels(
    runtime: Runtime, pair: tuple[cl.Buffer, cl.Buffer]
) -> None:
    clear: Any = clear_first_arg_caches  # without types
    clear()
    assert find(runtime, *pair) is None
    event = enqueue(runtime, *pair)
    assert runtime.read(pair[1], event).tobytes() == X.T.tobytes()
