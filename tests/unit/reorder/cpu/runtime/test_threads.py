"""Reorders on threads and in forked children, with and without an OpenMP runtime in the process."""

from pathlib import Path

import pytest

from tests.programs import run_python
from tests.unit.reorder.cpu.runtime.openmp import RUNTIMES, environment_of

_PROGRAM = Path(__file__).with_name("thread_program.py")


def run(scenarios: str, runtime: str = "", **environment: str) -> None:
    """Run scenarios in one process; with a runtime, each reorder follows a parallel region."""
    run_python(_PROGRAM, scenarios, runtime, **environment_of(**environment))


def test_reorders_are_right_on_threads_and_in_children() -> None:
    run("fork_first,crowds,count,fork_after,fork_meanwhile,fork_pool,leave")


@pytest.mark.parametrize(
    "runtime",
    [
        pytest.param(runtime, marks=[pytest.mark.campaign] if number else [])
        for number, runtime in enumerate(RUNTIMES)
    ],
)
def test_reorders_are_right_between_parallel_regions(runtime: str) -> None:
    run("crowds,fork_after,fork_meanwhile,leave", runtime)


# a thousand forks
@pytest.mark.campaign
@pytest.mark.parametrize("part", range(1, 11))
def test_a_hundred_children_are_right_while_threads_reorder(part: int) -> None:
    run("fork_often", ["", *RUNTIMES][part % (1 + len(RUNTIMES))])


def test_one_thread_needs_no_other() -> None:
    run("crowds", NUMBA_NUM_THREADS="1")


@pytest.mark.slow
def test_where_numba_is_told_to_compile_nothing_reorders_run_on_the_pool(tmp_path: Path) -> None:
    # nothing that was compiled before is there
    run("crowds,compile_boxes", NUMBA_DISABLE_JIT="1", NUMBA_CACHE_DIR=str(tmp_path))


_OPENMP = """
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


def run_openmp(body: str, *libraries: str, **settings: str) -> None:
    settings = environment_of(**settings)
    run_python("-X", "faulthandler", "-c", _OPENMP + body, *libraries, **settings)


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
    run_openmp(body, runtime, MEMDESC_OPENMP="1")


def test_without_a_runtime_jobs_run_on_workers() -> None:
    run_openmp("move()\nassert workers() == 1", MEMDESC_OPENMP="1")


@pytest.mark.parametrize("runtime", RUNTIMES[:1])
def test_without_the_variable_jobs_run_on_workers(runtime: str) -> None:
    run_openmp("openmp.region(); move()\nassert workers() == 1", runtime)
