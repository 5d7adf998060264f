"""Memories as arrays of numpy: a view where one can be, else a copy."""

from __future__ import annotations

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from memdesc.errors import NotBlockedError


def test_blocked_memory_is_copied_and_never_promised_as_a_view() -> None:
    memory = reorder.reorder(np.ones((1, 3, 2, 2), np.float32), "nChw8c")
    assert not np.shares_memory(memory.numpy(), memory.data)
    with pytest.raises(MemdescError, match=r"numpy\(copy=False\) is impossible; see blocks\(\)"):
        memory.numpy(copy=False)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(memory, copy=False)


def test_a_view_smaller_than_a_block_is_read_through_tables() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 16)
    parent = reorder.reorder(x, "aB8b")
    view = parent.desc.submemory((1, 3), (0, 8))
    memory = reorder.Memory(view, parent.data, zero_pad=False)
    assert memory.numpy().tolist() == [[8, 9, 10]]
    with pytest.raises(NotBlockedError, match="ends inside a block"):
        memory.blocks()


def test_blocks_are_the_physical_array() -> None:
    x = np.random.default_rng(0).random((2, 17, 3, 2), np.float32)
    blocks = reorder.reorder(x, "nChw16c").blocks()
    assert blocks.shape == (2, 2, 3, 2, 16)
    assert np.array_equal(blocks[1, 1, 2, 1, 0], x[1, 16, 2, 1])
    with pytest.raises(NotBlockedError, match="share a byte"):
        reorder.Memory(memory_desc((4,), "s4", "a")).blocks()


def test_strides_that_numpy_cannot_hold_are_those_of_dims_without_a_second_step() -> None:
    memory = reorder.Memory(memory_desc((1, 3), "f32", strides=(2**62, 1)))
    assert memory.numpy().shape == memory.blocks().shape == (1, 3)
    empty = reorder.Memory(memory_desc((0, 3), "f32", strides=(1, 2**62)))
    assert empty.numpy().shape == (0, 3)
    assert empty.blocks().size == 0


def test_another_type_needs_a_copy_and_the_same_type_none() -> None:
    memory = reorder.reorder(np.zeros((2, 3), np.float32), "ba")
    assert np.shares_memory(np.asarray(memory, dtype=np.float32), memory.data)
    with pytest.raises(MemdescError, match="holds float32, so an array of float64 needs a copy"):
        np.asarray(memory, dtype=np.float64, copy=False)
    assert not np.shares_memory(np.array(memory), memory.data)


def test_whether_the_logical_array_is_a_view_is_as_documented() -> None:
    def shares(dims: tuple[int, ...], tag: str, *, copy: bool | None = None) -> bool:
        memory = reorder.Memory(memory_desc(dims, "f32", tag))
        return np.shares_memory(memory.numpy(copy=copy), memory.data)

    assert shares((2, 4, 3, 3), "nhwc")
    assert shares((2, 4, 3, 3), "nhwc", copy=False)
    assert not shares((2, 4, 3, 3), "nChw4c")
    assert shares((2, 4, 1, 1), "nChw4c")  # row-major all the same
    assert not shares((2, 4, 1, 1), "nChw4c", copy=True)
