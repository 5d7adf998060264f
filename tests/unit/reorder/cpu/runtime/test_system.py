"""How threads wait, on every system, and where the C library has no function for it."""

import ctypes
import time

import pytest

from reorder import system
from reorder.cpu.runtime import pool
from reorder.cpu.runtime.pool import WORDS
from reorder.cpu.runtime.worker import POOL


def test_a_thread_that_waits_sleeps_instead_of_spinning() -> None:
    words = WORDS.tolist()
    sleep = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_longlong, ctypes.c_int)(
        words[POOL.sleep_at]
    )
    begun, used = time.monotonic(), time.thread_time()
    for _ in range(10):
        assert sleep(words[POOL.never_free], 20_000, 0) == 0  # the lock was not acquired
    assert time.monotonic() - begun >= 0.2
    assert time.thread_time() - used < 0.1


def test_a_system_without_a_c_library_yields_by_doing_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [0] * len(WORDS)
    monkeypatch.setattr(pool, "system_function", lambda _: None)
    pool.write_functions(words)
    assert words[POOL.yield_at] != WORDS[POOL.yield_at]
    assert ctypes.CFUNCTYPE(ctypes.c_int)(words[POOL.yield_at])() == 1
    assert words[POOL.never_free] != WORDS[POOL.never_free]


def test_a_function_that_the_system_lacks_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.system_function("no_such_function") is None
    monkeypatch.setattr("reorder.system.os.name", "nt")
    assert system.system_function("strlen") is None
