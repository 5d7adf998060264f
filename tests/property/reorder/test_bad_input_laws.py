"""Whatever a caller passes is reordered correctly, or refused before anything is written."""

import array
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import reorder
from memdesc import MemdescError, MemoryDesc, memory_desc
from tests.reorders import expect, random_bytes
from tests.strategies import data_types, desc_pairs, descs, name_strings

_DTYPES = [
    *("f4", "u4", "i4", ">f4", "f8", "u1", "i1", "u2", "u8", "?", "c8", "g", "e"),
    *("O", "S3", "U2", "M8[s]", "V4", "f4,i1"),
    *(ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.uint4),
    *(ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn),
]


@st.composite
def _arrays(draw: st.DrawFn) -> NDArray[Any]:
    """Draw arrays of any dtype, shape, strides, alignment and class, some of them read-only."""
    dtype = np.dtype(draw(st.sampled_from(_DTYPES)))
    sizes = st.sampled_from([0, 1, 1, 2, 3, 5, 17])
    shape = draw(st.lists(sizes, max_size=draw(st.sampled_from([2, 3, 4, 13]))))
    while np.prod([size or 1 for size in shape]) > 600:
        shape[shape.index(max(shape))] = 1
    if dtype.hasobject:
        x = np.full(shape, None, dtype)
    else:
        start = draw(st.sampled_from([0, 0, 0, 1, 2]))
        nbytes = int(np.prod(shape)) * dtype.itemsize
        raw = random_bytes(nbytes + start, draw(st.integers(0, 9)))[start:]
        if dtype.name in {"int4", "uint4", "float4_e2m1fn"}:
            raw &= 15
        x = np.ndarray(shape, dtype, raw)
    for change in draw(st.lists(st.integers(0, 5), max_size=2)):
        if change == 0:
            x = x.transpose(draw(st.permutations(range(x.ndim))))
        elif change == 1 and x.ndim:
            x = x[tuple(slice(None, None, draw(st.sampled_from([1, 2, -1, -3]))) for _ in x.shape)]
        elif change == 2 and x.ndim < 6:
            x = np.broadcast_to(x, (draw(st.integers(0, 3)), *x.shape))
        elif change == 3 and x.ndim == 2 and not dtype.hasobject:
            x = x.view(np.matrix)
        elif change == 4:
            x = x.view()
            x.flags.writeable = False
        elif change == 5 and x.dtype.names:
            x = x[x.dtype.names[0]]
    return x


_NAMES = [
    *("a", "ab", "ba", "abc", "cab", "abcd", "nhwc"),
    *("nChw8c", "aB4b", "BA4a3b", "(ab)c", "ABc8b16a2b"),
]
_LAYOUTS = st.one_of(
    st.sampled_from(_NAMES), name_strings(), st.none(), st.integers(-3, 3), descs(max_nelems=256)
)


@given(
    _arrays(),
    _LAYOUTS,
    st.one_of(st.none(), st.none(), _LAYOUTS),
    st.sampled_from([None, None, 1, 3, 0, -1, 1.5, "2", 10**30]),
)
def test_reorder_moves_an_array_or_says_why_not(
    x: NDArray[Any], dst: Any, src: Any, threads: Any
) -> None:
    try:
        moved = reorder.reorder(x, dst, src=src, threads=threads)
    except (MemdescError, MemoryError):
        return
    moved.check_padding()
    back = moved.numpy()
    assert back.dtype == moved.desc.dtype.numpy
    if src is None:
        assert back.shape == x.shape
        wanted = np.ascontiguousarray(x).tobytes()
        if moved.desc.dtype.is_packed:  # the upper halves of unpacked bytes mean nothing
            wanted = (np.frombuffer(wanted, np.uint8) & 15).tobytes()
            back = (back.view(np.uint8) & 15).astype(np.uint8)
        assert back.tobytes() == wanted


@st.composite
def _buffers(draw: st.DrawFn, desc: MemoryDesc) -> Any:
    """Draw something for a descriptor: fitting, nearly fitting, or far off."""
    nbytes = max(desc.min_nbytes + draw(st.sampled_from([0, 0, 0, 8, 64, -1, -8])), 0)
    raw = random_bytes(nbytes + 64, draw(st.integers(0, 9)))
    start = -raw.ctypes.data % 64 + draw(st.sampled_from([0, 0, 0, 0, 1, 4]))
    raw = raw[start : start + nbytes]
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return bytes(raw)
    if kind == 1:
        return bytearray(raw)
    if kind == 2:
        return memoryview(bytearray(raw))[:: draw(st.sampled_from([1, -1, 2]))]
    if kind == 3:
        return array.array("B", raw)
    if kind == 4:
        return draw(st.one_of(st.none(), st.text(max_size=3), _arrays()))
    kinds = np.uint8, desc.dtype.bits_dtype, desc.dtype.numpy, "f4", "i2"
    dtype = np.dtype(draw(st.sampled_from(kinds)))
    x = raw[: nbytes // dtype.itemsize * dtype.itemsize].view(dtype)
    if kind == 5:
        x.flags.writeable = False
    if kind == 6 and x.size % 2 == 0:
        x = x.reshape(2, -1, order=draw(st.sampled_from(["C", "F"])))
    return x


def _bytes_of(buffer: Any) -> bytes | None:
    try:
        held = np.asarray(buffer) if isinstance(buffer, np.ndarray) else memoryview(buffer)
    except TypeError:
        return None
    return held.tobytes()


@given(desc_pairs(max_nelems=512), st.data())
def test_execute_fills_a_buffer_or_leaves_it_as_it_was(
    pair: tuple[MemoryDesc, MemoryDesc], data: st.DataObject
) -> None:
    src, dst = pair
    source, target = data.draw(_buffers(src)), data.draw(_buffers(dst))
    before = _bytes_of(target)
    try:
        reorder.execute(reorder.plan_reorder(src, dst), source, target)
    except MemdescError:
        assert _bytes_of(target) == before
        return
    held, found = _bytes_of(source), _bytes_of(target)
    assert held is not None
    assert before is not None
    assert found is not None
    size = dst.min_nbytes
    values, old = np.frombuffer(held, np.uint8)[: src.min_nbytes], np.frombuffer(before, np.uint8)
    assert found[:size] == expect(src, dst, values, old[:size]).tobytes()
    assert found[size:] == before[size:]


@given(descs(max_nelems=512), st.booleans(), st.data())
def test_a_buffer_is_attached_with_its_padding_cleared_or_refused_as_it_was(
    desc: MemoryDesc, zero_pad: bool, data: st.DataObject
) -> None:
    buffer = data.draw(_buffers(desc).filter(lambda buffer: buffer is not None))
    before = _bytes_of(buffer)
    try:
        memory = reorder.Memory(desc, buffer, zero_pad=zero_pad)
    except MemdescError:
        assert _bytes_of(buffer) == before
        return
    found = _bytes_of(buffer)
    assert before is not None
    assert found is not None
    if zero_pad and desc.nelems and not desc.has_broadcast:
        memory.check_padding()
        old = np.frombuffer(before, np.uint8)[: desc.min_nbytes]
        assert found[: desc.min_nbytes] == expect(desc, desc, old, old).tobytes()
    elif not zero_pad:
        assert found == before
    assert memory.nbytes <= desc.nbytes


@given(data_types(), st.integers(1, 3), st.integers(0, 9))
def test_one_prepared_reorder_serves_many_threads_at_once(
    dtype: str, threads: int, seed: int
) -> None:
    dims = (3, 21, 17)
    src, dst = memory_desc(dims, dtype, "abc"), memory_desc(dims, dtype, "cBa4b")
    run = reorder.prepare(reorder.plan_reorder(src, dst), threads=threads)
    sources = [random_bytes(src.min_nbytes, seed + k) for k in range(8)]
    targets = [random_bytes(dst.min_nbytes, seed + k + 20) for k in range(8)]
    wanted = [
        expect(src, dst, source, target) for source, target in zip(sources, targets, strict=True)
    ]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, sources, targets))
    assert all(np.array_equal(target, own) for target, own in zip(targets, wanted, strict=True))
