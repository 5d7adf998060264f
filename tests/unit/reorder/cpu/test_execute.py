"""Tests of how the jobs of one reorder are run."""

import threading

import numpy as np
import pytest

from memdesc import memory_desc
from reorder import plan_reorder
from reorder.cpu import execute
from reorder.cpu.execute import LinkedBatch, PreparedReorder
from reorder.cpu.host import this_machine
from reorder.cpu.runtime import jit
from reorder.cpu.schedule.batches import Batch
from reorder.reference import execute_reference


def test_what_moves_a_dst_is_shown_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> int:
        raise AssertionError("a kernel was compiled or loaded")

    monkeypatch.setattr(jit, "kernel_at", never)
    sides = memory_desc((64, 48), "f32", "ab"), memory_desc((64, 48), "s8", "ba")
    assert PreparedReorder(plan_reorder(*sides)).kernels_at(0) == ("tiles",)


def test_a_thread_does_not_wait_while_another_one_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that is forked meanwhile would wait forever."""
    begun, done, moved = (threading.Event() for _ in range(3))

    class Slow(LinkedBatch):
        def __init__(self, batch: Batch) -> None:
            if threading.current_thread() is compiling:
                begun.set()
                done.wait()
            super().__init__(batch)

    def move(has_moved: threading.Event) -> None:
        sides = memory_desc((3, 5), "f32", "ab"), memory_desc((3, 5), "f32", "ba")
        x, out = np.ones(15, np.float32), np.zeros(15, np.float32)
        PreparedReorder(plan_reorder(*sides))(x, out)
        if (x == out).all():
            has_moved.set()

    move(threading.Event())
    monkeypatch.setattr(execute, "LinkedBatch", Slow)
    compiling = threading.Thread(target=move, args=(threading.Event(),))
    other = threading.Thread(target=move, args=(moved,))
    compiling.start()
    begun.wait()
    other.start()
    is_free = moved.wait(10)
    done.set()
    for thread in (compiling, other):
        thread.join()
    assert is_free


@pytest.mark.parametrize(
    ("threads", "is_joined"), [(1, True), (4, False)], ids=["one thread", "four threads"]
)
def test_jobs_that_write_elements_of_one_byte_do_not_run_at_once(
    threads: int, is_joined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    src, dst = (memory_desc((5000, 6), *form) for form in (("u4", "Ba3b"), ("s4", "Ba4b8b")))
    machine = this_machine()._replace(threads=threads, min_thread_nbytes=1)
    prepared = PreparedReorder(plan_reorder(src, dst), threads, machine)
    # without workers, the caller runs the chunks of joined jobs in their order
    assert prepared._schedule_at(0).has_job == is_joined  # noqa: SLF001 - no other sign of it
    data = np.random.default_rng(5).integers(0, 256, src.min_nbytes, np.uint8)
    right, out = np.zeros(dst.min_nbytes, np.uint8), np.zeros(dst.min_nbytes, np.uint8)
    execute_reference(src, dst, data, right)
    prepared.load_fast_call(out.ctypes.data)
    # the code of all jobs was made
    monkeypatch.delattr(execute, "LinkedBatch")
    for _ in range(3):
        out[:] = 255
        prepared(data, out)
        np.testing.assert_array_equal(out, right)
