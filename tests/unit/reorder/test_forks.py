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
