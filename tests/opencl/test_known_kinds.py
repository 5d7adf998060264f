"""Reorders that are known, between memories of all kinds: what differs is asked in each call."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest

from memdesc import MemdescError, OverlapError, image_desc, memory_desc
from reorder import Attr, opencl, reorder
from reorder.opencl import execution
from tests.opencl.runtimes import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.opencl.runtimes import Runtime

X = np.random.default_rng(3).random((2, 5, 4, 16), np.float32)
PLAIN, NHWC = (memory_desc(X.shape, "f32", tag) for tag in ("nchw", "nhwc"))
IMAGE = image_desc(X.shape, "f32", "in_out_channel")
FLAGS = cl.mem_flags
COMPLETE = cl.command_execution_status.COMPLETE
# parts need them
WHOLE: list[cl.Buffer] = []


def buffer(runtime: Runtime) -> tuple[Any, Any]:
    return runtime.buffer(np.zeros(PLAIN.nbytes, np.uint8)), NHWC


def part(runtime: Runtime) -> tuple[Any, Any]:
    unit = runtime.device.device.mem_base_addr_align // 8
    whole = cl.Buffer(runtime.context, FLAGS.READ_WRITE, unit + NHWC.nbytes)
    WHOLE.append(whole)
    return whole.get_sub_region(unit, NHWC.nbytes), NHWC


def on_host(runtime: Runtime) -> tuple[Any, Any]:
    return host_buffer(runtime, 0), NHWC


def host_buffer(runtime: Runtime, start: int) -> cl.Buffer:
    """Return a buffer over memory of the host that starts behind a multiple of 64 bytes."""
    raw = np.zeros(NHWC.nbytes + 128, np.uint8)
    first = -raw.ctypes.data % 64 + start
    host = raw[first : first + NHWC.nbytes]
    return cl.Buffer(runtime.context, FLAGS.READ_WRITE | FLAGS.USE_HOST_PTR, hostbuf=host)


def array(runtime: Runtime) -> tuple[Any, Any]:
    return cl.array.zeros(runtime.queue, X.shape, np.float32), NHWC


def view(runtime: Runtime) -> tuple[Any, Any]:
    return cl.array.zeros(runtime.queue, (X.size + 12,), np.float32)[8:], NHWC


def image(runtime: Runtime) -> tuple[Any, Any]:
    return runtime.image(IMAGE, np.zeros((IMAGE.height, IMAGE.width, 4), np.float32)), IMAGE


def shared(runtime: Runtime) -> tuple[Any, Any]:
    """Return shared virtual memory; a buffer where the runtime has none."""
    if not runtime.device.device.svm_capabilities:
        return buffer(runtime)
    return cl.SVM(cl.csvm_empty(runtime.context, (NHWC.nbytes,), np.uint8)), NHWC


KINDS = (buffer, part, on_host, array, view, image, shared)


def is_known(runtime: Runtime, src: tuple[Any, Any], dst: tuple[Any, Any]) -> bool:
    pair = (src[0], dst[0]), (src[1], dst[1])
    return execution.find_known(runtime.queue, *pair, None)[0] is not None


def fill(runtime: Runtime, memory: tuple[Any, Any], x: Any) -> None:
    opencl.enqueue_reorder(runtime.queue, runtime.buffer(x), PLAIN, *memory).wait()


def read(runtime: Runtime, memory: tuple[Any, Any]) -> Any:
    return opencl.DeviceMemory(runtime.queue, *memory).get().desc, (
        reorder(opencl.DeviceMemory(runtime.queue, *memory), "nchw").get().numpy()
    )


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_a_known_reorder_moves_what_memory_holds_now(
    source: Callable[[Runtime], Any], target: Callable[[Runtime], Any], runtime: Runtime
) -> None:
    first, dst = source(runtime), target(runtime)
    for src, scale in ((first, 1), (first, 2), (source(runtime), 3)):
        fill(runtime, src, X * scale)
        event = opencl.enqueue_reorder(runtime.queue, *src, *dst)
        assert is_known(runtime, src, dst)
        event.wait()
        assert read(runtime, dst)[1].tobytes() == (X * scale).tobytes()


@pytest.fixture
def gate(runtime: Runtime) -> Iterator[cl.UserEvent]:
    """An event that is complete at the end, also where a test fails."""
    event = cl.UserEvent(runtime.context)
    yield event
    if event.command_execution_status != COMPLETE:
        event.set_status(COMPLETE)


@pytest.mark.parametrize("side", ["src", "dst"])
def test_events_of_arrays_are_waited_for_and_recorded(
    side: str, runtime: Runtime, gate: cl.UserEvent
) -> None:
    src, dst = array(runtime), array(runtime)
    opencl.enqueue_reorder(runtime.queue, *src, *dst)
    assert is_known(runtime, src, dst)
    queue = cl.CommandQueue(runtime.context)
    (src if side == "src" else dst)[0].add_event(gate)
    event = opencl.enqueue_reorder(queue, *src, *dst)
    assert dst[0].events == [event]
    assert event.command_execution_status != COMPLETE
    later = opencl.enqueue_reorder(cl.CommandQueue(runtime.context), *dst, *src)
    assert src[0].events == [later]
    assert later.command_execution_status != COMPLETE
    gate.set_status(COMPLETE)
    later.wait()


def test_parts_are_refused_where_they_overlap(runtime: Runtime) -> None:
    unit = runtime.device.device.mem_base_addr_align // 8
    flat, turned = (memory_desc((unit // 4, 2), "f32", tag) for tag in ("ab", "ba"))
    whole = runtime.buffer(np.arange(6 * unit, dtype=np.uint8))
    low, mid, high = (whole.get_sub_region(unit * k, unit * 2) for k in (0, 1, 2))
    for _ in range(2):
        opencl.enqueue_reorder(runtime.queue, low, flat, high, turned).wait()
        with pytest.raises(OverlapError, match="src and dst share device memory"):
            opencl.enqueue_reorder(runtime.queue, low, flat, mid, turned)
        with pytest.raises(OverlapError, match="src and dst share device memory"):
            opencl.enqueue_reorder(runtime.queue, whole, flat, mid, turned)
    # far enough from each other, though both are inside of one that is given whole
    far = memory_desc((unit // 4, 2), "f32", "ba")
    for _ in range(2):
        opencl.enqueue_reorder(runtime.queue, whole, flat, high, far).wait()


def test_memory_of_the_host_may_start_anywhere_in_the_next_call(runtime: Runtime) -> None:
    dst = buffer(runtime)
    for start in (0, 4, 0, 12):
        src = host_buffer(runtime, start), NHWC
        fill(runtime, src, X * (start + 1))
        opencl.enqueue_reorder(runtime.queue, *src, *dst).wait()
        assert read(runtime, dst)[1].tobytes() == (X * (start + 1)).tobytes()
    with refused("not a multiple of the 4 bytes of an element"):
        opencl.enqueue_reorder(runtime.queue, host_buffer(runtime, 2), NHWC, *dst)


def test_an_image_is_asked_what_it_is_in_each_call(runtime: Runtime) -> None:
    src, dst = buffer(runtime), image(runtime)
    opencl.enqueue_reorder(runtime.queue, *src, *dst)
    assert is_known(runtime, src, dst)
    shape = (IMAGE.height, IMAGE.width, 4)
    wide = runtime.image(IMAGE, np.full((shape[0] + 1, shape[1] + 2, 4), 7, np.float32))
    fill(runtime, src, X)
    event = opencl.enqueue_reorder(runtime.queue, *src, wide, IMAGE)
    pixels = runtime.pixels(wide, np.float32, event)
    assert (pixels[-1] == 7).all()
    assert (pixels[:, -2:] == 7).all()
    assert read(runtime, (wide, IMAGE))[1].tobytes() == X.tobytes()
    narrow = runtime.image(IMAGE, np.zeros((shape[0], shape[1] - 1, 4), np.float32))
    with refused(f"has width {shape[1]}"):
        opencl.enqueue_reorder(runtime.queue, *src, narrow, IMAGE)
    half = image_desc(X.shape, "f16", "in_out_channel")
    halves = runtime.image(half, np.zeros(shape, np.float16))
    with refused("needs RGBA FLOAT"):
        opencl.enqueue_reorder(runtime.queue, *src, halves, IMAGE)
    # others of as many bytes
    form, size = dst[0].format, (shape[1], shape[0])
    for width, height, found in ((2, 0.5, "height"), (0.5, 2, "width")):
        turned = (int(size[0] * width), int(size[1] * height))
        swapped = cl.create_image(runtime.context, FLAGS.READ_WRITE, form, shape=turned)
        with refused(f"has {found}"):
            opencl.enqueue_reorder(runtime.queue, *src, swapped, IMAGE)
    words = image_desc(X.shape, "s32", "in_out_channel")
    with refused("needs RGBA FLOAT"):
        integers = runtime.image(words, np.zeros(shape, np.int32))
        opencl.enqueue_reorder(runtime.queue, *src, integers, IMAGE)
    deep = cl.create_image(runtime.context, FLAGS.READ_WRITE, form, shape=(*size, 1))
    with refused("dst is an image of 1 or 3 dimensions"):
        opencl.enqueue_reorder(runtime.queue, *src, deep, IMAGE)
    sealed = cl.create_image(runtime.context, FLAGS.READ_ONLY, form, shape=size)
    with refused("dst was created READ_ONLY"):
        opencl.enqueue_reorder(runtime.queue, *src, sealed, IMAGE)
    other = cl.Context([runtime.device.device])
    foreign = cl.create_image(other, FLAGS.READ_WRITE, form, shape=size)
    with refused("dst belongs to another context"):
        opencl.enqueue_reorder(runtime.queue, *src, foreign, IMAGE)


def test_an_image_that_was_released_is_refused(runtime: Runtime) -> None:
    made, event = opencl.pack(runtime.queue, X, IMAGE)
    dst = buffer(runtime)
    opencl.enqueue_reorder(runtime.queue, made, IMAGE, *dst, wait_for=[event]).wait()
    assert is_known(runtime, (made, IMAGE), dst)
    made.release()
    with refused("src is an Image that was released"):
        opencl.enqueue_reorder(runtime.queue, made, IMAGE, *dst)
    held = reorder(X, "nchw", queue=runtime.queue)
    lent = cl.array.Array(runtime.queue, X.shape, np.float32, data=held.data)
    opencl.enqueue_reorder(runtime.queue, lent, PLAIN, *dst).wait()
    assert is_known(runtime, (lent, PLAIN), dst)
    held.data.release()
    with refused("src is a Buffer that was released"):
        opencl.enqueue_reorder(runtime.queue, lent, PLAIN, *dst)


def test_packing_and_unpacking_allocate_each_time(first: Runtime) -> None:
    src = first.buffer(X)
    made = [opencl.pack(first.queue, src, IMAGE, src_desc=PLAIN) for _ in range(3)]
    assert len({one.int_ptr for one, _ in made}) == 3
    for one, event in made:
        got = [opencl.unpack(first.queue, one, IMAGE, "nhwc", wait_for=[event]) for _ in range(2)]
        assert len({data.int_ptr for data, _ in got}) == 2
        for data, done in got:
            assert first.read(data, done).tobytes() == X.transpose(0, 2, 3, 1).tobytes()
    bytes_ = (X * 255).astype(np.uint8)
    small = image_desc(X.shape, "u8", "in_out_channel")
    raw, desc = first.buffer(bytes_), memory_desc(X.shape, "u8")
    for _ in range(2):
        for kind in ("UNSIGNED_INT8", "UNSIGNED_INT32"):
            one, event = opencl.pack(first.queue, raw, small, src_desc=desc, channel_type=kind)
            assert one.format.channel_data_type == getattr(cl.channel_type, kind)
            data, done = opencl.unpack(first.queue, one, small, desc, wait_for=[event])
            assert first.read(data, done).tobytes() == bytes_.tobytes()


def test_a_device_memory_is_what_its_fields_say_now(runtime: Runtime, gate: cl.UserEvent) -> None:
    m, out = reorder(X, "nchw", queue=runtime.queue), reorder(X, "nhwc", queue=runtime.queue)
    for _ in range(2):
        assert reorder(m, out=out) is out
    m.data = runtime.buffer(X * 2)
    assert (reorder(m, out=out).get().numpy() == X * 2).all()
    m.desc = NHWC
    wanted = (X * 2).reshape(NHWC.dims[0], *NHWC.dims[2:], NHWC.dims[1]).transpose(0, 3, 1, 2)
    assert (reorder(m, out=out).get().numpy() == wanted).all()
    m.desc = memory_desc((5, 2, 4, 16), "f32")
    with pytest.raises(MemdescError, match="dims"):
        reorder(m, out=out)
    m.desc, m.event = PLAIN, gate
    queue = cl.CommandQueue(runtime.context)
    reorder(m, out=out, queue=queue)
    assert out.queue == queue
    assert out.event is not None
    assert out.event.command_execution_status != COMPLETE
    after = reorder(out, "nchw")
    assert after.queue == queue
    gate.set_status(COMPLETE)
    assert (after.get().numpy() == X * 2).all()
    assert (reorder(m, out=out, attr=Attr(src_scale=0.5)).get().numpy() == X).all()
    out.data.release()
    with refused("dst is a Buffer that was released"):
        reorder(m, out=out)


def test_a_known_reorder_keeps_no_memory_alive(runtime: Runtime) -> None:
    src, dst = array(runtime), image(runtime)
    src[0].base_data, held = runtime.buffer(X), src[0].base_data
    opencl.enqueue_reorder(runtime.queue, *src, *dst).wait()
    assert is_known(runtime, src, dst)
    runtime.queue.finish()
    del held
    for memory in (src[0].base_data, dst[0]):
        counted = memory.reference_count
        opencl.enqueue_reorder(runtime.queue, *src, *dst).wait()
        runtime.queue.finish()
        assert memory.reference_count <= counted


def test_memory_that_was_allocated_here_is_freed_with_its_last_reference(runtime: Runtime) -> None:
    data = reorder(X, "nhwc", queue=runtime.queue).data
    made, event = opencl.pack(runtime.queue, X, IMAGE)
    event.wait()
    counted = sys.getrefcount(data), sys.getrefcount(made)
    for _ in range(2):
        opencl.enqueue_reorder(runtime.queue, made, IMAGE, data, NHWC).wait()
    assert is_known(runtime, (made, IMAGE), (data, NHWC))
    assert (sys.getrefcount(data), sys.getrefcount(made)) == counted
    other = cl.Context([runtime.device.device])
    foreign = cl.Buffer(other, FLAGS.READ_WRITE, NHWC.nbytes)
    with refused("src belongs to another context"):
        opencl.enqueue_reorder(cl.CommandQueue(other), made, IMAGE, foreign, NHWC)
