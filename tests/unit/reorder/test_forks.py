"""Handlers of signals wait while numba is loaded or compiles."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest

from reorder.forks import importing, importing_own
from reorder.interrupts import uninterrupted
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


def _assert_restored() -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGALRM) is _hit
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_is_raised_when_the_outermost_context_is_left() -> None:
    # another thread inside defers nothing, here neither
    thread = threading.Thread(target=uninterrupted.__enter__)
    thread.start()
    thread.join()
    _assert_restored()
    steps = []
    with pytest.raises(KeyboardInterrupt), importing:  # noqa: PT012 - it is raised at the end
        with uninterrupted:
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("inner")
        steps.append("outer")
    assert steps == ["inner", "outer"]
    _assert_restored()


def test_all_handlers_run_if_each_of_them_raises() -> None:
    with pytest.raises(_HitError) as caught, uninterrupted:  # noqa: PT012 - likewise
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGALRM)
    assert isinstance(caught.value.__context__, KeyboardInterrupt)
    _assert_restored()


def test_an_exception_inside_restores_the_handlers() -> None:
    with pytest.raises(_HitError), importing:
        raise _HitError
    _assert_restored()


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


def test_another_thread_defers_nothing() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(uninterrupted.__enter__).result()
        try:
            _assert_restored()
        finally:
            pool.submit(uninterrupted.__exit__, None, None, None).result()


def test_a_child_that_another_thread_forks_is_interrupted_at_once() -> None:
    codes = []

    def fork() -> None:
        child = os.fork()
        if not child:
            code = 1
            try:
                _assert_restored()
                code = 0
            finally:
                os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    with uninterrupted:
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    assert codes == [0]
    _assert_restored()


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
    with importing:
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
