"""Reorders that were enqueued before: what may differ in memory is asked in each call."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest

from memdesc import image_desc, memory_desc
from memdesc.errors import OverlapError
from reorder import opencl, reorder
from reorder.opencl import execution
from tests.opencl.runtimes import Runtime, eventually, refused
from tests.work import count_calls

X = np.random.default_rng(3).random((2, 5, 4, 16), np.float32)
PLAIN, NHWC = (memory_desc(X.shape, "f32", tag) for tag in ("nchw", "nhwc"))
IMAGE = image_desc(X.shape, "f32", "in_out_channel")
FLAGS = cl.mem_flags
COMPLETE = cl.command_execution_status.COMPLETE


def buffer(runtime: Runtime) -> tuple[Any, Any]:
    return runtime.buffer(np.zeros(PLAIN.nbytes, np.uint8)), NHWC


def array(runtime: Runtime) -> tuple[Any, Any]:
    return cl.array.zeros(runtime.queue, X.shape, np.float32), NHWC


def image(runtime: Runtime) -> tuple[Any, Any]:
    return runtime.image(IMAGE, np.zeros((IMAGE.height, IMAGE.width, 4), np.float32)), IMAGE


def move(
    runtime: Runtime, src: tuple[Any, Any], dst: tuple[Any, Any], queue: Any = None
) -> cl.Event:
    return opencl.enqueue_reorder(queue or runtime.queue, src[0], dst[0], src=src[1], dst=dst[1])


def test_memory_that_overlaps_is_refused_and_memory_beside_it_is_written(runtime: Runtime) -> None:
    align = runtime.device.device.mem_base_addr_align // 8
    flat, turned = (memory_desc((align // 4, 2), "f32", tag) for tag in ("ab", "ba"))
    x = np.arange(6 * align, dtype=np.uint8)
    raw = np.zeros(x.nbytes + 4096, np.uint8)
    host = raw[-raw.ctypes.data % 4096 :][: x.nbytes]
    flags = FLAGS.READ_WRITE | FLAGS.USE_HOST_PTR
    over_host, low_too, mid_too = (
        cl.Buffer(runtime.context, flags, hostbuf=host[align * first : align * last])
        for first, last in ((0, 6), (0, 2), (1, 3))
    )
    on_device = runtime.buffer(x)
    lent = cl.array.Array(runtime.queue, 6 * align, np.uint8, data=on_device)
    for whole in (on_device, over_host):
        low, mid, high = (whole.get_sub_region(align * k, align * 2) for k in (0, 1, 2))
        others = [(lent, mid), (lent, lent[align:])] if whole is on_device else [(low_too, mid_too)]
        for _ in range(2):
            cl.enqueue_copy(runtime.queue, whole, x)
            move(runtime, (low, flat), (high, turned)).wait()
            found = runtime.read(whole)[2 * align : 4 * align].view(np.float32)
            wanted = x[: 2 * align].view(np.float32).reshape(-1, 2).T
            assert found.tobytes() == wanted.tobytes()
            # far enough from each other, though one is inside of one that is given whole
            move(runtime, (whole, flat), (high, turned)).wait()
            for one, other in ((low, mid), (whole, mid), (whole, whole), (low, whole), *others):
                with pytest.raises(OverlapError, match=f"share device memory: {2 * align} bytes"):
                    move(runtime, (one, flat), (other, turned))
    far = memory_desc((4, 3), "f32", strides=(3, 1), offset0=align // 4)
    near = memory_desc((4, 3), "f32", "ba")
    low, high = on_device.get_sub_region(0, align + 48), on_device.get_sub_region(align, align)
    with pytest.raises(OverlapError, match=f"from byte 0 and 48 from byte {align}"):
        move(runtime, (low, far), (high, near))


def test_an_image_is_asked_what_it_is_in_each_call(runtime: Runtime) -> None:
    src, dst = buffer(runtime), image(runtime)
    move(runtime, src, dst)

    def made(kind: Any, *size: int, flags: int = FLAGS.READ_WRITE, context: Any = None) -> Any:
        form = cl.ImageFormat(cl.channel_order.RGBA, kind)
        return cl.create_image(context or runtime.context, flags, form, shape=size)

    kinds, other = cl.channel_type, cl.Context([runtime.device.device])
    height, width = IMAGE.height, IMAGE.width
    for target, message in (
        (made(kinds.FLOAT, width - 1, height), f"has width {width}"),
        # of as many bytes
        (made(kinds.FLOAT, width * 2, height // 2), "has height"),
        (made(kinds.FLOAT, width // 2, height * 2), "has width"),
        (made(kinds.HALF_FLOAT, width, height), "needs RGBA FLOAT"),
        (made(kinds.SIGNED_INT32, width, height), "needs RGBA FLOAT"),
        (made(kinds.FLOAT, width, height, 1), "out is an IMAGE3D"),
        (made(kinds.FLOAT, width, height, flags=FLAGS.READ_ONLY), "out was created READ_ONLY"),
        (made(kinds.FLOAT, width, height, context=other), "out belongs to another context"),
    ):
        with refused(message):
            move(runtime, src, (target, IMAGE))


def test_a_known_reorder_keeps_no_memory_alive(runtime: Runtime) -> None:
    src, dst = array(runtime), image(runtime)
    src[0].base_data = runtime.buffer(X)
    data, (made, event) = (
        reorder(X, "nhwc", queue=runtime.queue).data,
        opencl.pack(runtime.queue, X, IMAGE),
    )
    event.wait()
    move(runtime, src, dst).wait()
    runtime.queue.finish()
    counted = src[0].base_data.reference_count, dst[0].reference_count
    allocated = sys.getrefcount(data), sys.getrefcount(made)
    for _ in range(2):
        move(runtime, src, dst).wait()
        opencl.enqueue_reorder(runtime.queue, made, data, src=IMAGE, dst=NHWC).wait()
    runtime.queue.finish()
    for memory, most in zip((src[0].base_data, dst[0]), counted, strict=True):
        assert eventually(partial(_is_freed, memory, most))
    assert (sys.getrefcount(data), sys.getrefcount(made)) == allocated
    other = cl.Context([runtime.device.device])
    foreign = cl.Buffer(other, FLAGS.READ_WRITE, NHWC.nbytes)
    with refused("x belongs to another context"):
        opencl.enqueue_reorder(cl.CommandQueue(other), made, foreign, src=IMAGE, dst=NHWC)


def _is_freed(memory: cl.Buffer, counted: int) -> bool:
    return memory.reference_count <= counted


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
        event = opencl.enqueue_reorder(queue, src, dst, src=one, dst=other)
        cl.enqueue_copy(queue, out, dst, wait_for=[event])
        return out.tobytes() == x.T.tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(move, range(60)))


def test_events_of_another_context_are_refused(runtime: Runtime) -> None:
    src, dst = array(runtime), array(runtime)
    memory, out = (reorder(X, tag, queue=runtime.queue) for tag in ("nchw", "nhwc"))
    for _ in range(3):
        move(runtime, src, dst)
        reorder(memory, out=out)
    foreign = cl.UserEvent(cl.Context([runtime.device.device]))
    src[0].add_event(foreign)
    memory.event, held = foreign, memory.event
    calls: tuple[Callable[[], Any], ...] = (
        lambda: move(runtime, src, dst),
        lambda: reorder(memory, out=out),
        lambda: reorder(X, out=out, queue=runtime.queue, wait_for=[foreign]),
    )
    for call in calls:
        with refused("wait_for has an event of another context than the queue"):
            call()
    foreign.set_status(COMPLETE)
    memory.event = held
    assert (reorder(memory, out=out).get().numpy() == X).all()


def test_what_an_array_is_of_now_is_its_type(first: Runtime) -> None:
    src, dst = array(first)[0], cl.array.zeros(first.queue, X.shape, np.float16)
    for dtype in (np.float32, np.int32):
        x = (X * 9).astype(dtype)
        src = cl.array.to_device(first.queue, x)
        for _ in range(2):
            reorder(src, out=dst)
            assert dst.get().tobytes() == x.astype(np.float16).tobytes()


def test_a_known_call_runs_few_functions_of_python(runtime: Runtime) -> None:
    queue, x = runtime.queue, X.reshape(2, 4, 5, 16)
    plain, nhwc = (memory_desc(x.shape, "f32", tag) for tag in ("nchw", "nhwc"))
    pixels = image_desc(x.shape, "f32", "in_out_channel")
    src, dst = (runtime.buffer(x) for _ in range(2))
    one, other = (cl.array.to_device(queue, x) for _ in range(2))
    image, _ = opencl.pack(queue, x, pixels)
    memory, out = (reorder(x, tag, queue=queue) for tag in ("nchw", "nhwc"))
    calls: dict[str, tuple[int, Callable[[], Any]]] = {
        "buffers": (6, lambda: opencl.enqueue_reorder(queue, src, dst, src=plain, dst=nhwc)),
        "pack": (5, lambda: opencl.enqueue_pack(queue, src, image, pixels, src=plain)),
        "pack of the host": (4, lambda: opencl.enqueue_pack(queue, x, image, pixels)),
        "pack by name": (6, lambda: opencl.enqueue_pack(queue, memory, image, "in_out_channel")),
        "pack anew": (9, lambda: opencl.pack(queue, x, pixels)),
        "unpack": (9, lambda: opencl.unpack(queue, image, nhwc, pixels)),
        "unpack into": (9, lambda: opencl.enqueue_unpack(queue, image, dst, nhwc, pixels)),
        "into": (10, lambda: reorder(memory, out=out)),
        "a layout": (12, lambda: reorder(memory, "nhwc")),
        "arrays": (17, lambda: reorder(one, out=other)),
        "the host": (9, lambda: reorder(x, "nhwc", queue=queue)),
    }
    for what, (most, call) in calls.items():
        call()
        call()
        assert count_calls(call, "call") <= most, what
    queue.finish()
