"""Images whose memory kernels access as a buffer, and those for which the runtime copies pixels."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

import numpy as np
import pyopencl as cl
import pytest

from memdesc import image_desc, memory_desc
from reorder import opencl, reorder
from reorder.opencl.execution import build_transfers, enqueue_transfers
from reorder.opencl.image_formats import image_format
from reorder.opencl.mapped_pixels import map_pixels, turn_to_map
from reorder.opencl.operands import device_operand
from reorder.opencl.programs import floats_of
from reorder.opencl.schedule.profile import CPU
from reorder.opencl.schedule.transfers import DeviceTraits, plan_transfers
from tests.opencl.runtimes import FLAGS, enqueue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.opencl.runtimes import Runtime

DESC = image_desc((2, 9, 5, 7), "f16", "in_out_channel")
PLAIN = memory_desc(DESC.dims, "f16")
X = np.random.default_rng(3).random(DESC.dims).astype(np.float16)
# columns and rows beside those needed, flags, and whether kernels can use the memory
IMAGES = pytest.mark.parametrize(
    ("columns", "rows", "flags", "is_mapped"),
    [
        (0, 0, 0, True),
        (0, 3, 0, True),
        (1, 0, 0, False),
        (0, 0, cl.mem_flags.HOST_NO_ACCESS, False),
        (0, 0, cl.mem_flags.HOST_READ_ONLY, False),
        (0, 0, cl.mem_flags.USE_HOST_PTR, False),
    ],
)


def make_image(runtime: Runtime, columns: int, rows: int, flags: int) -> cl.Image:
    size = DESC.width + columns, DESC.height + rows
    host = (
        np.zeros((size[1], size[0], 4), np.float16) if flags & cl.mem_flags.USE_HOST_PTR else None
    )
    form = image_format(DESC)
    return cl.create_image(runtime.context, FLAGS | flags, form, shape=size, hostbuf=host)


def shares_memory(runtime: Runtime) -> bool:
    """Whether a device has images in memory of the host, without gaps between their rows."""
    is_dense = make_image(runtime, 0, 0, 0).row_pitch == DESC.width * DESC.channels * 2
    return bool(runtime.device.device.type & cl.device_type.CPU) and is_dense


@IMAGES
def test_pixels_are_mapped_where_the_rows_follow_one_another(
    columns: int, rows: int, flags: int, is_mapped: bool, first: Runtime
) -> None:
    image = make_image(first, columns, rows, flags)
    region = DESC.width, DESC.height
    for is_written in (True, False):
        with turn_to_map() as may_map:
            assert may_map
            mapped = map_pixels(first.queue, image, region, None, is_written=is_written)
            if shares_memory(first):
                assert (mapped is not None) == is_mapped
            if mapped is not None:
                assert mapped.buffer.size == DESC.nbytes
                mapped.unmap(first.queue, [mapped.event]).wait()


@IMAGES
def test_an_image_holds_the_same_however_kernels_access_it(
    columns: int, rows: int, flags: int, is_mapped: bool, runtime: Runtime
) -> None:
    image = make_image(runtime, columns, rows, flags)
    buffer = runtime.buffer(X)
    event = enqueue(runtime, (buffer, PLAIN), (image, DESC), profile=CPU)
    if shares_memory(runtime):
        unmaps = event.command_type == cl.command_type.UNMAP_MEM_OBJECT
        assert unmaps == is_mapped
    event.wait()
    if not flags & cl.mem_flags.HOST_NO_ACCESS:
        pixels = runtime.pixels(image, np.float16)[: DESC.height, : DESC.width]
        assert pixels.tobytes() == reorder(X, DESC).tobytes()
    back = runtime.buffer(np.zeros(X.size, np.float16))
    event = enqueue(runtime, (image, DESC), (back, PLAIN), profile=CPU)
    assert runtime.read(back, event).tobytes() == X.tobytes()


def test_reorders_of_images_follow_one_another_in_a_queue_without_order(first: Runtime) -> None:
    order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    queue = cl.CommandQueue(first.context, properties=order)
    image = make_image(first, 0, 0, 0)
    wanted: list[NDArray[np.float16]] = []
    events: list[cl.Event] = []
    backs = [first.buffer(np.zeros(X.size, np.float16)) for _ in range(8)]
    for k, back in enumerate(backs):
        x = X + np.float16(k)
        buffer = first.buffer(x)
        wanted.append(x)
        event = opencl.enqueue_reorder(queue, buffer, PLAIN, image, DESC, wait_for=events)
        events = [opencl.enqueue_reorder(queue, image, DESC, back, PLAIN, wait_for=[event])]
    events[0].wait()
    for x, back in zip(wanted, backs, strict=True):
        assert first.read(back).tobytes() == x.tobytes()


def test_what_runs_while_its_thread_maps_copies_pixels(runtime: Runtime) -> None:
    # as a finalizer or the handler of a signal does
    with turn_to_map() as may_map:
        assert may_map
        image, event = opencl.pack(runtime.queue, X, DESC)
        event.wait()
        buffer, event = opencl.unpack(runtime.queue, image, DESC, "nchw")
        assert runtime.read(buffer, event).tobytes() == X.tobytes()
        assert event.command_type != cl.command_type.UNMAP_MEM_OBJECT
    with turn_to_map() as may_map:
        assert may_map


def test_an_error_after_mapping_gives_the_image_back(runtime: Runtime) -> None:
    image, event = opencl.pack(runtime.queue, X, DESC)
    event.wait()
    device = runtime.device.device
    traits = DeviceTraits(device.max_work_group_size, floats_of(device), CPU)
    kinds = (
        device_operand(runtime.queue, runtime.buffer(X), PLAIN, "src"),
        device_operand(runtime.queue, image, DESC, "dst"),
    )
    for one, other in (kinds, kinds[::-1]):
        transfers = plan_transfers(one.spec(other), other.spec(one), traits, None, is_aligned=True)
        prepared = build_transfers(runtime.context, device, transfers)
        pair = tuple(image if kind is kinds[1] else "no memory" for kind in (one, other))
        with pytest.raises((cl.Error, TypeError)):
            enqueue_transfers(runtime.queue, prepared, (pair[0], pair[1]), None)
    again = opencl.enqueue_pack(runtime.queue, X, image, DESC)
    back, event = opencl.unpack(runtime.queue, image, DESC, "nchw", wait_for=[again])
    assert runtime.read(back, event).tobytes() == X.tobytes()


def test_a_fork_waits_for_a_thread_that_maps() -> None:
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with turn_to_map():
            inside.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    threading.Timer(0.1, done.set).start()
    child = os.fork()
    if not child:
        # ends the child where the lock is held for ever
        signal.alarm(60)
        with turn_to_map():
            os._exit(0)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.campaign
def test_threads_read_one_image_at_the_same_time(runtime: Runtime) -> None:
    image, _ = opencl.pack(runtime.queue, X, DESC)
    runtime.queue.finish()
    wrong: list[int] = []

    def read(k: int) -> None:
        queue = cl.CommandQueue(runtime.context)
        for _ in range(200):
            buffer, event = opencl.unpack(queue, image, DESC, "nchw")
            if runtime.read(buffer, event).tobytes() != X.tobytes():
                wrong.append(k)

    threads = [threading.Thread(target=read, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
