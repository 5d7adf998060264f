from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import RUNTIME, MemdescError, memory_desc, runtime_desc

SRC, DST = (
    runtime_desc((RUNTIME, 20, RUNTIME), "f32", "abc"),
    runtime_desc((RUNTIME, 20, RUNTIME), "s8", "aBc8b"),
)


def test_one_plan_serves_all_sizes() -> None:
    plan = reorder.plan.plan_runtime(SRC, DST, reorder.Attr(dst_scale=0.5))
    for sizes in ((1, 20, 3), (4, 20, 1), (0, 20, 2)):
        x = np.random.default_rng(0).integers(-60, 60, sizes).astype(np.float32)
        src, dst = reorder.reorder(x, "abc"), reorder.Memory(DST.resolve(sizes))
        plan(src, dst, threads=1)
        assert np.array_equal(dst.numpy(), 2 * x)
        assert plan.resolve(sizes) is reorder.plan_reorder(src.desc, dst.desc, plan.attr)


@pytest.mark.parametrize("threads", [0, -5, 1.5, "x"])
@pytest.mark.parametrize("rows", [0, 2])
def test_threads_are_checked_before_anything_is_written(threads: Any, rows: int) -> None:
    plan = reorder.plan.plan_runtime(SRC, DST)
    src, dst = (
        reorder.Memory(SRC.resolve((rows, 20, 3))),
        reorder.Memory(DST.resolve((rows, 20, 3))),
    )
    dst.data[:20] = 1
    with pytest.raises(MemdescError, match=r"threads must be an integer of 1 or more"):
        plan(src, dst, threads=threads)
    assert (dst.data[:20] == 1).all()


def test_memory_that_the_plan_is_not_for_is_refused_before_anything_is_written() -> None:
    plan = reorder.plan.plan_runtime(SRC, DST)
    src, dst = reorder.Memory(SRC.resolve((2, 20, 3))), reorder.Memory(DST.resolve((2, 20, 3)))
    with pytest.raises(MemdescError, match=r"x is memory_desc.*, but the plan is for runtime_desc"):
        plan(reorder.Memory(memory_desc((2, 20, 3), "f32", "acb")), dst)
    with pytest.raises(MemdescError, match="says 20"):
        plan(src, reorder.Memory(memory_desc((2, 21, 3), "s8", "aBc8b")))
    with pytest.raises(
        MemdescError, match="out must be a Memory, whose descriptor says the sizes, not ndarray"
    ):
        plan(src, dst.data)  # type: ignore[arg-type] # what a caller might pass
    with pytest.raises(MemdescError, match="src has dims"):
        plan(src, reorder.Memory(DST.resolve((2, 20, 4))))
