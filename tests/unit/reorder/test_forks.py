"""Forks and handlers of signals while code of others is imported or compiled."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

import pytest

from reorder.forks import importing_own
from reorder.stack import uninterrupted
from tests.programs import run_python

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="os.kill ends the process there")


class _HitError(Exception):
    pass


def _hit(*_: object) -> None:
    raise _HitError


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    alarm = signal.signal(signal.SIGALRM, _hit)
    yield
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGALRM, alarm)


def test_what_a_handler_raises_waits_for_the_function() -> None:
    done = []

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGALRM)
        time.sleep(0.05)
        done.append(threading.current_thread())

    with pytest.raises(_HitError):
        uninterrupted(work)
    (thread,) = done
    assert thread is not threading.main_thread()
    # handlers that do not raise change nothing
    signal.signal(signal.SIGALRM, lambda *_: done.append(threading.current_thread()))
    uninterrupted(lambda: signal.raise_signal(signal.SIGALRM))
    assert done[1:] == [threading.main_thread()]


def test_a_timer_may_raise_as_often_as_it_likes() -> None:
    """Until the function is done, however deep calls may be nested."""
    done, raised = threading.Event(), []

    def hit(*_: object) -> NoReturn:
        raised.append(done.is_set())
        raise _HitError

    def work() -> None:
        for count in range(100):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            while len(raised) == count:
                time.sleep(0.001)
            time.sleep(0.002)  # until this thread is waited for again
        done.set()

    signal.signal(signal.SIGALRM, hit)
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(_depth() + 60)
        with pytest.raises(_HitError):
            uninterrupted(work)
    finally:
        sys.setrecursionlimit(limit)
    assert raised == [False] * 100
    assert done.is_set()


def _depth() -> int:
    """Return how many calls are nested here."""
    frame, depth = sys._getframe(), 0  # noqa: SLF001 - there is no other way to count them
    while frame := frame.f_back:  # type: ignore[assignment] # ends with None
        depth += 1
    return depth


def test_what_a_handler_raises_before_the_thread_begins_is_raised() -> None:
    """Python raises errors of the same type if it can start no thread."""

    def trace(frame: FrameType, *_: object) -> None:
        if frame.f_code is threading.Event.wait.__code__:
            sys.settrace(None)
            msg = "time is up"
            raise RuntimeError(msg)  # a handler may run wherever a function of Python begins

    before = sys.gettrace()
    try:
        sys.settrace(trace)
        with pytest.raises(RuntimeError, match="time is up"):
            uninterrupted(lambda: 5)
    finally:
        sys.settrace(before)


def test_a_handler_may_fork_meanwhile() -> None:
    codes = []

    def fork(*_: object) -> None:
        child = os.fork()
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else None)

    def work() -> int:
        os.kill(os.getpid(), signal.SIGALRM)
        time.sleep(0.05)
        return 5

    signal.signal(signal.SIGALRM, fork)
    found = uninterrupted(work)
    if codes == [None]:
        # the child has forgotten the thread, but not the result
        os._exit(3 * (found == 5 and importing_own.acquire(blocking=False)))
    assert (found, codes) == (5, [3])


def test_an_exception_from_a_handler_leaves_no_lock_held() -> None:
    found = []

    def look() -> None:
        found.append(importing_own.acquire(blocking=False))
        if found[0]:
            importing_own.release()

    def trace(*_: object) -> NoReturn:
        raise _HitError  # a handler may run wherever a function of Python begins

    before = sys.gettrace()
    try:
        with importing_own:
            sys.settrace(trace)
    except _HitError:
        pass
    finally:
        sys.settrace(before)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [True]


_LOADING = """
import os, signal, sys, threading, time
from reorder.forks import importing
assert "logging" not in sys.modules

inside, register = threading.Event(), os.register_at_fork

def slowly(**hooks):
    register(**hooks)
    inside.set()
    time.sleep(0.1)

def load():
    with importing():
        import logging
        logging.getLogger("reorder").warning("said")

os.register_at_fork = slowly  # logging calls it while it is imported
thread = threading.Thread(target=load)
thread.start()
inside.wait()
child = os.fork()
if not child:
    signal.alarm(20)
    load()
    os._exit(0)
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_child_that_is_forked_while_logging_is_imported_can_import_it() -> None:
    assert run_python("-c", _LOADING).stderr == "said\nsaid\n"


_LATE = """
import sys
import numpy as np, reorder
from reorder.forks import importing_own

class Watch:
    def find_spec(self, name, *_):
        if name.startswith("reorder.") and not importing_own._is_owned():
            # whether another thread, which waits for this one, holds it
            if importing_own.acquire(blocking=False):
                importing_own.release()
                print(name)

sys.meta_path.insert(0, Watch())
x = np.ones((6, 20, 7, 9), np.float32)
for _ in range(3):
    reorder.reorder(x, "nhwc")
    reorder.reorder(x, "nChw16c", dtype="f64")
"""


def test_a_fork_waits_while_reorders_import_what_they_need() -> None:
    """A child would wait forever for a module that another thread was importing."""
    assert run_python("-c", _LATE).stdout == ""
