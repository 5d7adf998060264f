from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest

from memdesc import Extra, MemdescError, MemoryDesc, image_desc, memory_desc
from reorder import Attr, opencl, reorder
from tests.opencl.runtimes import Runtime, refused

X = np.random.default_rng(5).random((2, 17, 5, 4), np.float32)


def host(memory: opencl.DeviceMemory) -> Any:
    """Return the logical array of a result."""
    got = memory.get()
    got.check_padding()
    return got.numpy()


@pytest.mark.parametrize("step", [1, 3])  # an array with large gaps is copied first
def test_axes_that_are_not_in_memory_order_contradict_a_name(runtime: Runtime, step: int) -> None:
    last = np.ascontiguousarray(X.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)[..., ::step]
    for dst in ("nChw8c", "in_out_channel"):
        with pytest.raises(MemdescError, match="axes of x are the dims, leave src out"):
            reorder(last, dst, src="nhwc", queue=runtime.queue)
    assert (host(reorder(last, "nChw8c", queue=runtime.queue)) == last).all()


@pytest.mark.parametrize(
    "desc",
    [
        memory_desc((7,), "u4", "a"),
        memory_desc((33, 65), "u4", "ba"),
        memory_desc((7,), "u4", "A3a"),
        memory_desc((3, 5), "u8", strides=(8, 1)),
        memory_desc((3, 5), "f32", strides=(5, 1), offset0=2),
        memory_desc((0, 5), "f32", strides=(5, 1), offset0=2),
        memory_desc((3, 1), "s8", "ab").with_extra(Extra(s8s8_mask=1)),
    ],
    ids=repr,
)
def test_new_memory_holds_zeros_where_no_element_is(desc: MemoryDesc, runtime: Runtime) -> None:
    x = np.ones(desc.dims, desc.dtype.numpy)
    wanted = reorder(x, desc).data.tobytes()
    for _ in range(8):
        # runtimes allocate again what was released
        runtime.buffer(np.full(desc.nbytes, 0xFF, np.uint8)).release()
        assert reorder(x, desc, queue=runtime.queue).get().data.tobytes() == wanted


def test_an_image_is_unpacked_into_an_array_of_its_type(runtime: Runtime) -> None:
    image_desc_ = image_desc(X.shape, "f32", "in_out_channel")
    image, event = opencl.pack(runtime.queue, X, image_desc_)
    half = cl.array.empty(runtime.queue, (2, 5, 4, 17), np.float16)
    event = opencl.enqueue_unpack(runtime.queue, image, half, "nhwc", image_desc_, wait_for=[event])
    assert half.events == [event]
    assert half.get().tobytes() == X.transpose(0, 2, 3, 1).astype(np.float16).tobytes()
    # a descriptor describes raw bytes
    whole = cl.array.empty(runtime.queue, (X.nbytes,), np.uint8)
    desc = memory_desc(X.shape, "f32", "nhwc")
    with refused(f"out has {X.nbytes - 4} bytes"):
        opencl.enqueue_unpack(runtime.queue, image, whole[4:], desc, image_desc_)


def test_repeated_elements_of_a_host_tensor_are_written_one_by_one(runtime: Runtime) -> None:
    x = np.broadcast_to(np.arange(3, dtype=np.float32), (4, 3))
    made = reorder(x, dtype="f16", queue=runtime.queue)
    assert made.desc == memory_desc((4, 3), "f16", "ab") == reorder(x, dtype="f16").desc
    assert np.array_equal(made.get().numpy(), x)


def test_a_dtype_and_attributes_convert_as_on_the_cpu(runtime: Runtime) -> None:
    attr = Attr(dst_scale=0.5, dst_zero_point=3)
    found = reorder(X, "nhwc", dtype="s8", attr=attr, queue=runtime.queue)
    assert (host(found) == reorder(X, "nhwc", dtype="s8", attr=attr).numpy()).all()


def test_zero_sizes_succeed_and_do_nothing(runtime: Runtime) -> None:
    empty = np.zeros((2, 0, 3), np.float32)
    m = reorder(empty, "acb", queue=runtime.queue)
    assert host(m).shape == (2, 0, 3)
    desc = memory_desc((2, 0, 3), "f32")
    opencl.enqueue_reorder(
        runtime.queue, runtime.buffer(X), runtime.buffer(X), src=desc, dst=desc
    ).wait()


def test_memory_on_a_device_shows_its_layout(first: Runtime) -> None:
    for desc in (
        memory_desc(X.shape, "f32", "nChw8c"),
        image_desc(X.shape, "f32", "in_out_channel"),
    ):
        memory = reorder(X, desc, queue=first.queue)
        assert repr(memory) == f"DeviceMemory({desc!r})"
        assert memory._repr_html_() == desc._repr_html_()
