"""Signals that arrive during a reorder: handlers that raise, reorder or fork."""

import pytest

from tests.machine import assuming
from tests.programs import run_python

_HEAD = """
import faulthandler, os, random, signal, time
from tests.unit.reorder.cpu.runtime.thread_program import Crowd, fork, move, reap
from reorder.cpu.runtime.pool_block import POOL, pool_words

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
during(handler, 0.6, 0.002)
assert hits > 10
# nothing is left locked: reorders still run on several threads, and children are forked
assert not pool_words()[POOL.busy]
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
