"""Plans that are kept, and reorders that are prepared for many calls."""

import gc
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import RUNTIME, MemdescError, memory_desc, runtime_desc
from reorder.plan import Box, Node, ReorderPlan, plan_runtime
from reorder.threads import current_limit


def test_a_block_limits_the_threads_of_its_own_thread_of_calls_that_say_nothing() -> None:
    plan = reorder.plan_reorder(memory_desc((2, 3), "f32", "ab"), "ba")
    found: list[int | None] = []

    def threads_of(threads: int | None = None) -> int:
        return int(reorder.prepare(plan, threads=threads).threads)  # type: ignore[attr-defined] # of the callable that it returns

    def work(_: int) -> None:
        for _ in range(200):
            with block:
                found.append(current_limit())
            found.append(current_limit())

    free, block = threads_of(), reorder.use_threads(1)
    # one that is nested in itself
    with block, block:
        assert (threads_of(), threads_of(free)) == (1, free)
        with reorder.use_threads(free), block, reorder.use_threads(free):
            assert threads_of() == free
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert threads_of() == 1
    with pytest.raises(ZeroDivisionError), block:
        _ = 1 // 0
    assert threads_of() == free
    assert found.count(1) == found.count(None) == 800


def test_plans_and_prepared_reorders_are_cached_but_for_large_attributes() -> None:
    for count, is_cached in ((1 << 14, True), ((1 << 14) + 1, False)):
        src, dst = (memory_desc((count,), dtype, "a") for dtype in ("f32", "s8"))
        attrs = [
            reorder.Attr(dst_scale=np.ones(count, np.float32), dst_scale_mask=1) for _ in range(2)
        ]
        first, second = (reorder.plan_reorder(src, dst, attr) for attr in attrs)
        assert first == second
        assert (first is second) == is_cached
        runs = [reorder.prepare(plan, threads=1) for plan in (first, second)]
        assert (runs[0] is runs[1]) == is_cached
        for _ in range(2):
            reorder.reorder(np.ones(count, np.float32), "a", dtype="s8", attr=first.attr)
        # nothing keeps the arrays of a large one once the caller has dropped it
        assert first.attr is not None
        held = weakref.ref(first.attr.parameters[0].values)
        del first, second, attrs, runs
        gc.collect()
        assert (held() is None) != is_cached


def test_boxes_follow_from_the_descriptors_and_cannot_be_given() -> None:
    plan = reorder.plan_reorder(memory_desc((4, 6), "u8", "ab"), "ba")
    for name in ("boxes", "bound_attr", "prepared"):
        given: dict[str, Any] = {name: (Box((0, 10**6), (Node(24, 24, (1, 1)),)),)}
        for make in (partial(ReorderPlan, plan.src, plan.dst), partial(replace, plan)):
            with pytest.raises((TypeError, ValueError), match=name):
                make(**given)


@pytest.mark.parametrize(
    ("a", "b"),
    [("abcd", "aBcd16b"), ("aBcd48b", "aBcd32b"), ("abdc", "ab(CD)4(cd)"), ("ab(dc)", "ab(cd)")],
)
def test_a_large_reorder_allocates_no_more_than_a_mebibyte(a: str, b: str) -> None:
    src, dst = memory_desc((4, 96, 128, 130), "f32", a), memory_desc((4, 96, 128, 130), "f32", b)
    source, target = reorder.Memory(src), reorder.Memory(dst)
    run = reorder.prepare(reorder.plan_reorder(src, dst))
    run(source.data, target.data)
    tracemalloc.start()
    try:
        reorder.prepare(reorder.plan_reorder(src, dst))(source.data, target.data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


# Plans whose sizes are known when they run.

SRC = runtime_desc((RUNTIME, 20, RUNTIME), "f32", "abc")
DST = runtime_desc((RUNTIME, 20, RUNTIME), "s8", "aBc8b")


def test_one_plan_serves_all_sizes() -> None:
    plan = plan_runtime(SRC, DST, reorder.Attr(dst_scale=0.5))
    for sizes in ((1, 20, 3), (4, 20, 1), (0, 20, 2)):
        x = np.random.default_rng(0).integers(-60, 60, sizes).astype(np.float32)
        src, dst = reorder.reorder(x, "abc"), reorder.Memory(DST.resolve(sizes))
        plan(src, dst, threads=1)
        assert np.array_equal(dst.numpy(), 2 * x)
        assert plan.resolve(sizes) is reorder.plan_reorder(src.desc, dst.desc, plan.attr)


def test_what_a_plan_of_any_sizes_is_not_for_is_refused_before_anything_is_written() -> None:
    plan: Any = plan_runtime(SRC, DST)
    turned = reorder.Memory(memory_desc((2, 20, 3), "f32", "acb"))
    wider = reorder.Memory(memory_desc((2, 21, 3), "s8", "aBc8b"))
    longer = reorder.Memory(DST.resolve((2, 20, 4)))
    for rows in (0, 2):
        src, dst = (reorder.Memory(side.resolve((rows, 20, 3))) for side in (SRC, DST))
        dst.data[:20] = 1
        for x, out, threads, message in (
            *((src, dst, n, "threads must be an integer of 1 or more") for n in (0, -5, 1.5, "x")),
            (turned, dst, 1, r"x is memory_desc.*, but the plan is for runtime_desc"),
            (src, wider, 1, "says 20"),
            (src, dst.data, 1, "out must be a Memory, whose descriptor says the sizes, not nd"),
            (src, longer, 1, "src has dims"),
        ):
            with pytest.raises(MemdescError, match=message):
                plan(x, out, threads=threads)
            assert (dst.data[:20] == 1).all()
