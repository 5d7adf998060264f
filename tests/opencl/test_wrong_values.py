"""Every public function takes the wrong kinds of values, or refuses them by a MemdescError."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest

import reorder
from memdesc import MemdescError, data_type, image_desc, memory_desc
from reorder import Attr, opencl
from tests.opencl.runtimes import Runtime
from tests.opencl.world import IMAGE, PLAIN, X, world
from tests.property.reorder.test_careless_call_laws import WRONG, CallersOwnError

LAST = memory_desc(X.shape, "f32", "nhwc")
# parts of all combinations; the first one runs by default
_PARTS = 9


class LikeAQueue:
    context = device = int_ptr = None


def values_of(runtime: Runtime, made: dict[str, Any]) -> dict[str, Any]:
    """Return wrong values of every kind, and what other functions are given."""
    q, src = made["q"], made["src"]
    other = cl.CommandQueue(made["other"])
    memory = opencl.DeviceMemory
    return made | {
        **{f"wrong value {k}": make() for k, make in enumerate(WRONG)},
        "what looks like a queue": LikeAQueue(),
        "a class of pyopencl": cl.Buffer,
        "a class of ours": memory,
        "reversed": X[::-1, ::-1],
        "a desc": PLAIN,
        "another layout": LAST,
        "a far start": memory_desc(X.shape, "f32", strides=(30, 6, 2, 1), offset0=1 << 40),
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
        "another context's queue": other,
        "a device": runtime.device.device,
        "what a device can do": runtime.device,
        "events": [made["event"]],
        "an iterator of events": iter([made["event"]]),
        "another context's Array": cl.array.to_device(other, X),
        "a reversed Array": made["array"][:, ::-1],
        "an Array without elements": cl.array.zeros(q, (0,), np.float32),
        "a complex Array": cl.array.zeros(q, (4,), np.complex64),
        "an Array without a queue": cl.array.Array(q.context, (4,), np.float32),
        "another context's DeviceMemory": reorder.reorder(X, "nhwc", queue=other),
        "a small DeviceMemory": memory(q, made["small"], PLAIN),
        "a DeviceMemory of no image": memory(q, src, IMAGE),
        "a DeviceMemory of no buffer": memory(q, made["image"], PLAIN),
        "a DeviceMemory of the host": memory(q, X, PLAIN),
        "a DeviceMemory of two contexts": memory(other, src, PLAIN, made["foreign_event"]),
        "a DeviceMemory with another event": memory(q, src, PLAIN, made["foreign_event"]),
        "an image format": made["image"].format,
    }


def look_at(**fields: Any) -> tuple[Any, ...]:
    """Use all that a DeviceMemory has and that takes no argument."""
    memory = opencl.DeviceMemory(**fields)
    facts = memory.shape, memory.dtype, memory.nbytes, memory.ndim, len(memory), bool(memory)
    return (*facts, repr(memory), memory._repr_html_(), memory.get())


def index(key: Any, **fields: Any) -> Any:
    return opencl.DeviceMemory(**fields)[key]


def functions(made: dict[str, Any]) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Return public functions, each with arguments that it takes."""
    queue, image, memory = made["q"], made["image"], made["memory"]
    waiting = {"wait_for": None}
    packed = {"queue": queue, "x": X, "dst": IMAGE, "src": None, "attr": None, **waiting}
    resolved = {"src": None, "dtype": None, "attr": None, "out": None, "queue": queue, **waiting}
    fields = {"queue": queue, "data": memory.data, "desc": memory.desc, "event": None}
    target = made["dst"]
    buffers = {"x": made["src"], "out": target}
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
    made = world(first)
    values = [*values_of(first, made).items()]
    calls = [
        (function, arguments, argument)
        for function, arguments in functions(made).values()
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
