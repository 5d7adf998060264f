"""Reorders work on threads with small stacks."""

import os
import threading
from pathlib import Path

import pytest

from reorder.stack import on_enough_stack
from tests.machine import assuming
from tests.programs import run_python

# Work of a thread with a small stack: all that is loaded and compiled is so at its first use.
_PROGRAM = """
import sys, threading
import numpy as np
import memdesc, reorder

x = np.random.default_rng(0).random((40, 50), np.float32)
large = np.random.default_rng(0).random((900, 1100), np.float32)
scale = reorder.Attr(dst_scale=1 / 64)
weights = (x * 100).astype(np.int8)
summed = memdesc.memory_desc(x.shape, "s8", "AB16b16a4b").with_extra(memdesc.Extra(s8s8_mask=1))

def work():
    assert (reorder.reorder(x, "ba").numpy() == x).all()
    assert (reorder.reorder(large, "ba").numpy() == large).all()
    for given in (x, large):
        y = reorder.reorder(given, "ba", dtype="s8", attr=scale)
        assert (y.numpy() == np.rint(given * 64)).all()
    m = reorder.reorder(weights, summed)
    sums = m.data[-4 * 48:].view(np.int32)
    assert (sums[:40] == -128 * weights.astype(np.int32).sum(1)).all()
    q = reorder.quantize(x, "u4", axis=0)
    assert abs(reorder.dequantize(q).numpy() - x).max() <= q.scales.max()
    reorder.reorder(weights, "AB16a4b", dtype="f16")
    done.append(True)

done = []
threading.stack_size(int(sys.argv[1]) * 1024)
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(done), threading.stack_size() // 1024)
"""


def _run(kib: int, **environment: str) -> str:
    settings = {**assuming(cores="2"), **environment}
    return run_python("-X", "faulthandler", "-c", _PROGRAM, str(kib), **settings).stdout


# 32 KiB is the least that Python allows, and the system may ask for more: 128 on 64-bit ARM
_STACKS = sorted({max(kib, os.sysconf("SC_THREAD_STACK_MIN") >> 10) for kib in (32, 64)})


@pytest.mark.slow
@pytest.mark.parametrize(
    "kib", [_STACKS[0], *(pytest.param(kib, marks=pytest.mark.campaign) for kib in _STACKS[1:])]
)
def test_threads_with_little_stack_reorder(kib: int) -> None:
    assert _run(kib) == f"2 {kib}\n"


@pytest.mark.campaign
@pytest.mark.parametrize("kib", _STACKS)
def test_threads_with_little_stack_compile(kib: int, tmp_path: Path) -> None:
    assert _run(kib, NUMBA_CACHE_DIR=str(tmp_path)) == f"2 {kib}\n"


def test_a_function_runs_here_on_the_main_thread_and_else_on_one_new_thread() -> None:
    seen: list[threading.Thread] = []
    on_enough_stack(lambda: seen.append(threading.current_thread()))

    def inner() -> None:
        seen.append(threading.current_thread())
        msg = "no luck"
        raise KeyError(msg)

    def work() -> None:
        # what keeps its thread, and raises
        with pytest.raises(KeyError, match="no luck"):
            on_enough_stack(lambda: on_enough_stack(inner))
        seen.append(threading.current_thread())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    here, other, caller = seen
    assert here is threading.main_thread()
    assert caller is thread
    assert other not in {here, caller}


# a thread that is started then would wait for ever in Python 3.11
_LAST = """
import faulthandler
from reorder.stack import on_enough_stack, uninterrupted

faulthandler.dump_traceback_later(20, exit=True)

class Last:
    def __del__(self, calls=(on_enough_stack, uninterrupted), show=print):
        show(*(call(lambda: 5) for call in calls), flush=True)

last = Last()
"""


def test_a_function_runs_when_the_interpreter_clears_its_modules() -> None:
    assert run_python("-c", _LAST).stdout == "5 5\n"


# One kernel is being compiled on a thread when the interpreter ends, and that thread needs others.
_ENDING = """
import atexit, os, threading, time
atexit.register(lambda: late())  # the last to be called
import numpy as np, reorder
from reorder.cpu.runtime import compiler

inside, compile_text = threading.Event(), compiler.compile_text
x = np.ones((5, 7), np.float32)

def slowly(text, symbol, *, moves):
    os.write(1, b"<")
    inside.set()
    time.sleep(0.3)
    compiled = compile_text(text, symbol, moves=moves)
    os.write(1, b">")
    return compiled

def work():
    for dtype in ("f32", "f16", "s8", "u8", "s16", "s32"):
        reorder.reorder(x, "ba", dtype=dtype)

def late():
    time.sleep(0.5)
    os.write(1, b"late")
    reorder.reorder(x, "ab", dtype="f64")

compiler.compile_text = slowly
threading.Thread(target=work, daemon=True).start()
inside.wait()
"""


def test_no_other_thread_compiles_while_the_interpreter_ends(tmp_path: Path) -> None:
    """LLVM would crash, as its globals are destroyed."""
    written = run_python("-c", _ENDING, NUMBA_CACHE_DIR=str(tmp_path)).stdout
    first, late, last = written.partition("late")
    assert (first, late, set(last[::2]), set(last[1::2])) == ("<>", "late", {"<"}, {">"})
