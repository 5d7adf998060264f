"""Tests of how the jobs of one reorder are run."""

import numpy as np
import pytest

from memdesc import memory_desc
from reorder import plan_reorder
from reorder.cpu.execute import PreparedReorder
from reorder.cpu.host import this_machine
from reorder.cpu.runtime import jit
from reorder.reference import execute_reference


def test_what_moves_a_dst_is_shown_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> int:
        raise AssertionError("a kernel was compiled or loaded")

    monkeypatch.setattr(jit, "kernel_at", never)
    sides = memory_desc((64, 48), "f32", "ab"), memory_desc((64, 48), "s8", "ba")
    assert PreparedReorder(plan_reorder(*sides)).kernels_at(0) == ("tiles",)


@pytest.mark.parametrize(
    ("threads", "is_joined"), [(1, True), (4, False)], ids=["one thread", "four threads"]
)
def test_jobs_that_write_elements_of_one_byte_do_not_run_at_once(
    threads: int, is_joined: bool
) -> None:
    src, dst = (memory_desc((5000, 6), *form) for form in (("u4", "Ba3b"), ("s4", "Ba4b8b")))
    machine = this_machine()._replace(threads=threads, min_thread_nbytes=1)
    prepared = PreparedReorder(plan_reorder(src, dst), threads, machine)
    # without workers, the caller runs the chunks of joined jobs in their order
    assert prepared._schedule_at(0).has_job == is_joined  # noqa: SLF001 - no other sign of it
    data = np.random.default_rng(5).integers(0, 256, src.min_nbytes, np.uint8)
    right, out = np.zeros(dst.min_nbytes, np.uint8), np.zeros(dst.min_nbytes, np.uint8)
    execute_reference(src, dst, data, right)
    for _ in range(3):
        out[:] = 255
        prepared(data, out)
        np.testing.assert_array_equal(out, right)
