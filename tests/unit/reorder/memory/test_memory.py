"""What a Memory promises beside its laws: the buffers it takes, one buffer for both, new memory."""

import array
import mmap
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import reorder
from memdesc import Extra, PaddingError, memory_desc
from memdesc.errors import OverlapError
from reorder.memory.buffers import are_disjoint

PADDED = memory_desc((2, 17, 3, 2), "f32", "nChw8c")
# large enough that new memory for a result is not zeroed without need
LARGE = (3, 5, 199, 199)


def test_a_memory_shows_its_descriptor_and_keeps_it() -> None:
    memory = reorder.Memory(PADDED)
    assert memory.data.ctypes.data % 64 == 0
    assert not memory.data.any()
    large = reorder.Memory(memory_desc((9 << 20,), "f32", "a"))
    assert large.data.ctypes.data % (2 << 20) == 0
    assert memory._repr_html_() == PADDED._repr_html_()
    assert repr(memory) == "Memory(memory_desc((2, 17, 3, 2), 'f32', 'aBcd8b'))"
    assert f"{memory:>70}" == repr(memory).rjust(70)
    assert [row.shape for row in memory] == [(17, 3, 2)] * 2
    other: dict[str, Any] = {"desc": memory_desc((2**40,), "f32"), "data": np.zeros(1, np.uint8)}
    for name, value in other.items():
        with pytest.raises(AttributeError):
            setattr(memory, name, value)
    with pytest.raises(TypeError, match="does not support item assignment"):
        memory[0] = 1  # type: ignore[index] # the mistake
    x = np.arange(6, dtype=np.float32)
    assert (reorder.Memory("f32[2,3]{0,1}", x).numpy() == x.reshape(3, 2).T).all()


def test_new_results_do_not_depend_on_what_their_memory_held() -> None:
    x = np.random.default_rng(1).integers(1, 8, LARGE).astype(np.float32)
    for dst in (
        *(memory_desc(LARGE, dtype, "nhwc") for dtype in ("f32", "s4")),
        memory_desc(LARGE, "f32", "aBcd8b"),
        memory_desc(LARGE, "f32", strides=(200_000, 39_700, 199, 1)),
        memory_desc(LARGE, "f32", strides=(198_005, 39_601, 199, 1), offset0=7),
        memory_desc(LARGE, "s8", "nhwc").with_extra(Extra(s8s8_mask=1)),
    ):
        wanted = reorder.reorder(x, out=reorder.Memory(dst)).data
        for _ in range(3):
            # the C library hands out blocks again that were freed
            held = [np.full(dst.nbytes + 64, 0xA5, np.uint8) for _ in range(3)]
            del held
            assert reorder.reorder(x, dst).data.tobytes() == wanted.tobytes(), dst


def test_padding_that_two_strides_of_zero_repeat_is_checked_once() -> None:
    # a million times a million padded positions, all at byte 0
    desc = memory_desc((3, 3, 2), "f32", strides=(0, 0, 1), padded_dims=(10**6, 10**6, 3))
    memory = reorder.Memory(desc, np.zeros(desc.nbytes, np.uint8), zero_pad=False)
    memory.check_padding()
    memory.data[9] = 1
    with pytest.raises(PaddingError, match=r"byte 8: found bits 0x100 beyond the dims \(3, 3, 2\)"):
        memory.check_padding()


def test_buffers_of_every_kind_are_used_without_a_copy(tmp_path: Path) -> None:
    desc = memory_desc((2, 3), "f32", "ab")
    plan = reorder.plan_reorder(desc, "ba")
    for buffer in (
        *(bytearray(24), memoryview(bytearray(24)), mmap.mmap(-1, 24), array.array("f", [0] * 6)),
        *(np.zeros((2, 3), np.uint32), np.zeros((2, 3), np.float32).view(np.matrix)),
        np.memmap(tmp_path / "file", np.float32, "w+", shape=(2, 3)),
    ):
        memory = reorder.Memory(desc, buffer)
        assert (type(memory.data), memory.data.shape) == (np.ndarray, (24,))
        reorder.execute(plan, array.array("f", range(6)), buffer)
        assert memory.elements.view(np.float32).tolist() == [0, 3, 1, 4, 2, 5]
        assert bytes(buffer) == bytes(memory.data)


def test_two_tensors_in_one_buffer_are_refused_unless_they_are_proven_apart() -> None:
    def refused(plan: reorder.plan.ReorderPlan, x: Any) -> None:
        before = x.tobytes()
        for run in (reorder.prepare(plan), partial(reorder.execute, plan)):
            with pytest.raises(OverlapError, match="x and out share memory"):
                run(x, x)
        assert x.tobytes() == before

    rows = memory_desc((2, 3), "f32")
    refused(reorder.plan_reorder(rows, "ba"), np.arange(6, dtype=np.float32))
    # equal layouts that start at the same byte are a no-op
    whole = reorder.reorder(np.ones((2, 17, 3), np.uint32), "aBc8b")
    reorder.execute(reorder.plan_reorder(whole.desc, whole.desc), whole.data, whole.data)
    whole.check_padding()
    assert (whole.numpy() == 1).all()
    # views of one parent that alternate
    parent = memory_desc((2, 16, 3), "f32", "aBc8b")
    low, high = (parent.submemory((2, 8, 3), (0, at, 0)) for at in (0, 8))
    plan = reorder.plan_reorder(low, high)
    buffer = np.arange(96, dtype=np.float32)
    with mock.patch("memdesc.diophantine._BUDGET", -1):
        refused(plan, buffer)
    reorder.execute(plan, buffer, buffer)
    blocks = buffer.reshape(2, 2, 24)
    assert np.array_equal(blocks[:, 0], blocks[:, 1])
    every_other = memory_desc((4,), "u8", strides=(2,))
    found = [are_disjoint(every_other, every_other, distance) for distance in (-2, -1, 1, 2, 3)]
    assert found == [False, True, True, False, True]


def test_memory_without_elements_has_no_bytes_and_an_empty_array() -> None:
    memory = reorder.Memory(memory_desc((2, 0, 3), "f32", "aBc8b"))
    assert (memory.nbytes, memory.numpy().shape) == (0, (2, 0, 3))
    memory.check_padding()
    memory.apply(np.exp)
    empty = reorder.Memory(memory_desc((0, 3), "f32"))
    assert len(empty) == 0
    assert empty  # whether there is one, not whether it has elements
    assert empty[:, 1].shape == (0,)


def test_whether_the_logical_array_is_a_view_is_as_documented() -> None:
    def shares(dims: tuple[int, ...], tag: str, *, copy: bool | None = None) -> bool:
        memory = reorder.Memory(memory_desc(dims, "f32", tag))
        return np.shares_memory(memory.numpy(copy=copy), memory.data)

    assert shares((2, 4, 3, 3), "nhwc")
    assert shares((2, 4, 3, 3), "nhwc", copy=False)
    assert not shares((2, 4, 3, 3), "nChw4c")
    assert shares((2, 4, 1, 1), "nChw4c")  # row-major all the same
    assert not shares((2, 4, 1, 1), "nChw4c", copy=True)
    memory = reorder.reorder(np.zeros((2, 3), np.float32), "ba")
    assert np.shares_memory(np.asarray(memory, dtype=np.float32), memory.data)
    for copied in (np.array(memory), memory[0], memory[:, ::2]):
        assert not np.shares_memory(copied, memory.data)
    with pytest.raises(ValueError, match="read-only"):
        memory[0][0] = 1
    assert np.array(memory).flags.writeable


def test_unit_and_empty_dims_of_arrays_have_strides_that_numpy_holds() -> None:
    for dims, strides in (((1, 3), (2**62, 1)), ((0, 3), (1, 2**62))):
        memory = reorder.Memory(memory_desc(dims, "f32", strides=strides))
        assert (memory.numpy().shape, memory.blocks().size) == (dims, 3 * dims[0])
