"""Jobs run on the threads of an OpenMP runtime while these are awake, and only then."""

from __future__ import annotations

import pytest

from tests.programs import run_python
from tests.unit.reorder.cpu.runtime.openmp import RUNTIMES, environment_of

pytestmark = pytest.mark.openmp

# With the second runtime, scenarios that do not depend on it run as a campaign.
_FIRST = [
    pytest.param(runtime, marks=[pytest.mark.campaign] if number else [])
    for number, runtime in enumerate(RUNTIMES)
]

_HEAD = """
import ctypes, os, sys, time, threading
import numpy as np, reorder
from memdesc import memory_desc
from reorder.cpu.runtime import teams
from reorder.cpu.runtime.pool_block import JOB_UNIT, POOL, TEAM, pool_words, team_words
from tests.unit.reorder.cpu.runtime.openmp import OpenMP
from tests.unit.reorder.cpu.runtime.thread_program import fork, reap

runtimes = [OpenMP(library) for library in sys.argv[1:]]
openmp = runtimes[0] if runtimes else None
x = np.random.default_rng(0).random((600, 700), np.float32)
plan = reorder.plan_reorder(memory_desc(x.shape, "f32", "ab"), memory_desc(x.shape, "f32", "ba"))
wanted = np.ascontiguousarray(x.T)
# the first jobs of a process run without threads; not those after this
reorder.prepare(plan)

def pool_jobs():
    return pool_words()[POOL.state] // JOB_UNIT

def move():
    # whether it ran on a team
    out = np.full(x.size, np.nan, np.float32)
    before = pool_jobs()
    reorder.execute(plan, x, out)
    assert (out.reshape(wanted.shape) == wanted).all()
    return pool_jobs() == before

def moves_on_a_team(runtime, seconds=200, move=move):
    # other processes may take the cores, so that no thread spins: try again
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        # a search is due
        pool_words()[POOL.countdown] = 1
        runtime.region()
        if move():
            return True
    return False

def threads():
    # those of Python, and so of the pool, aside
    python = {thread.native_id for thread in threading.enumerate()}
    return {int(name) for name in os.listdir("/proc/self/task")} - python
"""


def _run(body: str, *libraries: str, **settings: str) -> None:
    settings = environment_of(**settings)
    run_python("-X", "faulthandler", "-c", _HEAD + body, *libraries, **settings)


_SCENARIOS = {
    "a prepared reorder": """
run, out = reorder.prepare(plan), np.zeros(x.size, np.float32)
def move_prepared():
    before = pool_jobs()
    run(x, out)
    assert (out.reshape(wanted.shape) == wanted).all()
    return pool_jobs() == before
assert moves_on_a_team(openmp, move=move_prepared)
""",
    "a forked child never enters a team": """
def child():
    assert teams.runtimes() == []
    for _ in range(20):
        assert not move()
for _ in range(3):
    openmp.region(); reap(fork(child))
assert moves_on_a_team(openmp)
""",
    "each thread has its own team": """
found = []
def work():
    found.append(moves_on_a_team(openmp))
for _ in range(2):
    started = [threading.Thread(target=work) for _ in range(2)]
    for thread in started: thread.start()
    for thread in started: thread.join()
assert found == [True] * 4, found
assert moves_on_a_team(openmp)
""",
    "a call inside of a parallel region uses the pool": """
caller, found = threading.get_ident(), []
def inside():
    if threading.get_ident() == caller:
        found.extend(move() for _ in range(20))
openmp.region_of(inside)
assert found == [False] * 20
""",
    # no more threads than cores: GNU's runtime lets others sleep at once
    "a team that changes its size is found again": """
openmp.library.omp_set_num_threads(1)
for _ in range(40):
    openmp.region()
    assert not move()
openmp.library.omp_set_num_threads(2)
assert moves_on_a_team(openmp)
""",
}


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_team_that_is_awake_runs_jobs(runtime: str) -> None:
    _run("assert moves_on_a_team(openmp)", runtime)


@pytest.mark.parametrize("runtime", _FIRST)
def test_teams_of_children_of_threads_and_inside_regions(runtime: str) -> None:
    bodies = [f"print({name!r})\n{body}" for name, body in _SCENARIOS.items()]
    _run("assert moves_on_a_team(openmp)\n" + "\n".join(bodies), runtime)


@pytest.mark.parametrize("runtime", _FIRST)
def test_a_team_that_sleeps_is_left_alone(runtime: str) -> None:
    _run(
        """
for _ in range(50):
    openmp.region(); time.sleep(1e-3); assert not move()
""",
        runtime,
        OMP_WAIT_POLICY="passive",
        KMP_BLOCKTIME="0",
    )


def test_a_process_without_a_runtime_runs_jobs_on_the_pool() -> None:
    _run("for _ in range(20): assert not move()\nassert teams.runtimes() == []")


@pytest.mark.parametrize("runtime", _FIRST)
def test_a_search_makes_no_threads_where_those_of_another_library_are_awake(runtime: str) -> None:
    _run(
        """
class Product:
    region = staticmethod(lambda: x @ wanted)
Product.region()
before = threads()
assert not moves_on_a_team(Product, 0.2)
assert threads() == before
""",
        runtime,
        OPENBLAS_NUM_THREADS="2",
    )


@pytest.mark.parametrize("runtime", _FIRST)
def test_the_environment_turns_teams_off(runtime: str) -> None:
    _run(
        "assert not moves_on_a_team(openmp, 0.1)\nassert teams.runtimes() == []",
        runtime,
        MEMDESC_OPENMP="0",
    )


@pytest.mark.skipif(len(RUNTIMES) < 2, reason="only one OpenMP runtime is installed")
@pytest.mark.parametrize(
    "order", [1, pytest.param(-1, marks=pytest.mark.campaign)], ids=["in order", "reversed"]
)
def test_of_several_runtimes_the_one_that_is_awake_is_used(order: int) -> None:
    _run(
        """
# a search makes no threads in the other one
openmp.region()
before = threads()
assert moves_on_a_team(openmp)
assert threads() == before
for runtime in (*runtimes[1:], *runtimes):
    assert moves_on_a_team(runtime)
""",
        *RUNTIMES[::order],
        # each spins for a short time only
        OMP_WAIT_POLICY="",
        GOMP_SPINCOUNT="100000",
        KMP_BLOCKTIME="1",
    )
