"""Ctrl-C during the first reorder of a process."""

import os

import pytest

from tests.machine import assuming
from tests.programs import run_python

# Each child of a process that has not loaded LLVM interrupts itself once, at another moment.
_PROGRAM = """
import faulthandler, os, random, signal, sys, threading, time
import numpy as np, reorder
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

def child(run):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            run()
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

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

assert child(work) == 0  # kernels are on disk
start = time.monotonic()
assert child(work) == 0
seconds = time.monotonic() - start
rng = random.Random({seed})
count = {count}
failed = 0
for number in range(count):
    failed += child(lambda: interrupted(seconds * (number + rng.random()) / count)) != 0
assert "llvmlite" not in sys.modules
print(failed)
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
    program = _PROGRAM.format(count=count, seed=seed)
    ran = run_python("-c", program, **assuming(cores="2"))
    assert ran.stdout == "0\n", ran.stderr
