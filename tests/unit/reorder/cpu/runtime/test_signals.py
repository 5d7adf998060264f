"""Signals that arrive during a reorder: handlers that raise, reorder or fork, and Ctrl-C."""

import os

import pytest

from tests.machine import assuming
from tests.programs import run_python

_HEAD = """
import faulthandler, os, random, signal, time
from tests.unit.reorder.cpu.runtime.thread_program import Crowd, fork, move, reap
from reorder.cpu.runtime.pool import WORDS
from reorder.cpu.runtime.worker import POOL

faulthandler.dump_traceback_later(60, exit=True)
rng = random.Random(0)
for _ in range(2):
    move()  # on several threads
Crowd(2, move).join()  # on one
children = []

def during(handler, seconds, most):
    signal.signal(signal.SIGALRM, handler)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.random() * most)
            move()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Hit:
            pass
        while children:
            reap(children.pop())
    signal.setitimer(signal.ITIMER_REAL, 0)

class Hit(BaseException):  # as KeyboardInterrupt: numpy swallows others
    pass
"""

_PROGRAM = (
    _HEAD
    + """
hits = 0
def handler(*_):
    global hits
    hits += 1
    raise Hit
while hits <= 10:  # at once, unless the machine is busy
    during(handler, 0.6, 0.002)
# nothing is left locked: reorders still run on several threads, and children are forked
assert not WORDS[POOL.busy]
move()
reap(fork())
during(lambda *_: move(), 0.4, 0.004)
during(lambda *_: children.append(fork()), 0.4, 0.004)
"""
)


def test_a_signal_handler_may_raise_reorder_or_fork_inside_a_reorder() -> None:
    run_python("-c", _PROGRAM, **assuming(cores="2"))


_COLD = """
import time
from tests.unit.reorder.cpu.runtime.thread_program import Crowd, fork, move, reap
crowd = Crowd(3, move)
time.sleep({pause})
children = [fork(), fork()]
for child in children:
    reap(child)
crowd.join()
move()
"""


@pytest.mark.parametrize("pause", [0, 0.2])
def test_a_child_forked_while_another_thread_loads_numba_can_reorder(pause: float) -> None:
    run_python("-c", _COLD.format(pause=pause), **assuming(cores="2"))


# Each child of a process that has not loaded LLVM interrupts itself once, at another moment.
_INTERRUPTED = """
import faulthandler, os, random, signal, sys, threading, time
import numpy as np, reorder
from tests.unit.reorder.cpu.runtime.thread_program import fork, reap
faulthandler.dump_traceback_later(280, exit=True)
x = np.random.default_rng(0).random((2500, 2500), np.float32)
small = x[:5, :7]
scale = reorder.Attr(dst_scale=1 / 127)

def work():
    assert (reorder.reorder(x, "ba").numpy() == x).all()
    y = reorder.reorder(small, "ba", dtype="s8", attr=scale)
    assert (y.numpy() == np.rint(small * np.float32(127))).all()

def interrupt(pause):
    time.sleep(pause)
    os.kill(os.getpid(), signal.SIGINT)

def interrupted(pause):
    hits = 0
    thread = threading.Thread(target=interrupt, args=(pause,))
    try:
        thread.start()
        work()
        thread.join()
        time.sleep(0.1)
    except KeyboardInterrupt:
        hits = 1
    assert hits
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    thread.join()
    work()

reap(fork(work))  # kernels are on disk
start = time.monotonic()
reap(fork(work))
seconds = time.monotonic() - start
rng = random.Random({seed})
for number in range({count}):
    reap(fork(lambda: interrupted(seconds * (number + rng.random()) / {count})))
assert "llvmlite" not in sys.modules
"""


# a campaign has a hundred in four parts
@pytest.mark.parametrize(
    ("count", "seed"),
    [(2, 0), *(pytest.param(25, part, marks=pytest.mark.campaign) for part in range(1, 5))],
)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
def test_an_interrupt_of_the_first_reorder_leaves_a_process_that_reorders(
    count: int, seed: int
) -> None:
    run_python("-c", _INTERRUPTED.format(count=count, seed=seed), **assuming(cores="2"))
