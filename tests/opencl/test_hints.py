"""Every hint of reorder.opencl works: a call that fails, its message, the call that follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest

import reorder
from memdesc import image_desc, memory_desc
from reorder import Attr
from reorder.opencl.programs import CACHE_LIMIT, cache_limit
from tests import hints
from tests.hints import ROOT, Row

if TYPE_CHECKING:
    from tests.opencl.runtimes import Runtime

# not typed: most calls are mistakes that a type checker would find
r: Any = reorder
ocl: Any = reorder.opencl

D = memory_desc((2, 3), "f32", "ab")
X = np.arange(6, dtype=np.float32).reshape(2, 3)
IMAGE = image_desc((1, 4, 3, 2), "f32", "in_out_channel")
HOST = np.zeros(32, np.uint8)
PIXELS = np.ones((1, 4, 3, 2), np.float32)
# what no device here refuses; test_errors.py and test_arrays.py have other ways to see these
_REASONS = (
    "have no images of",
    "has no images",
    "cannot write",
    "has no f64",
    "is shared virtual memory, but device",
    "do not take shared virtual memory",
)
MODULES = [p.relative_to(ROOT).as_posix() for p in sorted((ROOT / "reorder/opencl").rglob("*.py"))]


def _limited(value: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_LIMIT, value)
        return cache_limit()


def _over(queue: cl.CommandQueue, host: np.ndarray[Any, Any]) -> cl.Buffer:
    flags = cl.mem_flags.USE_HOST_PTR | cl.mem_flags.READ_WRITE
    return cl.Buffer(queue.context, flags, hostbuf=host)


def _rows(first: Runtime) -> tuple[Row, ...]:
    q, buffer = first.queue, first.buffer(X)
    memory = r.reorder(X, "ab", queue=q)
    out = first.buffer(np.zeros(24, np.uint8))
    other = cl.Context([first.device.device])
    write_only = cl.Buffer(first.context, cl.mem_flags.WRITE_ONLY, 24)
    image, _ = ocl.pack(q, PIXELS, IMAGE)
    array = cl.array.to_device(q, X)
    odd = cl.array.to_device(q, np.zeros(32, np.uint8))[1:25]
    plain = memory_desc((1, 4, 3, 2), "f32")
    pixels = first.buffer(PIXELS)
    return (
        Row(
            "pass src=, a MemoryDesc",
            lambda: r.reorder(buffer, "ba", queue=q),
            lambda: r.reorder(buffer, "ba", queue=q, src=D),
        ),
        Row(
            "pass src=, a MemoryDesc",
            lambda: ocl.pack(q, pixels, IMAGE),
            lambda: ocl.pack(q, pixels, IMAGE, src=plain),
        ),
        Row(
            "pass src=, an ImageDesc",
            lambda: r.reorder(image, "nchw", queue=q),
            lambda: r.reorder(image, "nchw", queue=q, src=IMAGE),
        ),
        Row(
            "pass queue=",
            lambda: r.reorder(buffer, "ba", src=D),
            lambda: r.reorder(buffer, "ba", src=D, queue=q),
        ),
        Row(
            "pass a descriptor as dst",
            lambda: r.reorder(memory, "ba", out=array, dtype="s32"),
            lambda: r.reorder(memory, memory_desc((2, 3), "s32", "ba"), out=array),
        ),
        Row(
            "use FLOAT",
            lambda: ocl.pack(q, PIXELS, IMAGE, channel_type="SNORM_INT8"),
            lambda: ocl.pack(q, PIXELS, IMAGE, channel_type="FLOAT"),
        ),
        Row(
            "see memdesc.image_desc",
            lambda: ocl.pack(q, PIXELS, plain),
            lambda: ocl.pack(q, PIXELS, image_desc((1, 4, 3, 2), "f32", "in_out_channel")),
        ),
        Row(
            "copy it with .get()",
            lambda: r.reorder(memory, "ba", out=X.copy()),
            lambda: r.reorder(memory, "ba").get(),
        ),
        Row(
            "pass its descriptor as dst",
            lambda: r.reorder(memory, out=out),
            lambda: r.reorder(memory, D, out=out),
        ),
        Row(
            "copy it through the host, or use a queue of its context",
            lambda: r.reorder(buffer, "ba", src=D, queue=cl.CommandQueue(other)),
            lambda: (
                r.reorder(buffer, "ba", src=D, queue=q),
                r.reorder(memory.get(), "ba", queue=cl.CommandQueue(other)),
            ),
        ),
        Row(
            "create it READ_WRITE, or leave out beta",
            lambda: ocl.enqueue_reorder(q, buffer, write_only, src=D, dst=D, attr=Attr(beta=0.5)),
            lambda: (
                ocl.enqueue_reorder(q, buffer, out, src=D, dst=D, attr=Attr(beta=0.5)),
                ocl.enqueue_reorder(q, buffer, write_only, src=D, dst=D),
            ),
        ),
        Row(
            "; copy it",
            lambda: r.reorder(odd, "ba", src=D),
            lambda: r.reorder(odd.copy(), "ba", src=D),
        ),
        Row(
            "; copy it",
            lambda: r.reorder(_over(q, HOST[1:25]), "ba", src=D, queue=q),
            lambda: r.reorder(_over(q, HOST[1:25].copy()), "ba", src=D, queue=q),
        ),
        Row(
            "make a DeviceMemory of it",
            lambda: r.quantize(buffer, "s8", queue=q),
            lambda: r.quantize(ocl.DeviceMemory(q, buffer, D), "s8", queue=q),
        ),
        Row(
            "leave threads out",
            lambda: r.reorder(memory, "ba", threads=2),
            lambda: r.reorder(memory, "ba"),
        ),
        Row(
            "or 0 to keep none",
            lambda: _limited("x"),
            lambda: (_limited("0"), _limited("536870912")),
        ),
    )


def test_hints_are_given_and_work(first: Runtime) -> None:
    for row in _rows(first):
        hints.check(row)


def test_no_hint_is_without_a_row(first: Runtime) -> None:
    messages = map(hints.message, _rows(first))
    assert hints.without_row(MODULES, messages, _REASONS) == []
