"""Several queues and contexts, events of callers, and calls that do not wait for the device."""

from collections.abc import Iterator
from threading import Timer
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest

from memdesc import MemdescError, image_desc, memory_desc
from reorder import Attr, opencl, reorder
from reorder.opencl import execution
from tests.opencl.runtimes import Runtime

X = np.random.default_rng(5).random((2, 17, 5, 4), np.float32)
PLAIN = memory_desc(X.shape, "f32")
BLOCKED = memory_desc(X.shape, "f32", "nChw16c")
COMPLETE = cl.command_execution_status.COMPLETE


class Gate:
    """An event that a queue waits for; it opens by itself if a call waits for the device."""

    def __init__(self, context: cl.Context) -> None:
        self.event = cl.UserEvent(context)
        self._timer = Timer(20, self._give_up)
        self._timer.start()
        self._was_late = False

    def _give_up(self) -> None:
        self._was_late = True
        self.event.set_status(COMPLETE)

    def stop(self) -> None:
        self._timer.cancel()

    def open(self) -> None:
        self.stop()
        assert not self._was_late, "a call waited for the device"
        self.event.set_status(COMPLETE)


@pytest.fixture
def gate(runtime: Runtime) -> Iterator[Gate]:
    made = Gate(runtime.context)
    yield made
    made.stop()


def out_of_order(runtime: Runtime) -> cl.CommandQueue:
    properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    return cl.CommandQueue(runtime.context, properties=properties)


def test_no_call_waits_for_what_a_queue_has_to_do_before(runtime: Runtime, gate: Gate) -> None:
    queue = cl.CommandQueue(runtime.context)
    mark: Any = cl.enqueue_marker
    mark(queue, wait_for=[gate.event])
    image = image_desc(X.shape, "f32", "in_out_channel")
    x = X.copy()
    blocked = reorder(x, "nChw16c", queue=queue)
    packed = reorder(x, image, queue=queue)
    threes = reorder(packed, "aBcd3b")
    x[:] = 0  # host memory was copied before the calls returned
    large = reorder(np.ones((64, 64, 5), np.float32), "bca", queue=queue)
    assert large.nbytes > 1 << 16
    assert threes.event is not None
    assert threes.event.command_execution_status != COMPLETE
    gate.open()
    assert threes.get().numpy().tobytes() == X.tobytes()
    assert blocked.get().numpy().tobytes() == X.tobytes()
    assert (large.get().numpy() == 1).all()


def test_events_that_reorder_is_given_are_waited_for(runtime: Runtime, gate: Gate) -> None:
    queue = out_of_order(runtime)
    source = runtime.buffer(np.zeros_like(X))
    m = reorder(source, "nhwc", src=PLAIN, queue=queue, wait_for=[gate.event])
    out = reorder(X, "nchw", queue=queue)
    assert reorder(m, out=out, wait_for=(gate.event,)) is out
    cl.enqueue_copy(runtime.queue, source, X * 2)
    gate.open()
    assert out.get().numpy().tobytes() == (X * 2).tobytes()


def test_a_queue_uses_what_another_fills(runtime: Runtime, gate: Gate) -> None:
    first, second = out_of_order(runtime), cl.CommandQueue(runtime.context)
    source, target = runtime.buffer(X), runtime.buffer(np.zeros(BLOCKED.nbytes, np.uint8))
    event = opencl.enqueue_reorder(
        first, source, target, src=PLAIN, dst=BLOCKED, wait_for=[gate.event]
    )
    filled = opencl.DeviceMemory(first, target, BLOCKED, event)
    plain = reorder(filled, "nchw", queue=second)
    assert plain.queue == second
    assert plain.event is not None
    # written again after it was read: its event is that of the last write
    again = reorder(X * 2, out=filled, queue=second, wait_for=[plain.event])
    assert again is filled
    assert filled.queue == second
    gate.open()
    assert plain.get().numpy().tobytes() == X.tobytes()
    assert filled.get().numpy().tobytes() == (X * 2).tobytes()


def test_arrays_carry_the_event_of_their_last_write(runtime: Runtime, gate: Gate) -> None:
    queue = out_of_order(runtime)
    source = cl.array.empty(queue, X.shape, np.float32)
    filled: Any = cl.enqueue_copy(queue, source.base_data, X, is_blocking=False)  # type: ignore[arg-type] # a Buffer
    source.add_event(filled)
    target = cl.array.zeros(queue, X.shape, np.float32)
    reorder(source, out=target, wait_for=[gate.event])
    for _ in range(9):  # pyopencl waits for the first events where an array has twelve
        opencl.enqueue_reorder(queue, target, source, src=PLAIN, dst=PLAIN)
        opencl.enqueue_reorder(queue, source, target, src=PLAIN, dst=PLAIN)
    assert len(source.events) == len(target.events) == 1
    result = reorder(target, "nhwc")
    gate.open()
    assert result.get().numpy().tobytes() == X.tobytes()
    assert target.get().tobytes() == X.tobytes()


def test_a_device_memory_is_filled_at_the_event_that_it_has_now(
    runtime: Runtime, gate: Gate
) -> None:
    m, out, known = (reorder(X, tag, queue=runtime.queue) for tag in ("nchw", "nhwc", "nhwc"))
    for _ in range(2):
        assert reorder(m, out=out) is out
        reorder(m, out=known)
    m.data, m.event = runtime.buffer(X), gate.event
    reorder(m, out=known)
    runtime.queue.flush()
    queue = cl.CommandQueue(runtime.context)
    assert (reorder(X, "nhwc", queue=queue).get().numpy() == X).all()
    cl.enqueue_copy(queue, m.data, X * 2)
    reorder(m, out=out, queue=queue)
    assert out.queue == queue
    assert out.event is not None
    assert out.event.command_execution_status != COMPLETE
    after = reorder(out, "nchw")
    assert after.queue == queue
    gate.open()
    assert (after.get().numpy() == X * 2).all()
    assert (known.get().numpy() == X * 2).all()
    m.desc = memory_desc((17, 2, 5, 4), "f32")
    with pytest.raises(MemdescError, match="dims"):
        reorder(m, out=out)


def test_parts_of_a_device_have_queues_of_one_context_and_their_own_programs(
    runtime: Runtime,
) -> None:
    device = runtime.device.device
    equally = cl.device_partition_property.EQUALLY
    kinds: Any = device.partition_properties
    if device.partition_max_sub_devices < 2 or equally not in kinds:
        pytest.skip("the device cannot be divided")
    one_each: Any = [equally, 1]
    parts = device.create_sub_devices(one_each)
    context = cl.Context(parts)
    first, last = (cl.CommandQueue(context, part) for part in (parts[0], parts[-1]))
    m = reorder(X, "nChw16c", queue=first)
    assert reorder(m, "nhwc", queue=last).get().numpy().tobytes() == X.tobytes()
    image = image_desc(X.shape, "f32", "in_out_channel")
    if last.device in context.devices:
        assert reorder(m, image, queue=last).get().numpy().tobytes() == X.tobytes()
    else:
        with pytest.raises(MemdescError, match="that the context of the queue does not list"):
            reorder(m, image, queue=last)
    # options of the compiler depend on it, and another device of the context may refuse them
    context = cl.Context(parts)
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    for part in reversed(parts):
        queue, attr = cl.CommandQueue(context, part), Attr(dst_scale=3.0)
        found = reorder(x, "ba", dtype="s8", attr=attr, queue=queue).get().numpy()
        assert (found == np.rint(x / np.float32(3))).all()
    built = execution._program.__wrapped__._pyopencl_first_arg_dep_memoize_dic[context]  # type: ignore[attr-defined]  # noqa: SLF001 - the cache is not public
    assert len(built) == len(parts)
