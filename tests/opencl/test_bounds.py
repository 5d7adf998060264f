"""Words and vectors that kernels load have bytes of src alone: none before it, none behind it."""

import re
from collections.abc import Iterator

import numpy as np
import pyopencl as cl
import pytest

from memdesc import MemoryDesc, memory_desc
from reorder.opencl.kernel.launch import KERNEL, DeviceTraits, Launch, kernel_source
from reorder.opencl.kernel.rows import RowCopy
from reorder.opencl.kernel.transfers import OperandSpec, plan_transfers
from reorder.opencl.programs import build
from tests.opencl.runtimes import Runtime

_LOAD = re.compile(r"\*\(__global const (\w+) \*\)(?=[\w(])(?!\(\(uintptr_t)")
# what the body loads through a pointer that it made
_INDEXED = {"whole": "uint", "pair": "uint4"}
# bytes behind src: the last one is set by a load from outside
_BEHIND = 256


def seen(source: str) -> str:
    """Return a source whose loads of words and vectors pass a function."""
    parts, at = [], 0
    for match in _LOAD.finditer(source):
        end = _end_of_operand(source, match.end())
        operand = source[match.end() : end]
        kind = match[1]
        parts += [source[at : match.start()], f"SEEN({kind}, {operand})"]
        at = end
    text = "".join([*parts, source[at:]])
    for name, kind in _INDEXED.items():
        text = re.sub(rf"\b({name}\d?)\[(\d)\]", rf"SEEN({kind}, \1 + \2)", text)
    return text


def _end_of_operand(source: str, start: int) -> int:
    """Return where a name, or an expression in parentheses, ends."""
    if source[start] != "(":
        found = re.compile(r"\w+").match(source, start)
        assert found is not None
        return found.end()
    depth = 0
    for end in range(start, len(source)):
        depth += (source[end] == "(") - (source[end] == ")")
        if not depth:
            return end + 1
    raise AssertionError(source[start:])


def bounds_lines(first: int, nbytes: int) -> str:
    """Return the function that tells of loads outside of src, which starts at an address."""
    return "\n".join(
        (
            "#define SEEN(T, at) (*(__global const T *)seen((ulong)(at), sizeof(T)))",
            "ulong seen(ulong at, ulong size) {",
            f"    if (at < {first}ul || at + size > {first + nbytes}ul)",
            f"        *(__global uchar *){first + nbytes + _BEHIND - 1}ul = 1;",
            "    return at;",
            "}",
            "",
        )
    )


def launches(src: MemoryDesc, dst: MemoryDesc, *, is_aligned: bool) -> Iterator[Launch]:
    one, other = (OperandSpec(desc) for desc in (src, dst))
    traits = DeviceTraits(256, min_tiled=0)
    for transfer in plan_transfers(one, other, traits, is_aligned=is_aligned):
        yield from transfer.launches


def _built(queue: cl.CommandQueue, source: str, name: str) -> cl.Kernel:
    # what is loaded is the same, and the compiler is faster
    return cl.Kernel(build((queue.context, queue.device), source, ["-cl-opt-disable"]), name)


def _address(queue: cl.CommandQueue, buffer: cl.Buffer) -> int:
    """Return where kernels see a buffer."""
    source = "__kernel void find(__global uchar *src, __global ulong *to) { *to = (ulong)src; }"
    found = np.zeros(1, np.uint64)
    to = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, found.nbytes)
    _built(queue, source, "find")(queue, (1,), (1,), buffer, to)
    cl.enqueue_copy(queue, found, to)
    return int(found[0])


def is_inside(runtime: Runtime, src: MemoryDesc, dst: MemoryDesc, shift: int = 0) -> bool:
    """Whether all loads are inside of src, which starts `shift` bytes behind a vector."""
    queue = runtime.queue
    memory = np.zeros(src.min_nbytes + _BEHIND + 64, np.uint8)
    start = -memory.ctypes.data % 64 + shift
    host = memory[start : start + src.min_nbytes + _BEHIND]
    flags = cl.mem_flags.READ_WRITE
    source = cl.Buffer(queue.context, flags | cl.mem_flags.USE_HOST_PTR, hostbuf=host)
    target = cl.Buffer(queue.context, flags, dst.nbytes)
    first = _address(queue, source)
    assert first % 16 == shift
    count = 0
    for pattern, params, groups, *_ in launches(src, dst, is_aligned=not shift):
        text = seen(kernel_source(pattern))
        count += text.count("SEEN(")
        kernel = _built(queue, bounds_lines(first, src.min_nbytes) + text, KERNEL)
        numbers = np.array(params, np.int64 if pattern.is_wide else np.int32)
        items = pattern.work_items
        size = (groups[0] * items, *groups[1:]), (items, 1, 1)
        kernel(queue, *size, source, target, numbers)
    assert count or shift
    result = np.empty(host.size, np.uint8)
    cl.enqueue_copy(queue, result, source)
    return not result[-1]


@pytest.mark.parametrize(
    ("dtypes", "dims", "tags"),
    [
        ("u8 u8", (3, 9, 4, 37), "abcd acbd"),  # rows
        ("u8 u8", (35, 71), "ab ba"),  # words that start anywhere
        pytest.param("f16 f16", (35, 33), "ab ba", marks=pytest.mark.campaign),
        pytest.param("u8 u8", (1, 3, 37, 41), "abcd acdb", marks=pytest.mark.campaign),
        pytest.param("u8 u8", (131, 129), "ab ba", marks=pytest.mark.campaign),
        ("f16 f16", (97, 101), "ab ba"),  # tiles with skewed ends
        ("u8 f32", (7, 37), "ab ab"),  # runs
        pytest.param("f16 f32", (135, 132), "ab ba", marks=pytest.mark.campaign),
        ("s4 f16", (7, 38), "ab ab"),
        ("u4 u4", (34, 70), "ab ba"),  # pairs of rows that start at any byte
        ("u4 f32", (34, 70), "ab ba"),
        ("s8 s8", (37, 91), "ab BA16a64b4a"),  # tiles that are partly padding
    ],
)
def test_loads_of_vectors_are_inside_of_src(
    dtypes: str, dims: tuple[int, ...], tags: str, first: Runtime
) -> None:
    src, dst = map(memory_desc, (dims, dims), dtypes.split(), tags.split())
    assert is_inside(first, src, dst)


@pytest.mark.parametrize(("rows", "length"), [(4, 1100), (48, 37), (16, 1023)])
def test_vectors_behind_rows_with_gaps_are_not_loaded(
    rows: int, length: int, first: Runtime
) -> None:
    # dst ends where a vector does, so that its last vector is whole
    src = memory_desc((rows, length), "u8", strides=(length + 1, 1))
    dst = memory_desc((rows, length), "u8", "ab")
    (launch,) = launches(src, dst, is_aligned=True)
    assert isinstance(launch.pattern.body, RowCopy)
    assert is_inside(first, src, dst)


@pytest.mark.parametrize("dtype", ["u8", "f16"])
def test_no_word_before_memory_that_starts_anywhere_is_loaded(dtype: str, first: Runtime) -> None:
    src, dst = (memory_desc((35, 71), dtype, tag) for tag in ("ab", "ba"))
    assert is_inside(first, src, dst, 1 if dtype == "u8" else 2)
