"""Kernels load vectors that are aligned and inside of src, and store to the bytes of dst alone.

Pages that no kernel may touch show neither a vector that starts too early, nor a byte beside dst
that is written as it was. So each access passes a function that sees it.
"""

import re
from collections.abc import Callable, Iterator

import numpy as np
import pyopencl as cl

from memdesc import MemoryDesc, memory_desc
from reorder.opencl.binaries import build
from reorder.opencl.kernel.access import Mode
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


# what is stored to: through a pointer that is cast, or one element
_STORED = re.compile(
    r"(\*\(__global \w+ \*\)(?:to|\(.*?\))"
    r"|\(\(__global \w+ \*\)to\)\[\d+\]|\b(?:to|dst)\[[^][]*\]) = "
)
# an atomic operation on a word
_ATOMIC = re.compile(r"(\batomic_\w+\()(\(volatile __global uint \*\)to)")
# notes which work item stores to each byte, or that there are two that do not do it atomically
_NOTED = """
void note(__global const void *at, uint nbytes, int is_atomic) {{
    const ulong row = get_global_id(1) + get_global_size(1) * get_global_id(2);
    const uint own = 1 + (uint)(get_global_id(0) + get_global_size(0) * row);
    const uint item = is_atomic ? {two}u - 1 : own;
    for (uint k = 0; k < nbytes; ++k) {{
        volatile __global uint *noted = (__global uint *){items}ul + ((ulong)at + k - {first}ul);
        const uint other = atomic_cmpxchg(noted, 0, item);
        if (other != 0 && other != item) *noted = {two}u;
    }}
}}
#define NOTED(at) (*(note(&(at), sizeof(at), 0), &(at)))
#define SHARED(word) (note((__global const void *)(word), 4, 1), word)
"""
_TWO = 0xFFFFFFFF
# bytes beside dst
_BESIDE = 64
_ON_HOST = FLAGS | cl.mem_flags.USE_HOST_PTR


def _launched(
    runtime: Runtime,
    operands: tuple[MemoryDesc, MemoryDesc],
    buffers: tuple[cl.Buffer, cl.Buffer],
    watched: Callable[[str], str],
) -> Iterator[str]:
    """Run the kernels of a reorder, one after another, with other texts; return their families."""
    src, dst = map(OperandSpec, operands)
    for transfer in plan_transfers(src, dst, DeviceTraits(256, min_tiled=0)):
        for pattern, params, groups, *_ in transfer.launches:
            place = runtime.context, runtime.device.device
            # what is accessed is the same, and the compiler is faster
            program = build(place, watched(kernel_source(pattern)), ["-cl-opt-disable"])
            numbers, items = np.array(params, pattern.index_type), pattern.work_items
            sizes = (groups[0] * items, *groups[1:]), (items, 1, 1)
            reads = buffers if pattern.src.mode != Mode.NONE else buffers[1:]
            cl.Kernel(program, KERNEL)(runtime.queue, *sizes, *reads, numbers).wait()
            yield type(pattern.body).__name__


def wrong_loads(runtime: Runtime, src: MemoryDesc, dst: MemoryDesc) -> list[str]:
    """Return the families whose vectors hold other bytes than src, or start where none may."""
    memory = np.zeros(src.min_nbytes + 256, np.uint8)
    host = memory[-memory.ctypes.data % 64 :]
    first, size = host.ctypes.data, src.min_nbytes
    source = cl.Buffer(runtime.context, _ON_HOST, hostbuf=host[: size + 64])
    target = cl.Buffer(runtime.context, FLAGS, dst.nbytes)

    def watched(text: str) -> str:
        text, count = _LOAD.subn(_seen, text)
        assert count
        kinds = set(re.findall(r"seen_(\w+)\(", text))
        functions = (_SEEN.format(kind=kind, first=first, end=first + size) for kind in kinds)
        return "".join([*functions, text])

    families = _launched(runtime, (src, dst), (source, target), watched)
    return [family for family in families if runtime.read(source)[size]]


def wrong_stores(runtime: Runtime, src: MemoryDesc, dst: MemoryDesc) -> list[str]:
    """Return the families whose work items race for a byte, or store to one without elements."""
    memory = np.zeros(dst.min_nbytes + 256, np.uint8)
    items = np.zeros(memory.size, np.uint32)
    host = memory[-memory.ctypes.data % 64 + _BESIDE :]
    source = cl.Buffer(runtime.context, FLAGS, src.nbytes)
    target = cl.Buffer(runtime.context, _ON_HOST, hostbuf=host[: dst.min_nbytes])
    noted = cl.Buffer(runtime.context, _ON_HOST, hostbuf=items)
    offsets = dst.layout.offsets().reshape(-1) * dst.dtype.bits // 8
    width = max(dst.dtype.bits // 8, 1)
    most = np.zeros(items.size, np.uint32)
    most[_BESIDE + (offsets[:, None] + np.arange(width)).reshape(-1)] = _TWO - 1
    place = {"items": items.ctypes.data, "first": host.ctypes.data - _BESIDE, "two": _TWO}

    def watched(text: str) -> str:
        assert text.count("atomic") == len(_ATOMIC.findall(text))
        text, count = _STORED.subn(r"NOTED(\1) = ", _ATOMIC.sub(r"\1SHARED(\2)", text))
        assert count
        return _NOTED.format(**place) + text

    found = []
    for family in _launched(runtime, (src, dst), (source, target), watched):
        found += [family] * bool((runtime.read(noted).view(np.uint32) > most).any())
        items[:] = 0
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
u4 u4 3x19x4x37 abcd acbd
u8 u8 2x101x37 abc acb
u8 u8 3x37x21 aBc16b acb
f16 f16 3x21x13 aBc8b acb
u8 u8 32x37 AB16b16a ab
u8 u8 37x70 BA16a64b4a ab
f32 f32 3x37x20 aBc16b abc
f32 s8 3x37x20 aBc16b abc
"""


def _operands(cases: str) -> Iterator[tuple[str, MemoryDesc, MemoryDesc]]:
    """Yield each line of a table of types, dims and tags, with src and dst."""
    for line in cases.strip().splitlines():
        one, other, sizes, *tags = line.split()
        dims = tuple(map(int, sizes.split("x")))
        src, dst = map(memory_desc, (dims, dims), (one, other), tags)
        yield line, src, dst


def test_loads_of_vectors_are_aligned_and_inside_of_src(first: Runtime) -> None:
    for line, src, dst in _operands(_CASES):
        assert wrong_loads(first, src, dst) == [], line
    # a vector that spans two rows starts before the later one
    backwards = memory_desc((48, 37), "u8", strides=(-38, 1), offset0=47 * 38)
    assert wrong_loads(first, backwards, memory_desc((48, 37), "u8")) == []


_STORES = """
u4 u4 193x301 ab ba
s8 s4 193x301 ab ba
u4 u4 34x71 ab ba
u4 u4 3x37x35 abc acb
f32 u4 3x101x37 abc acb
u4 u4 9x15x31 abc bac
s8 s4 5x13 ab ab
u8 u8 39x43 ba ab
u8 u8 3x101x37 abc acb
f16 f16 97x101 ab ba
u8 u8 7x9x51 abc bac
u4 u4 7x30x51 abc bac
f32 s8 107x133 ab ba
"""


def test_stores_write_each_byte_of_dst_once_and_no_other(first: Runtime) -> None:
    for line, src, dst in _operands(_STORES):
        assert wrong_stores(first, src, dst) == [], line
        # a part that starts and ends inside words, and inside bytes if elements have 4 bits
        dims = dst.dims
        around = (dims[0] + 2, *(size + 1 for size in dims[1:]))
        larger = memory_desc(around, dst.dtype, line.split()[-1])
        part = larger.submemory(dims, (1,) * len(dims))
        assert wrong_stores(first, src, part) == [], f"{line} in a larger one"
