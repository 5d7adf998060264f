"""Every hint of reorder.opencl works: a call that fails, its message, the call that follows."""

from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest

import reorder
from memdesc import image_desc, memory_desc
from reorder.opencl.binaries import CACHE_LIMIT, cache_limit
from tests import hints
from tests.hints import ROOT
from tests.opencl.runtimes import Runtime

# not typed: most calls are mistakes that a type checker would find
r: Any = reorder
ocl: Any = reorder.opencl

D = memory_desc((2, 3), "f32", "ab")
X = np.arange(6, dtype=np.float32).reshape(2, 3)
IMAGE = image_desc((1, 4, 3, 2), "f32", "in_out_channel")
HOST = np.zeros(32, np.uint8)
PIXELS = np.ones((1, 4, 3, 2), np.float32)
WIDE = np.ones((1, 4, 1, 1 << 17), np.float32)  # more pixels in a row than devices allow
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


ROWS = hints.rows("""
    r.reorder(buffer, "ba", queue=q)  # pass src=, a MemoryDesc
        r.reorder(buffer, "ba", queue=q, src=D)
    ocl.pack(q, pixels, IMAGE)  # pass src=, a MemoryDesc
        ocl.pack(q, pixels, IMAGE, src=plain)
    r.reorder(image, "nchw", queue=q)  # pass src=, an ImageDesc
        r.reorder(image, "nchw", queue=q, src=IMAGE)
    r.reorder(buffer, "ba", src=D)  # pass queue=
        r.reorder(buffer, "ba", src=D, queue=q)
    r.reorder(memory, "ba", out=array, dtype="s32")  # pass a descriptor as dst
        r.reorder(memory, memory_desc((2, 3), "s32", "ba"), out=array)
    ocl.pack(q, PIXELS, IMAGE, channel_type="SNORM_INT8")  # use FLOAT
        ocl.pack(q, PIXELS, IMAGE, channel_type="FLOAT")
    ocl.pack(q, WIDE, "in_out_channel")  # split a dim, or use a buffer of .desc
        r.reorder(WIDE, image_desc(WIDE.shape, "f32", "in_out_channel").desc, queue=q)
    ocl.pack(q, PIXELS, plain)  # see memdesc.image_desc
        ocl.pack(q, PIXELS, md.image_desc((1, 4, 3, 2), "f32", "in_out_channel"))
    ocl.enqueue_reorder(q, buffer, None, src=D, dst=D)
            # pass the memory to write, or `reorder` allocates it
        ocl.enqueue_reorder(q, buffer, out, src=D, dst=D)
        r.reorder(buffer, D, src=D, queue=q)
    r.reorder(memory, "ba", out=X.copy())  # copy it with .get()
        r.reorder(memory, "ba").get()
    r.reorder(memory, out=out)  # pass its descriptor as dst
        r.reorder(memory, D, out=out)
    r.reorder(buffer, "ba", src=D, queue=cl.CommandQueue(other))
            # copy it through the host, or use a queue of its context
        r.reorder(buffer, "ba", src=D, queue=q)
        r.reorder(memory.get(), "ba", queue=cl.CommandQueue(other))
    ocl.enqueue_reorder(q, buffer, write_only, src=D, dst=D, attr=r.Attr(beta=0.5))
            # create it READ_WRITE, or leave out beta
        ocl.enqueue_reorder(q, buffer, out, src=D, dst=D, attr=r.Attr(beta=0.5))
        ocl.enqueue_reorder(q, buffer, write_only, src=D, dst=D)
    r.reorder(odd, "ba", src=D)  # ; copy it
        r.reorder(odd.copy(), "ba", src=D)
    r.reorder(_over(q, HOST[1:25]), "ba", src=D, queue=q)  # ; copy it
        r.reorder(_over(q, HOST[1:25].copy()), "ba", src=D, queue=q)
    r.quantize(buffer, "s8", queue=q)  # make a DeviceMemory of it
        r.quantize(ocl.DeviceMemory(q, buffer, D), "s8", queue=q)
    r.reorder(memory, "ba", threads=2)  # leave threads out
        r.reorder(memory, "ba")
    _limited("x")  # or 0 to keep none
        _limited("0")
        _limited("536870912")
""")


def test_every_hint_is_given_and_works(first: Runtime) -> None:
    q, buffer = first.queue, first.buffer(X)
    names = {
        "q": q,
        "buffer": buffer,
        "memory": r.reorder(X, "ab", queue=q),
        "out": first.buffer(np.zeros(24, np.uint8)),
        "other": cl.Context([first.device.device]),
        "write_only": cl.Buffer(first.context, cl.mem_flags.WRITE_ONLY, 24),
        "image": ocl.pack(q, PIXELS, IMAGE)[0],
        "array": cl.array.to_device(q, X),
        "odd": cl.array.to_device(q, np.zeros(32, np.uint8))[1:25],
        "plain": memory_desc((1, 4, 3, 2), "f32"),
        "pixels": first.buffer(PIXELS),
    }
    hints.check(ROWS, globals() | names, MODULES, _REASONS)
