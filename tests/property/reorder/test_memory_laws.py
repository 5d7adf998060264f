"""What a Memory shows and changes of its buffer, against the definition of its layout."""

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices
from hypothesis.strategies import DataObject
from numpy.typing import NDArray

import reorder
from memdesc import MemdescError, MemoryDesc, PaddingError
from memdesc.errors import NotBlockedError
from tests.indices import index_at
from tests.reorders import element_map, random_bytes
from tests.strategies import descs


def _units(data: NDArray[np.uint8], desc: MemoryDesc) -> NDArray[Any]:
    """Return a copy of the elements' bits; 4-bit ones apart."""
    if desc.dtype.bits == 4:
        return np.stack([data & 15, data >> 4], axis=1).reshape(-1)
    size = desc.dtype.bits // 8
    return data[: data.size // size * size].copy().view(f"u{size}")


def _bits(array: NDArray[Any], desc: MemoryDesc) -> NDArray[Any]:
    bits = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
    return bits & 15 if desc.dtype.bits == 4 else bits


def _logical(desc: MemoryDesc) -> NDArray[np.int64]:
    """Return the offsets of all elements as an array over the dims."""
    offsets = np.zeros(desc.dims, np.int64)
    for index in np.ndindex(*desc.dims):
        offsets[index] = desc.offset(index)
    return offsets


def _memory(desc: MemoryDesc, seed: int) -> reorder.Memory:
    return reorder.Memory(desc, random_bytes(desc.min_nbytes + seed % 9, seed), zero_pad=False)


_SMALL = descs(max_nelems=384)
_SEEDS = st.integers(0, 99)


@given(st.data(), _SMALL, _SEEDS)
def test_indexing_a_memory_is_indexing_its_array(
    data: DataObject, desc: MemoryDesc, seed: int
) -> None:
    memory = _memory(desc, seed)
    key = data.draw(basic_indices(desc.dims, allow_newaxis=False))
    # a scalar of numpy's bool holds 0 or 1, whatever the byte
    found, wanted = memory[key], np.asarray(memory.numpy()[key])[()]
    assert (np.shape(found), found.dtype) == (np.shape(wanted), wanted.dtype)
    assert np.array_equal(_bits(np.asarray(found), desc), _bits(np.asarray(wanted), desc))
    assert (memory.shape, memory.dtype, memory.ndim) == (desc.dims, desc.dtype, desc.ndims)
    assert len(memory) == len(memory.numpy())
    assert memory


@given(_SMALL, _SEEDS)
def test_numpy_shows_each_element_at_its_index(desc: MemoryDesc, seed: int) -> None:
    memory = _memory(desc, seed)
    values = _units(memory.data, desc)
    for copy in (None, True):
        array = memory.numpy(copy=copy)
        assert (array.shape, array.dtype) == (desc.dims, desc.dtype.numpy)
        assert np.array_equal(
            _bits(array, desc), values[_logical(desc)] if desc.nelems else np.zeros(desc.dims)
        )
    assert not np.shares_memory(memory.numpy(copy=True), memory.data)
    try:
        shown = memory.numpy(copy=False)
    except MemdescError:
        return
    assert np.shares_memory(shown, memory.data) or not desc.nelems


@given(_SMALL, _SEEDS)
def test_blocks_show_all_of_the_padded_memory_in_its_order(desc: MemoryDesc, seed: int) -> None:
    memory = _memory(desc, seed)
    try:
        blocks = memory.blocks()
    except NotBlockedError:
        assert desc.dtype.is_packed or any(
            axis.padded % desc.layout.outer(k).step for k, axis in enumerate(desc.axes)
        )
        return
    assert blocks.size == prod(axis.padded for axis in desc.axes)
    values = _units(memory.data, desc)
    wanted = values[element_map(desc, desc)[0]] if desc.nelems else values[:0]
    assert np.array_equal(np.sort(_bits(blocks, desc), axis=None), np.sort(wanted))
    assert np.shares_memory(blocks, memory.data) or not desc.nelems
    steps = [abs(step) for step, size in zip(blocks.strides, blocks.shape, strict=True) if size > 1]
    assert steps == sorted(steps, reverse=True)


@given(descs(max_nelems=384, source=False), _SEEDS)
def test_apply_changes_each_element_and_nothing_else(desc: MemoryDesc, seed: int) -> None:
    memory = _memory(desc, seed)
    wanted = _units(memory.data, desc)
    offsets = _logical(desc)
    wanted[offsets] ^= 1

    def flip(array: NDArray[Any]) -> NDArray[Any]:
        return (np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}") ^ 1).view(array.dtype)

    memory.apply(flip)
    assert np.array_equal(_units(memory.data, desc), wanted)


@given(descs(max_nelems=384, source=False), _SEEDS, st.data())
def test_padding_alone_is_cleared_and_the_lowest_that_is_not_zero_is_found(
    desc: MemoryDesc, seed: int, data: st.DataObject
) -> None:
    buffer = random_bytes(desc.min_nbytes, seed)
    cleared, before = buffer.copy(), _units(buffer, desc)
    memory = reorder.Memory(desc, cleared)
    memory.check_padding()
    to, fro = element_map(desc, desc)
    padding = np.sort(to[fro < 0])
    # in the caller's own buffer, and nothing else in it
    before[padding] = 0
    assert np.array_equal(_units(cleared, desc), before)
    if not padding.size:
        return
    wrong = data.draw(st.lists(st.sampled_from(padding.tolist()), min_size=1, max_size=3))
    bits = desc.dtype.bits
    for position in wrong:
        memory.data[position * bits // 8] |= 16 if bits == 4 and position % 2 else 1
    lowest = min(wrong)
    with pytest.raises(PaddingError) as caught:
        memory.check_padding()
    assert (
        f"not zero at {index_at(desc.layout, lowest)}, byte {lowest * bits // 8}: found bits 0x1 "
        in str(caught.value)
    )


@given(_SMALL, _SEEDS)
def test_memory_from_an_array_gives_the_array_back(desc: MemoryDesc, seed: int) -> None:
    array = _memory(desc, seed).numpy()
    again = reorder.reorder(array, "abcdefghijkl"[: desc.ndims]).numpy()
    assert np.array_equal(_bits(again, desc), _bits(array, desc))
