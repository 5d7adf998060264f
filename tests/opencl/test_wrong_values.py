"""Every public function takes the wrong kinds of values, or refuses them by a MemdescError."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest

import reorder
from memdesc import MemdescError, data_type, image_desc, memory_desc
from reorder import Attr, opencl
from tests.opencl.runtimes import FLAGS, Runtime
from tests.property.reorder.test_careless_call_laws import WRONG, CallersOwnError

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.arange(60, dtype=np.float32).reshape(1, 5, 4, 3)
PLAIN, LAST = (memory_desc(X.shape, "f32", tag) for tag in ("nchw", "nhwc"))
# parts of all combinations; the first one runs by default
_PARTS = 9
IMAGE = image_desc(X.shape, "f32", "in_out_channel")


class LikeAQueue:
    context = device = int_ptr = None


def plain_values() -> dict[str, Any]:
    """Return what does not depend on a runtime: what other functions are given, and descriptors."""
    return {
        **{f"wrong value {k}": make() for k, make in enumerate(WRONG)},
        "what looks like a queue": LikeAQueue(),
        "a class of pyopencl": cl.Buffer,
        "a class of ours": opencl.DeviceMemory,
        "reversed": X[::-1, ::-1],
        "a desc": PLAIN,
        "another layout": LAST,
        "a far start": memory_desc(X.shape, "f32", strides=(60, 12, 3, 1), offset0=1 << 40),
        "a stride of 0": memory_desc(X.shape, "f32", strides=(0, 0, 0, 0)),
        "4 bits": memory_desc(X.shape, "u4", "nchw"),
        "an image's desc": IMAGE,
        "an image of others": image_desc((1, 9, 4, 3), "f16", "in_out_channel"),
        "an image of 2**42 pixels": image_desc((1, 1 << 20, 1 << 20, 4), "f32", "in_out_channel"),
        "a data type": data_type("u4"),
        "beta": Attr(beta=0.5),
        "host memory": reorder.reorder(X, "nhwc"),
        "a channel type": "UNORM_INT8",
        "its number": int(cl.channel_type.FLOAT),
    }


@cache
def values_of(runtime: Runtime) -> dict[str, Any]:
    """Return values of a runtime, and of another one of its contexts."""
    queue, context = runtime.queue, runtime.context
    other_context = cl.Context([runtime.device.device])
    other = cl.CommandQueue(other_context)
    image, event = opencl.pack(queue, X, IMAGE)
    other_image, other_event = opencl.pack(other, X, IMAGE)
    memory, other_memory = (reorder.reorder(X, "nhwc", queue=one) for one in (queue, other))
    released = reorder.reorder(X, "nhwc", queue=queue)
    released.get()
    released.data.release()
    array = cl.array.to_device(queue, X)
    buffer = cl.Buffer(context, FLAGS, X.nbytes)
    made = opencl.DeviceMemory
    return {
        "a queue": queue,
        "another context's queue": other,
        "a context": context,
        "a device": runtime.device.device,
        "what a device can do": runtime.device,
        "an event": event,
        "events": [event],
        "another context's event": [other_event],
        "an iterator of events": iter([event]),
        "a buffer": buffer,
        "another context's buffer": cl.Buffer(other_context, FLAGS, X.nbytes),
        "a small buffer": cl.Buffer(context, FLAGS, 4),
        "a buffer that is not read": cl.Buffer(context, cl.mem_flags.WRITE_ONLY, X.nbytes),
        "a buffer that is not written": cl.Buffer(context, cl.mem_flags.READ_ONLY, X.nbytes),
        "an image": image,
        "another context's image": other_image,
        "an Array": array,
        "another context's Array": cl.array.to_device(other, X),
        "a reversed Array": array[:, ::-1],
        "an Array without elements": cl.array.zeros(queue, (0,), np.float32),
        "a complex Array": cl.array.zeros(queue, (4,), np.complex64),
        "an Array without a queue": cl.array.Array(context, (4,), np.float32),
        "a DeviceMemory": memory,
        "an image's DeviceMemory": reorder.reorder(X, IMAGE, queue=queue),
        "another context's DeviceMemory": other_memory,
        "a released DeviceMemory": released,
        "a small DeviceMemory": made(queue, cl.Buffer(context, FLAGS, 4), PLAIN),
        "a DeviceMemory of no image": made(queue, buffer, IMAGE),
        "a DeviceMemory of no buffer": made(queue, image, PLAIN),
        "a DeviceMemory of the host": made(queue, X, PLAIN),
        "a DeviceMemory of two contexts": made(other, buffer, PLAIN, other_event),
        "a DeviceMemory with another event": made(queue, buffer, PLAIN, other_event),
        "an image format": image.format,
    }


def look_at(**fields: Any) -> tuple[Any, ...]:
    """Use all that a DeviceMemory has and that takes no argument."""
    memory = opencl.DeviceMemory(**fields)
    facts = memory.shape, memory.dtype, memory.nbytes, memory.ndim, len(memory), bool(memory)
    return (*facts, repr(memory), memory._repr_html_(), memory.get())


def index(key: Any, **fields: Any) -> Any:
    return opencl.DeviceMemory(**fields)[key]


def functions(runtime: Runtime) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Return public functions, each with arguments that it takes."""
    values = values_of(runtime)
    queue, image, memory = values["a queue"], values["an image"], values["a DeviceMemory"]
    waiting = {"wait_for": None}
    packed = {"queue": queue, "x": X, "dst": IMAGE, "src": None, "attr": None, **waiting}
    resolved = {"src": None, "dtype": None, "attr": None, "out": None, "queue": queue, **waiting}
    fields = {"queue": queue, "data": memory.data, "desc": memory.desc, "event": None}
    target = cl.Buffer(runtime.context, FLAGS, X.nbytes)
    buffers = {"x": values["a buffer"], "out": target}
    pixels = {"queue": queue, "image": image, "dst": "nhwc", "src": IMAGE, "attr": None, **waiting}
    return {
        "pack": (opencl.pack, packed | {"channel_type": None}),
        "enqueue_pack": (opencl.enqueue_pack, packed | {"image": image}),
        "unpack": (opencl.unpack, pixels),
        "enqueue_unpack": (opencl.enqueue_unpack, pixels | {"out": target}),
        "enqueue_reorder": (
            opencl.enqueue_reorder,
            {"queue": queue, **buffers, "src": PLAIN, "dst": LAST, "attr": None} | waiting,
        ),
        "reorder_on_device": (opencl.reorder_on_device, {"x": X, "dst": "nhwc", **resolved}),
        "reorder": (reorder.reorder, {"x": memory, "dst": "nchw", "threads": None, **resolved}),
        "quantize": (reorder.quantize, {"x": memory, "dtype": "s8", "axis": None, "queue": queue}),
        "kernel_texts": (
            opencl.kernel_texts,
            {"src": PLAIN, "dst": LAST, "attr": None, "device": None},
        ),
        "find_device": (opencl.find_device, {"name": ""}),
        "DeviceMemory": (look_at, fields),
        "an index": (index, fields | {"key": 0}),
    }


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, _PARTS))]
)
def test_wrong_values_are_taken_or_refused(part: int, first: Runtime) -> None:
    values = [*(plain_values() | values_of(first)).items()]
    calls = [
        (function, arguments, argument)
        for function, arguments in functions(first).values()
        for argument in arguments
    ]
    # each argument of a function takes some of the values, and the others in slow tests
    for (i, call), (j, (what, value)) in product(enumerate(calls), enumerate(values)):
        if (i + j) % _PARTS != part:
            continue
        function, arguments, argument = call
        try:
            done = function(**arguments | {argument: value})
        except (MemdescError, CallersOwnError):
            continue
        except Exception as error:
            msg = f"{function.__name__}: {argument} is {what}"
            raise AssertionError(msg) from error
        for one in done if isinstance(done, tuple) else (done,):
            if isinstance(one, cl.Event):
                one.wait()


def test_a_device_memory_keeps_its_fields_where_a_value_is_refused(first: Runtime) -> None:
    memory = reorder.reorder(X, "nhwc", queue=first.queue)
    for field, value, reason in (
        ("queue", None, "queue must be a pyopencl.CommandQueue, not None"),
        ("desc", "nhwc", "desc must be a MemoryDesc or an ImageDesc, not 'nhwc'"),
        ("event", [], "event must be a pyopencl.Event or None, not []"),
    ):
        with pytest.raises(MemdescError, match=re.escape(reason)):
            setattr(memory, field, value)
    assert (memory.get().numpy() == X).all()
