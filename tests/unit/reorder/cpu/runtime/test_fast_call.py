"""What the fast call takes, and what it leaves to the slow path."""

import threading
import warnings
from typing import Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc
from reorder.memory.buffers import ArrayView

_PLAN = reorder.plan_reorder(memory_desc((2, 3), "f32", "ab"), memory_desc((2, 3), "f32", "ba"))


def enters(src: Any, dst: Any) -> bool:
    run: Any = reorder.prepare(_PLAN, threads=1)
    done = run.fast_call()(src, dst)
    assert done in {None, False}
    return done is None


class Array(np.ndarray[Any, Any]):
    """An array of another class, which may have its own ideas."""


def test_arrays_that_fit_are_moved_and_anything_else_is_left_alone() -> None:
    ones = np.ones(24, np.float32)
    fit = ones[:6].reshape(2, 3), ones[:6].view(np.uint32), ones[:6].view(np.uint8)
    for src in (*fit, ones[:7].reshape(7, 1, 1)):
        dst = np.zeros(6, np.float32)
        assert enters(src, dst)
        assert (dst == 1).all()
    others: list[Any] = [
        *(None, 7, b"x" * 24, memoryview(b"x" * 24), np.float32(1), np.dtype("f4")),
        *(ones[:5], ones.view(np.uint8)[:23], ones[:6].view(np.int32), ones[:6].view(np.float64)),
        *(ones[:6].astype(">f4"), ones[:6].reshape(3, 2).T, ones[:12:2], ones[:6].view(Array)),
        *(ones.view(np.uint8)[1:26], ones[:0].reshape(0, 6)),
    ]
    for src in others:
        dst = np.full(6, 5, np.float32)
        assert not enters(src, dst)
        assert (dst == 5).all()


def test_each_side_is_aligned_to_its_own_elements() -> None:
    plan = reorder.plan_reorder(memory_desc((6,), "f32", "a"), memory_desc((6,), "s8", "a"))
    run: Any = reorder.prepare(plan, threads=1)
    src, dst = np.ones(7, np.float32), np.zeros(7, np.int8)[1:]
    assert run.fast_call()(src[:6], dst) is None
    assert (dst == 1).all()
    assert run.fast_call()(src.view(np.uint8)[1:25], dst) is False


def test_a_dst_that_is_read_only_or_shares_memory_with_src_is_left_alone() -> None:
    locked = np.zeros(6, np.float32)
    locked.flags.writeable = False
    assert not enters(np.ones(6, np.float32), locked)
    both = np.arange(11, dtype=np.float32)
    assert not enters(both[:6], both[5:])
    assert enters(both[5:], np.zeros(6, np.float32))
    with pytest.raises(MemdescError, match="read-only"):
        reorder.execute(_PLAN, np.ones(6, np.float32), locked)


def test_another_thread_may_assign_the_shape_of_an_array_meanwhile() -> None:
    # numpy frees the dims then, so the call reads them with the GIL
    plan = reorder.plan_reorder(
        memory_desc((8, 64), "f32", "ab"), memory_desc((8, 64), "f32", "ba")
    )
    run = reorder.prepare(plan, threads=1)
    src, dst = np.arange(512, dtype=np.float32), np.zeros(512, np.float32)
    ends = threading.Event()

    def assign() -> None:
        while not ends.is_set():
            for shape in ((512,), (2,) * 9, (8, 64), (1,) * 20 + (512,)):
                src.shape = shape

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of numpy 2.5, for assigned shapes
        thread = threading.Thread(target=assign)
        thread.start()
        try:
            for _ in range(2000):
                dst[...] = 0
                run(src, dst)
                assert np.array_equal(dst.reshape(64, 8), np.arange(512).reshape(8, 64).T)
        finally:
            ends.set()
            thread.join()


def viewing(src: Any, dst: Any, *, of: Any = _PLAN) -> Any:
    """Return the call for arrays with the shapes and strides of two others."""
    run: Any = reorder.prepare(of, threads=1)
    views = [ArrayView(array.shape, array.strides, array.dtype, 0) for array in (src, dst)]
    return run.fast_call(*views)


def test_a_call_for_views_takes_arrays_of_these_sizes_and_strides_only() -> None:
    whole = np.arange(12, dtype=np.float32)
    src, dst = whole.reshape(3, 4)[:2, :3], np.zeros((2, 3), np.float32)
    plan = reorder.plan_reorder(
        memory_desc((2, 3), "f32", strides=(4, 1)), memory_desc((2, 3), "f32", "ab")
    )
    call = viewing(src, dst, of=plan)
    assert call(src, dst) is None
    assert np.array_equal(dst, src)
    dst[:] = 5
    for other in (
        whole.reshape(2, 6)[:, :3],
        whole.reshape(3, 4)[:3, :3],
        whole.reshape(3, 4)[:2, :2],
        whole.reshape(3, 4)[None, :2, :3],
        whole.view(np.int32).reshape(3, 4)[:2, :3],
        src[:, ::-1],
        src.T,
        src.copy(),
        src.view(Array),
        None,
    ):
        assert call(other, dst) is False
    locked = np.zeros((2, 3), np.float32)
    locked.flags.writeable = False
    for other in (locked, whole[4:10].reshape(2, 3), dst.T, dst[:, :2], np.zeros(6, np.float32)):
        assert call(src, other) is False
    assert (dst == 5).all()


def test_a_call_takes_two_arguments() -> None:
    run: Any = reorder.prepare(_PLAN, threads=1)
    x, dst = np.ones(6, np.float32), np.zeros(6, np.float32)
    assert run.fast_call()(x) is False
    assert run.fast_call()(x, dst, dst) is False
    with pytest.raises(TypeError):
        run.fast_call()(x, dst=dst)


def test_a_call_does_nothing_while_the_job_of_a_place_of_dst_is_missing() -> None:
    run: Any = reorder.prepare(_PLAN, threads=1)
    call, jobs = run.fast_call(), run._jobs  # noqa: SLF001 - the table that it reads
    room = np.zeros(64, np.float32)
    start = next(k for k in range(16) if room[k:].ctypes.data % 64 == 20)
    held = jobs[20]
    jobs[20] = 0
    try:
        assert call(np.ones(6, np.float32), room[start : start + 6]) is False
        assert call(np.ones(6, np.float32), room[start + 1 : start + 7]) is None
    finally:
        jobs[20] = held
    assert call(np.ones(6, np.float32), room[start : start + 6]) is None
