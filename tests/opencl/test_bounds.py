"""Vectors that kernels load are aligned, and have bytes of src alone: none beside it.

Pages that no kernel may touch do not show such a load, so each passes a function that does.
"""

import re

import numpy as np
import pyopencl as cl

from memdesc import MemoryDesc, memory_desc
from reorder.opencl.binaries import build
from reorder.opencl.kernel.launch import KERNEL, DeviceTraits, kernel_source
from reorder.opencl.kernel.transfers import OperandSpec, plan_transfers
from tests.opencl.runtimes import FLAGS, Runtime

# a load through a pointer that is cast, or of an aligned pair of words
_LOAD = re.compile(r"\*\(__global const (\w+) \*\)(?:(\w+)|(?=\())|\b(pair)\[(\d)\]")
# a function for each type of vectors; a load from outside, or one that is misaligned, sets the byte
# that follows src
_SEEN = """
__global const void *seen_{kind}(__global const void *at) {{
    if ((ulong)at < {first}ul || (ulong)at + sizeof({kind}) > {end}ul || (ulong)at % sizeof({kind}))
        *(__global uchar *){end}ul = 1;
    return at;
}}
"""


def _seen(load: re.Match[str]) -> str:
    kind, name, pair, k = load.groups()
    kind, at = kind or "uint2", f"({name})" if name else f"({pair} + {k})" if pair else ""
    return f"*(__global const {kind} *)seen_{kind}{at}"


def wrong_loads(runtime: Runtime, src: MemoryDesc, dst: MemoryDesc) -> list[str]:
    """Return the families whose vectors hold other bytes than src, or start where none may."""
    memory = np.zeros(src.min_nbytes + 256, np.uint8)
    host = memory[-memory.ctypes.data % 64 :]
    first, size = host.ctypes.data, src.min_nbytes
    flags = FLAGS | cl.mem_flags.USE_HOST_PTR
    source = cl.Buffer(runtime.context, flags, hostbuf=host[: size + 64])
    target = cl.Buffer(runtime.context, FLAGS, dst.nbytes)
    specs, traits = (OperandSpec(src), OperandSpec(dst)), DeviceTraits(256, min_tiled=0)
    found = []
    for transfer in plan_transfers(*specs, traits):
        for pattern, params, groups, *_ in transfer.launches:
            text, count = _LOAD.subn(_seen, kernel_source(pattern))
            assert count
            kinds = set(re.findall(r"seen_(\w+)\(", text))
            functions = (_SEEN.format(kind=kind, first=first, end=first + size) for kind in kinds)
            place = runtime.context, runtime.device.device
            # what is loaded is the same, and the compiler is faster
            program = build(place, "".join([*functions, text]), ["-cl-opt-disable"])
            numbers, items = np.array(params, pattern.index_type), pattern.work_items
            sizes = (groups[0] * items, *groups[1:]), (items, 1, 1)
            cl.Kernel(program, KERNEL)(runtime.queue, *sizes, source, target, numbers)
            if runtime.read(source)[size]:
                found.append(type(pattern.body).__name__)
    return found


_CASES = """
u8 u8 35x71 ab ba
f16 f16 97x101 ab ba
u4 u4 34x70 ab ba
u4 u4 32x72 ab ba
u4 f32 34x70 ab ba
u8 u8 39x43 ba aB16b
s8 s8 37x91 ab BA16a64b4a
f32 s8 40x37 ab BA16b16a
u8 u8 2x1101 1102x1 ab
u8 u8 48x37 38x1 ab
u8 u8 3x9x4x37 abcd acbd
u8 u8 2x101x37 abc acb
u8 u8 3x37x21 aBc16b acb
f16 f16 3x21x13 aBc8b acb
u8 u8 32x37 AB16b16a ab
"""


def test_loads_of_vectors_are_aligned_and_inside_of_src(first: Runtime) -> None:
    for line in _CASES.strip().splitlines():
        one, other, sizes, *tags = line.split()
        dims = tuple(map(int, sizes.split("x")))
        src, dst = map(memory_desc, (dims, dims), (one, other), tags)
        assert wrong_loads(first, src, dst) == [], line
    # a vector that spans two rows starts before the later one
    backwards = memory_desc((48, 37), "u8", strides=(-38, 1), offset0=47 * 38)
    assert wrong_loads(first, backwards, memory_desc((48, 37), "u8")) == []
