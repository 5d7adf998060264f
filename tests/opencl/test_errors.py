"""Bad input: an error that says what is wrong, before anything is enqueued or written."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest

from memdesc import (
    RUNTIME,
    Extra,
    MemdescError,
    image_desc,
    memory_desc,
    runtime_desc,
)
from memdesc.errors import OutOfMemoryError, OverlapError
from reorder import Attr, Memory, opencl, quantize, reorder, use_threads
from reorder.opencl import image_formats
from reorder.plan import plan_runtime
from tests.opencl.runtimes import eventually, refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.opencl.runtimes import Runtime

FLAGS = cl.mem_flags
IMAGE = image_desc((1, 5, 3, 2), "f32", "in_out_channel")
PLAIN = memory_desc((1, 5, 3, 2), "f32")
X = np.arange(30, dtype=np.float32).reshape(1, 5, 3, 2)


# each call, and below it what its message contains
REFUSED = """
ocl.pack(q, small, IMAGE, src=PLAIN)
    x has 116 bytes, but memory_desc((1, 5, 3, 2), 'f32', 'abcd') touches 120 (allocate 120)
ocl.enqueue_reorder(q, small, dst, src=PLAIN, dst=PLAIN)
    x has 116 bytes
ocl.enqueue_reorder(q, src, small, src=PLAIN, dst=PLAIN)
    out has 116 bytes
ocl.enqueue_reorder(q, foreign, dst, src=PLAIN, dst=PLAIN)
    x belongs to another context
ocl.enqueue_reorder(q, src, foreign, src=PLAIN, dst=PLAIN)
    out belongs to another context
ocl.enqueue_reorder(q, src, read_only, src=PLAIN, dst=PLAIN)
    out was created READ_ONLY
ocl.enqueue_reorder(q, write_only, dst, src=PLAIN, dst=PLAIN)
    x was created WRITE_ONLY
ocl.enqueue_reorder(q, src, write_only, src=PLAIN, dst=PLAIN, attr=Attr(beta=0.5))
    out was created WRITE_ONLY, so kernels may not read it, but beta=0.5 adds
ocl.enqueue_reorder(q, src, src, src=PLAIN, dst=PLAIN)
    x and out share device memory
ocl.enqueue_reorder(q, image, image, src=IMAGE, dst=IMAGE)
    x and out share device memory
ocl.enqueue_reorder(q, src, dst, src=PLAIN, dst=memory_desc((1, 5, 3, 3), "f32"))
    src has dims (1, 5, 3, 2), dst has dims (1, 5, 3, 3)
ocl.enqueue_reorder(q, src, dst, src=PLAIN, dst=memory_desc(X.shape, "f32", strides=(0, 0, 0, 0)))
    dst memory_desc((1, 5, 3, 2), 'f32', strides=(0, 0, 0, 0)) has a stride of 0
ocl.enqueue_reorder(q, src, dst, src=PLAIN, dst=PLAIN.with_dtype("s8").with_extra(EXTRA))
    has compensation, which int8 kernels of processors read; reorder on the CPU, or leave it out
ocl.enqueue_reorder(q, src, dst, src="nchw", dst=PLAIN)
    src must be a MemoryDesc or an ImageDesc, not 'nchw'
ocl.enqueue_reorder(q, src, dst, src=[1], dst=PLAIN)
    src must be a MemoryDesc or an ImageDesc
ocl.enqueue_reorder(q, src, dst, src=PLAIN, dst=PLAIN, attr=2.0)
    attr must be a reorder.Attr, not float
ocl.enqueue_reorder(q, src, dst, src=PLAIN, dst=PLAIN, attr=[1])
    attr must be a reorder.Attr, not list
ocl.enqueue_reorder(q, image, dst, src=PLAIN, dst=PLAIN)
    x must be a pyopencl Buffer, Array or SVM for memory_desc((1, 5, 3, 2), 'f32', 'abcd')
ocl.enqueue_reorder(q, src, None, src=PLAIN, dst=PLAIN)
    out is None; pass the memory to write
ocl.enqueue_pack(q, src, None, IMAGE, src=PLAIN)
    image is None; pass the memory to write
ocl.enqueue_pack(q, X, src, IMAGE)
    image must be a pyopencl Image for image_desc((1, 5, 3, 2), 'f32', 'in_out_channel')
ocl.enqueue_pack(q, X, halves, IMAGE)
    but image_desc((1, 5, 3, 2), 'f32', 'in_out_channel') needs RGBA FLOAT
ocl.pack(None, X, IMAGE)
    queue must be a pyopencl.CommandQueue, not None
ocl.pack(q, src, IMAGE)
    x is a pyopencl Buffer, whose layout is not known; pass src=, a MemoryDesc
ocl.pack(q, X, "nhwc")
    dst must be an ImageDesc, not memory_desc((1, 5, 3, 2), 'f32', 'acdb')
ocl.pack(q, X.astype(bfloat16), image_desc(X.shape, "bf16", "in_out_channel"))
    OpenCL has no image of bf16 lanes; images hold f32, f16, s32, s8, u8
ocl.pack(q, X, IMAGE, channel_type="SNORM_INT8")
    channel_type 'SNORM_INT8' (SNORM_INT8) cannot hold f32; use FLOAT
ocl.pack(q, X, IMAGE, channel_type=cl.channel_type.UNORM_INT8)
    cannot hold f32
ocl.pack(q, odd, image_desc((30,), "f32", "argument"))
    x is an array of strides (4,) and offset 2 bytes
ocl.unpack(q, src, "nchw", "in_out_channel")
    an image does not say its dims, memdesc.image_desc(dims, dtype, 'in_out_channel') does
image_desc((8, 8, 3, 3), "f32", "winograd_filter")
    holds G g G^T of each 3x3 filter, which a reorder cannot make
image_desc((2, 8, 3, 3), "f32", "dw_conv2d_filter")
    dw_conv2d_filter has m = 2: its image holds only m = 1
reorder(s4, "a")
    x is an array of s4, one element per byte; memory of s4 holds two
reorder(X.reshape(-1), out=u4)
    out is an array of u4, one element per byte; memory of u4 holds two
reorder(X.reshape(-1), "a", out=s4)
    out is an array of s4, one element per byte; memory of s4 holds two
ocl.enqueue_unpack(q, image, u4, "nchw", IMAGE)
    out is an array of u4, one element per byte; memory of u4 holds two
ocl.unpack(q, gone_image, "nchw", IMAGE)
    image is an Image that was released
ocl.enqueue_pack(q, X, gone_image, IMAGE)
    image is an Image that was released
ocl.pack(q, gone, IMAGE, src=PLAIN)
    x is a Buffer that was released
ocl.enqueue_reorder(q, src, gone, src=PLAIN, dst=PLAIN)
    out is a Buffer that was released
ocl.DeviceMemory(q, 3, PLAIN).get()
    the memory must be a pyopencl Buffer, Array or SVM
ocl.DeviceMemory(q, src, IMAGE).get()
    the memory must be a pyopencl Image
ocl.DeviceMemory(q, pixels, PLAIN).get()
    the memory must be a pyopencl Buffer, Array or SVM
ocl.DeviceMemory(q, pixels, IMAGE).get()
    the memory has 2 x 2 pixels
ocl.DeviceMemory(q, small, PLAIN).get()
    the memory has 116 bytes
ocl.DeviceMemory(q, src, "nchw")
    must be a MemoryDesc or an ImageDesc
ocl.DeviceMemory(q, src, PLAIN, 3)
    event must be a pyopencl.Event or None, not 3
ocl.DeviceMemory(cl.CommandQueue(other), src, PLAIN).get()
    the memory belongs to another context than the queue
ocl.DeviceMemory(3, src, PLAIN)
    queue must be a pyopencl.CommandQueue, not 3
"""


def refusals() -> list[tuple[str, str]]:
    """Return the calls that are refused, with their messages."""
    lines = REFUSED.strip().splitlines()
    return [(call, message.strip()) for call, message in zip(lines[::2], lines[1::2], strict=True)]


@pytest.fixture
def names(runtime: Runtime) -> dict[str, Any]:
    """What the calls above name."""
    q, context = runtime.queue, runtime.context
    other = cl.Context([runtime.device.device])
    form = image_formats.image_format(IMAGE)
    half = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.HALF_FLOAT)
    gone_image, event = opencl.pack(q, X, IMAGE)
    gone, event = opencl.unpack(q, gone_image, PLAIN, IMAGE, wait_for=[event])
    event.wait()
    gone.release()
    gone_image.release()
    base = cl.array.zeros(q, 256, np.uint8)
    s4, u4 = (
        cl.array.to_device(q, np.arange(30).astype(kind))
        for kind in (ml_dtypes.int4, ml_dtypes.uint4)
    )
    return {
        "cl": cl,
        "ocl": opencl,
        "image_desc": image_desc,
        "memory_desc": memory_desc,
        "reorder": reorder,
        "Attr": Attr,
        "EXTRA": Extra(s8s8_mask=1),
        "bfloat16": ml_dtypes.bfloat16,
        "IMAGE": IMAGE,
        "PLAIN": PLAIN,
        "X": X,
        "q": q,
        "other": other,
        "src": runtime.buffer(X),
        "dst": runtime.buffer(np.full(64, 7, np.float32)),
        "small": runtime.buffer(np.zeros(29, np.float32)),
        "foreign": cl.Buffer(other, FLAGS.READ_WRITE, 512),
        "read_only": cl.Buffer(context, FLAGS.READ_ONLY, 512),
        "write_only": cl.Buffer(context, FLAGS.WRITE_ONLY, 512),
        "image": opencl.pack(q, X, IMAGE)[0],
        "pixels": cl.create_image(context, FLAGS.READ_WRITE, form, shape=(2, 2)),
        "halves": cl.create_image(context, FLAGS.READ_WRITE, half, shape=(9, 9)),
        "odd": cl.array.Array(q, (30,), np.float32, data=base.base_data, offset=2),
        "s4": s4,
        "u4": u4,
        "gone": gone,
        "gone_image": gone_image,
    }


def test_what_is_wrong_is_refused_with_its_numbers_and_nothing_is_written(
    runtime: Runtime, names: dict[str, Any]
) -> None:
    # in the second round reorders of such buffers are known
    for _ in range(2):
        for call, message in refusals():
            with pytest.raises(MemdescError) as caught:
                eval(call, dict(names))
            assert message in str(caught.value), call
        assert (runtime.read(names["dst"]).view(np.float32) == 7).all()
        known = cl.Buffer(runtime.context, FLAGS.READ_WRITE, 512)
        for attr in (None, Attr(beta=0.5)):
            opencl.enqueue_reorder(
                runtime.queue, names["src"], known, src=PLAIN, dst=PLAIN, attr=attr
            ).wait()
    # kernels may write what they may not read
    written = names["write_only"]
    opencl.enqueue_reorder(runtime.queue, names["src"], written, src=PLAIN, dst=PLAIN).wait()


def test_raw_bytes_of_four_bit_elements_hold_what_a_descriptor_says(runtime: Runtime) -> None:
    packed = cl.array.to_device(runtime.queue, np.array([0x10, 0x32, 0x54], np.uint8))
    assert reorder(packed, "a", src=memory_desc((6,), "u4")).data.size == 3


@pytest.mark.parametrize("name", ["in_out_chanel", "nChw16x", "abcd|4x", "winograd_filter"])
def test_a_wrong_name_has_one_message_on_the_cpu_and_on_devices(
    runtime: Runtime, name: str
) -> None:
    with pytest.raises(MemdescError) as on_cpu:
        reorder(X, name)
    with refused(str(on_cpu.value)):
        reorder(X, name, queue=runtime.queue)
    memory = reorder(X, "abcd", queue=runtime.queue)
    with refused(str(on_cpu.value)):
        reorder(memory, name)


def test_a_part_of_a_buffer_that_was_released_is_reordered_or_refused(runtime: Runtime) -> None:
    part = cl.Buffer(runtime.context, FLAGS.READ_WRITE, 8192).get_sub_region(0, 4096)
    gc.collect()
    dst = runtime.buffer(X)
    try:
        opencl.enqueue_reorder(runtime.queue, part, dst, src=PLAIN, dst=PLAIN).wait()
    except MemdescError as refusal:
        if "part of a Buffer that was released" not in str(refusal):
            raise


def test_parts_of_one_buffer_that_overlap_are_refused_and_disjoint_ones_work(
    runtime: Runtime,
) -> None:
    align = runtime.device.device.mem_base_addr_align // 8
    src = memory_desc((4, 3), "f32", "ab")
    dst = memory_desc((4, 3), "f32", "ba")
    whole = runtime.buffer(np.arange(3 * align, dtype=np.uint8))
    low, high = whole.get_sub_region(0, align + 48), whole.get_sub_region(align, align)
    for one, other in ((whole, whole), (whole, low), (low, whole)):
        with pytest.raises(
            OverlapError,
            match="x and out share device memory: 48 bytes from byte 0 and 48 from byte 0",
        ):
            opencl.enqueue_reorder(runtime.queue, one, other, src=src, dst=dst)
    far = memory_desc((4, 3), "f32", strides=(3, 1), offset0=align // 4)
    with pytest.raises(OverlapError, match=f"from byte 0 and 48 from byte {align}"):
        opencl.enqueue_reorder(runtime.queue, low, high, src=far, dst=dst)
    event = opencl.enqueue_reorder(runtime.queue, low, high, src=src, dst=dst)
    found = runtime.read(whole, event)
    x = np.arange(48, dtype=np.uint8).view(np.float32).reshape(4, 3)
    assert found[align : align + 48].tobytes() == x.T.tobytes()


def test_a_queue_whose_context_is_gone_works_or_is_refused(runtime: Runtime) -> None:
    queue = cl.CommandQueue(cl.Context([runtime.device.device]))
    gc.collect()
    try:
        opencl.pack(queue, X, IMAGE)[1].wait()
    except MemdescError as refusal:
        message = str(refusal)
    else:
        message = ""
    assert message == "" or "keep the Context as long as its queues are used" in message


def test_nothing_is_allocated_where_a_pair_is_refused(runtime: Runtime) -> None:
    gc.collect()
    runtime.queue.finish()
    # buffers and images hold their context, and the frames of an error would hold them
    held = runtime.context.reference_count
    with pytest.raises(MemdescError, match="dst_zero_point is for integers") as no_points:
        reorder(X, "nhwc", attr=Attr(dst_zero_point=3), queue=runtime.queue)
    assert eventually(lambda: runtime.context.reference_count <= held)
    assert no_points.tb


def test_nothing_is_kept_of_what_was_refused_or_is_done(runtime: Runtime) -> None:
    small = runtime.buffer(np.zeros(2, np.float32))
    images = [
        image_desc(X.shape, "f32", "in_out_channel"),
        image_desc(X.shape, "s32", "in_out_channel"),
    ]

    def use() -> None:
        opencl.pack(runtime.queue, X, images[0])[1].wait()
        reorder(X, "aBcd3b", queue=runtime.queue).get()
        for src, image, desc in ((small, images[0], PLAIN), (X, images[1], PLAIN.with_dtype("u8"))):
            with pytest.raises(MemdescError):
                opencl.pack(runtime.queue, src, image, src=desc)

    use()
    gc.collect()
    runtime.queue.finish()
    # buffers, images, kernels and events each hold their context
    held = runtime.context.reference_count
    for _ in range(5):
        use()
    gc.collect()
    runtime.queue.finish()
    assert eventually(lambda: runtime.context.reference_count <= held)


def test_buffers_over_one_array_of_the_host_share_memory(runtime: Runtime) -> None:
    host = np.zeros(4096 + 64, np.uint8)
    host = host[-host.ctypes.data % 64 :][:4096]
    whole, low, high, meeting = (
        cl.Buffer(runtime.context, FLAGS.READ_WRITE | FLAGS.USE_HOST_PTR, hostbuf=part)
        for part in (host, host[:1024], host[1024:2048], host[512:1536])
    )
    src, dst = memory_desc((16, 16), "f32", "ab"), memory_desc((16, 16), "f32", "ba")
    for one, other in ((whole, low), (low, whole), (low, low), (low, meeting), (meeting, high)):
        with pytest.raises(OverlapError, match="x and out share device memory"):
            opencl.enqueue_reorder(runtime.queue, one, other, src=src, dst=dst)
    x = np.arange(256, dtype=np.float32).reshape(16, 16)
    cl.enqueue_copy(runtime.queue, low, x)
    event = opencl.enqueue_reorder(runtime.queue, low, high, src=src, dst=dst)
    assert runtime.read(high, event).tobytes() == x.T.tobytes()


def test_what_is_not_an_event_of_the_context_is_refused(runtime: Runtime) -> None:
    context = cl.Context([runtime.device.device])
    other = cl.CommandQueue(context)
    mark: Any = cl.enqueue_marker
    image, event = opencl.pack(runtime.queue, X, IMAGE)
    src, dst = runtime.buffer(X), runtime.buffer(X)
    for wait_for, message in (
        ([3], "wait_for must be a list of pyopencl.Event, not [3]"),
        (3, "wait_for must be a list of pyopencl.Event, not 3"),
        (event, "wait_for must be a list of pyopencl.Event, not <pyopencl"),
        ([event, None], "wait_for must be a list of pyopencl.Event"),
        ([mark(other)], "wait_for has an event of another context"),
    ):
        given: Any = wait_for
        with refused(message):
            opencl.pack(runtime.queue, X, IMAGE, wait_for=given)
        with refused(message):
            opencl.enqueue_pack(runtime.queue, X, image, IMAGE, wait_for=given)
        with refused(message):
            opencl.unpack(runtime.queue, image, "nchw", IMAGE, wait_for=given)
        with refused(message):
            opencl.enqueue_reorder(runtime.queue, src, dst, src=PLAIN, dst=PLAIN, wait_for=given)
    opencl.unpack(runtime.queue, image, "nchw", IMAGE, wait_for=(event,))[1].wait()


def test_a_too_large_image_is_refused_with_the_direction_and_the_limit(runtime: Runtime) -> None:
    device = runtime.device.device
    wide = image_desc((1, 4, 1, device.image2d_max_width + 1), "f32", "in_out_channel")
    limit = device.image2d_max_width
    with refused(f"width {limit + 1} is more than the {limit} allowed"):
        opencl.pack(runtime.queue, np.zeros(wide.dims, np.float32), wide)
    high = image_desc((1, 4, device.image2d_max_height + 1, 1), "f32", "in_out_channel")
    limit = device.image2d_max_height
    with refused(f"height {limit + 1} is more than the {limit} allowed"):
        opencl.pack(runtime.queue, np.zeros(high.dims, np.float32), high)


def test_a_device_without_images_is_refused_and_told_of_buffers(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    # no runtime here has such a device
    monkeypatch.setattr(image_formats, "_limits", lambda *_: ((0, 0), False, True))
    # a queue that knows no call
    queue = cl.CommandQueue(runtime.context)
    with refused("has no images; reorder into a buffer of image.desc instead"):
        opencl.pack(queue, X, IMAGE)


def test_a_format_that_no_device_has_is_refused(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    # runtimes here have all formats
    monkeypatch.setattr(image_formats, "_supported", lambda *_: frozenset())
    with refused("the devices of the context have no images of RGBA FLOAT"):
        opencl.pack(cl.CommandQueue(runtime.context), X, IMAGE)


def test_the_advice_on_axes_in_memory_order_works(runtime: Runtime) -> None:
    nhwc = np.ascontiguousarray(X.transpose(0, 2, 3, 1))
    image, _ = opencl.pack(runtime.queue, X, IMAGE)
    calls: tuple[Callable[..., Any], ...] = (
        lambda **given: opencl.pack(runtime.queue, nhwc, IMAGE, **given),
        lambda **given: opencl.enqueue_pack(runtime.queue, nhwc, image, IMAGE, **given),
        lambda **given: reorder(nhwc, IMAGE, queue=runtime.queue, **given),
    )
    for call in calls:
        with refused("if the axes are in memory order, give src=, such as src='nhwc'"):
            call()
        call(src="nhwc")


def test_an_image_is_packed_and_unpacked_with_attributes_and_by_its_name(runtime: Runtime) -> None:
    image, event = opencl.pack(runtime.queue, X, "in_out_channel", attr=Attr(src_scale=2.0))
    nhwc, event = opencl.unpack(
        runtime.queue, image, "nhwc", IMAGE, attr=Attr(src_scale=0.25), wait_for=[event]
    )
    assert runtime.read(nhwc, event).tobytes() == (X / 2).transpose(0, 2, 3, 1).tobytes()
    opencl.enqueue_pack(runtime.queue, X, image, "in_out_channel", attr=Attr(src_scale=4.0))
    out = cl.array.empty(runtime.queue, X.shape, np.float32)
    opencl.enqueue_unpack(runtime.queue, image, out, "nchw", IMAGE, attr=Attr(dst_scale=2.0))
    assert (out.get() == X * 2).all()


def test_buffers_that_a_device_does_not_allocate_are_refused_with_its_limit(
    runtime: Runtime,
) -> None:
    queue = runtime.queue
    most = queue.device.max_mem_alloc_size
    desc = memory_desc((most // 12 + 1, 3), "f32", strides=(0, 1))
    host = Memory(desc, np.zeros(3, np.float32), zero_pad=False)
    reason = rf"a buffer of \d+ bytes cannot be allocated on .* largest buffer has {most} bytes"
    with pytest.raises(OutOfMemoryError, match=reason):
        reorder(host, "ab", queue=queue)
    row = reorder(np.zeros((1, 3), np.float32), "ab", queue=queue)
    with pytest.raises(OutOfMemoryError, match=reason):
        reorder(opencl.DeviceMemory(queue, row.data, desc), "ab")


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
    with refused(f"x is {noun} that was released"):
        reorder(memory, "nchw")
    with refused(f"out is {noun} that was released"):
        reorder(X, out=memory)


def test_memory_is_given_back_to_the_runtime_once(runtime: Runtime) -> None:
    memory = made_by_reorder(runtime, "buffer")
    release(memory)
    with pytest.raises(cl.LogicError, match="double-unref"):
        release(memory)
    with refused("the memory is a Buffer that was released"):
        memory.get()


def test_threads_are_checked_as_on_the_cpu_and_refused_on_devices(runtime: Runtime) -> None:
    queue, memory = runtime.queue, reorder(X, "nhwc", queue=runtime.queue)
    one, other = (runtime_desc((RUNTIME, 5, 3, 2), "f32", tag) for tag in ("nhwc", "nchw"))
    plan, out = plan_runtime(one, other), reorder(X, "nchw", queue=queue)
    calls: list[Callable[[Any], Any]] = [
        lambda threads: reorder(X, "nhwc", queue=queue, threads=threads),
        lambda threads: reorder(memory, "nchw", threads=threads),
        lambda threads: reorder(X, out=memory, threads=threads),
        lambda threads: quantize(X, "s8", queue=queue, threads=threads),
        lambda threads: quantize(memory, "s8", threads=threads),
        lambda threads: plan(memory, out, threads=threads),
    ]
    for call in calls:
        for wrong in (0, -5, 1.5, "x"):
            with pytest.raises(MemdescError) as on_cpu:
                reorder(X, "nhwc", threads=wrong)  # type: ignore[arg-type] # the mistake
            with refused(str(on_cpu.value)):
                call(wrong)
        with refused("threads=2 limits threads of the CPU, but this reorder runs on a device"):
            call(2)
        call(None)
    with use_threads(2):
        reorder(X, "nhwc", queue=queue)
