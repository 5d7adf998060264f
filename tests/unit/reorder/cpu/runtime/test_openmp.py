"""Jobs run in parallel regions of an OpenMP runtime where the environment asks for that."""

import pytest

from tests.programs import run_python
from tests.unit.reorder.cpu.runtime.openmp import RUNTIMES, environment_of

_PROGRAM = """
import sys, threading
import numpy as np, reorder
from memdesc import memory_desc
from tests.unit.reorder.cpu.runtime.openmp import OpenMP
from tests.unit.reorder.cpu.runtime.thread_program import fork, reap

openmp = OpenMP(sys.argv[1]) if sys.argv[1:] else None
x = np.random.default_rng(0).random((600, 700), np.float32)
plan = reorder.plan_reorder(memory_desc(x.shape, "f32", "ab"), memory_desc(x.shape, "f32", "ba"))
# the first jobs of a process run without threads; not those after this
run = reorder.prepare(plan)

def move(calls=20):
    for _ in range(calls):
        out = np.full(x.size, np.nan, np.float32)
        run(x, out)
        assert (out.reshape(x.shape[::-1]) == x.T).all()

def workers():
    return sum(thread.name == "reorder" for thread in threading.enumerate())
"""


def _run(body: str, *libraries: str, **settings: str) -> None:
    settings = environment_of(**settings)
    run_python("-X", "faulthandler", "-c", _PROGRAM + body, *libraries, **settings)


@pytest.mark.parametrize("runtime", RUNTIMES[-1:])
def test_jobs_run_in_regions_of_callers_and_on_workers_in_a_child(runtime: str) -> None:
    body = """
move()
callers = [threading.Thread(target=move) for _ in range(3)]
for caller in callers: caller.start()
for caller in callers: caller.join()
assert workers() == 0
caller = threading.get_ident()
# inside of a region there is no other one
openmp.region_of(lambda: threading.get_ident() == caller and move())
openmp.library.omp_set_num_threads(1)
move()
assert workers() == 0

def child():
    move()
    assert workers() == 1
reap(fork(child))
"""
    _run(body, runtime, MEMDESC_OPENMP="1")


def test_without_a_runtime_jobs_run_on_workers() -> None:
    _run("move()\nassert workers() == 1", MEMDESC_OPENMP="1")


@pytest.mark.parametrize("runtime", RUNTIMES[:1])
def test_without_the_variable_jobs_run_on_workers(runtime: str) -> None:
    _run("openmp.region(); move()\nassert workers() == 1", runtime)
