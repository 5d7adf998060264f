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
