"""Two tensors in one buffer: refused where a byte is read and written."""

from unittest import mock

import numpy as np
import pytest

import reorder
from memdesc import MemoryDesc, memory_desc
from memdesc.errors import OverlapError
from reorder.memory.buffers import are_disjoint


def refused(plan: reorder.plan.ReorderPlan, x: np.ndarray, out: np.ndarray) -> None:
    """Both ways to run a plan must refuse, and leave the buffer as it was."""
    before = x.tobytes()
    for run in (reorder.prepare(plan), lambda a, b: reorder.execute(plan, a, b)):
        with pytest.raises(OverlapError, match="x and out share memory"):
            run(x, out)
    assert x.tobytes() == before


def test_data_that_would_move_within_its_buffer_is_refused() -> None:
    plan = reorder.plan_reorder(memory_desc((2, 3), "f32"), "ba")
    x = np.arange(6, dtype=np.float32)
    refused(plan, x, x)


def test_equal_layouts_that_start_at_the_same_byte_are_a_no_op() -> None:
    desc = memory_desc((2, 17, 3), "f32", "aBc8b")
    memory = reorder.Memory(desc)
    memory.elements[:] = 1
    reorder.execute(reorder.plan_reorder(desc, desc), memory.data, memory.data)
    memory.check_padding()
    assert (memory.numpy().view(np.uint32) == 1).all()


def views(parent: MemoryDesc) -> reorder.plan.ReorderPlan:
    low, high = (parent.submemory((2, 8, 3), (0, at, 0)) for at in (0, 8))
    return reorder.plan_reorder(low, high)


def test_interleaved_views_of_one_parent_are_proven_apart_or_refused() -> None:
    plan = views(memory_desc((2, 16, 3), "f32", "aBc8b"))
    buffer = np.arange(96, dtype=np.float32)
    with mock.patch("memdesc.diophantine._BUDGET", -1):
        refused(plan, buffer, buffer)
    reorder.execute(plan, buffer, buffer)
    blocks = buffer.reshape(2, 2, 24)
    assert np.array_equal(blocks[:, 0], blocks[:, 1])


def test_bytes_that_alternate_are_disjoint() -> None:
    every_other = memory_desc((4,), "u8", strides=(2,))
    found = [are_disjoint(every_other, every_other, distance) for distance in (-2, -1, 1, 2, 3)]
    assert found == [False, True, True, False, True]
