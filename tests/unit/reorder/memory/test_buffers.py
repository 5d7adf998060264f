"""What is refused at the border, before anything is written."""

from __future__ import annotations

import array
from typing import TYPE_CHECKING, Any
from unittest import mock

import ml_dtypes
import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from memdesc.errors import OverlapError

if TYPE_CHECKING:
    from pathlib import Path

    from memdesc import MemoryDesc

SRC = memory_desc((2, 3), "f32", "ab")
DST = memory_desc((2, 3), "f32", "ba")
PLAN = reorder.plan_reorder(SRC, DST)


def refuse(src: Any, dst: Any, match: str, plan: reorder.plan.ReorderPlan = PLAN) -> None:
    """Both ways to run a plan must refuse, and leave dst as it was."""
    before = dst.tobytes() if isinstance(dst, np.ndarray) else None
    for run in (reorder.prepare(plan), lambda a, b: reorder.execute(plan, a, b)):
        with pytest.raises(MemdescError, match=match):
            run(src, dst)
    if before is not None:
        assert dst.tobytes() == before


def floats(count: int = 6) -> np.ndarray[Any, Any]:
    return np.full(count, 7, np.float32)


def test_a_memory_is_not_a_buffer_and_the_message_says_what_to_pass() -> None:
    refuse(floats(), reorder.Memory(DST), r"out is a Memory of memory_desc.*pass its bytes, \.data")
    refuse(reorder.Memory(SRC), floats(), r"x is a Memory of memory_desc.*pass its bytes, \.data")


def test_a_buffer_one_byte_too_small_is_refused_with_both_numbers() -> None:
    refuse(np.zeros(23, np.uint8), floats(), "x has 23 bytes, but .* touches 24")
    refuse(floats(), np.zeros(23, np.uint8), "out has 23 bytes, but .* touches 24")


def test_a_slice_that_ends_with_the_last_element_is_enough() -> None:
    rows = memory_desc((2, 3), "f32", strides=(10, 1))
    out = floats(13)
    reorder.execute(reorder.plan_reorder(SRC, rows), np.arange(6, dtype=np.float32), out)
    assert out.tolist() == [0, 1, 2, *[7] * 7, 3, 4, 5]


def test_a_read_only_destination_is_refused() -> None:
    frozen = floats()
    frozen.flags.writeable = False
    refuse(floats(), frozen, "out is read-only")
    refuse(floats(), bytes(24), "out is read-only")


def test_arrays_of_another_type_are_refused_and_bits_are_not() -> None:
    refuse(
        np.zeros(6, np.float64),
        floats(),
        "x is an array of float64: elements of another type than f32",
    )
    refuse(floats(), np.zeros(6, np.int16), "out is an array of int16")
    refuse(np.zeros(6, ">f4"), floats(), "x is an array of >f4")
    refuse(np.zeros(6, object), floats(), "x is an array of object")
    out = np.zeros(6, np.uint32)
    reorder.execute(PLAN, np.arange(6, dtype=np.float32), out)
    assert out.view(np.float32).tolist() == [0, 3, 1, 4, 2, 5]


def test_unpacked_4_bit_arrays_are_never_taken_for_packed_ones() -> None:
    plan = reorder.plan_reorder(memory_desc((4, 2), "s4", "ab"), memory_desc((4, 2), "s4", "ba"))
    refuse(np.zeros(8, ml_dtypes.int4), np.zeros(4, np.uint8), "one element per byte", plan)


def test_arrays_that_are_not_contiguous_are_refused_with_the_way_out() -> None:
    refuse(
        np.zeros((6, 2), np.float32)[:, 0],
        floats(),
        "x of shape .* is not C-contiguous; describe it with array_desc",
    )
    refuse(floats(), np.zeros((3, 2), np.float32).T, "out of shape .* not C-contiguous")


def test_a_buffer_off_its_alignment_is_refused() -> None:
    raw = np.zeros(40, np.uint8)
    start = -raw.ctypes.data % 4 + 1
    refuse(
        raw[start : start + 24],
        floats(),
        "x starts at address .*, which is not a multiple of the 4 bytes of f32; copy it",
    )
    refuse(floats(), raw[start : start + 24], "out starts at address")


def test_things_that_are_not_buffers_are_refused() -> None:
    for thing in (None, 3, "text", [1.0] * 6, object()):
        refuse(thing, floats(), "x: .* is not a contiguous buffer")
    refuse(memoryview(bytes(48))[::2], floats(), "not a contiguous buffer")


def test_buffers_of_the_standard_library_work_on_both_sides() -> None:
    source = array.array("f", range(6))
    for target in (bytearray(24), memoryview(bytearray(24)), array.array("f", [0] * 6)):
        reorder.execute(PLAN, source, target)
        assert np.frombuffer(target, np.float32).tolist() == [0, 3, 1, 4, 2, 5]


def test_a_reorder_within_one_buffer_is_refused_where_data_would_move() -> None:
    x = np.arange(6, dtype=np.float32)
    for run in (reorder.prepare(PLAN), lambda a, b: reorder.execute(PLAN, a, b)):
        with pytest.raises(OverlapError, match="x and out share memory"):
            run(x, x)
    assert x.tolist() == list(range(6))


def test_equal_layouts_that_start_at_the_same_byte_are_a_no_op() -> None:
    desc = memory_desc((2, 17, 3), "f32", "aBc8b")
    memory = reorder.Memory(desc)
    memory.elements[:] = 1
    reorder.execute(reorder.plan_reorder(desc, desc), memory.data, memory.data)
    memory.check_padding()
    assert (memory.numpy().view(np.uint32) == 1).all()


def test_buffers_that_meet_in_one_byte_are_refused_and_neighbours_are_not() -> None:
    plan = reorder.plan_reorder(memory_desc((4,), "u8", "a"), memory_desc((4,), "u8", "a"))
    raw = np.arange(8, dtype=np.uint8)
    reorder.execute(plan, raw[:4], raw[4:])
    assert raw.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    with pytest.raises(OverlapError):
        reorder.execute(plan, raw[:4], raw[3:7])


def views(parent: MemoryDesc) -> tuple[MemoryDesc, MemoryDesc]:
    return parent.submemory((2, 8, 3), (0, 0, 0)), parent.submemory((2, 8, 3), (0, 8, 0))


def test_interleaved_views_of_one_parent_are_proven_apart() -> None:
    low, high = views(memory_desc((2, 16, 3), "f32", "aBc8b"))
    buffer = np.arange(96, dtype=np.float32)
    reorder.execute(reorder.plan_reorder(low, high), buffer, buffer)
    blocks = buffer.reshape(2, 2, 24)
    assert np.array_equal(blocks[:, 0], blocks[:, 1])


def test_half_bytes_of_two_views_that_share_a_byte_are_refused() -> None:
    row = memory_desc((2, 3), "u4", strides=(3, 1))
    first, second = row.submemory((1, 3), (0, 0)), row.submemory((1, 3), (1, 0))
    data = np.array([0x21, 0x43, 0x65], np.uint8)
    with pytest.raises(OverlapError):
        reorder.execute(reorder.plan_reorder(first, second), data, data)
    assert data.tolist() == [0x21, 0x43, 0x65]


def test_subclasses_of_arrays_are_taken_as_arrays(tmp_path: Path) -> None:
    desc = memory_desc((2, 3), "f32", "ab")
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3).view(np.matrix)
    mapped = np.memmap(tmp_path / "file", np.float32, "w+", shape=(2, 3))
    for x in (matrix, mapped):
        memory = reorder.Memory(desc, x)
        assert type(memory.data) is np.ndarray
        assert memory.data.shape == (24,)
        assert np.shares_memory(memory.data, x)
        assert reorder.reorder(x, "ba").numpy().tolist() == np.asarray(x).tolist()
    with pytest.raises(MemdescError, match="'ab' is for 2"):
        reorder.reorder(matrix, "ab", src="A3a")


def test_what_bounded_work_does_not_prove_apart_is_refused() -> None:
    low, high = views(memory_desc((2, 16, 3), "f32", "aBc8b"))
    plan = reorder.plan_reorder(low, high)
    buffer = np.arange(96, dtype=np.float32)
    with (
        mock.patch("memdesc.diophantine._BUDGET", -1),
        pytest.raises(OverlapError, match="x and out share memory"),
    ):
        reorder.execute(plan, buffer, buffer)
    assert buffer.tolist() == list(range(96))
