"""Reorders on threads and in forked children, with and without an OpenMP runtime in the process."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.unit.reorder.cpu.runtime.openmp import RUNTIMES, environment_of

_PROGRAM = Path(__file__).with_name("thread_program.py")
_SCENARIOS = ["crowds", "fork_first", "fork_after", "fork_meanwhile", "fork_pool", "leave"]


def run(scenario: str, runtime: str = "", **environment: str) -> str:
    """Run a scenario; with a runtime, each of its reorders follows a parallel region."""
    ran = subprocess.run(
        [sys.executable, str(_PROGRAM), scenario, runtime],
        env={**environment_of(), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def _is_rare(scenario: str, runtime: str) -> bool:
    return runtime in RUNTIMES[1:] or scenario in {"crowds", "leave"}


@pytest.mark.parametrize("scenario", _SCENARIOS)
def test_reorders_are_right_on_threads_and_in_children(scenario: str) -> None:
    run(scenario)


@pytest.mark.parametrize(
    ("scenario", "runtime"),
    [
        # with the second runtime, and what the pool alone does as well, as a campaign
        pytest.param(*case, marks=pytest.mark.campaign if _is_rare(*case) else ())
        for case in product(("crowds", "fork_after", "fork_meanwhile", "leave"), RUNTIMES)
    ],
)
def test_reorders_are_right_between_parallel_regions(scenario: str, runtime: str) -> None:
    run(scenario, runtime)


# a thousand forks
@pytest.mark.campaign
@pytest.mark.parametrize("part", range(1, 11))
def test_a_hundred_children_are_right_while_threads_reorder(part: int) -> None:
    run("fork_often", ["", *RUNTIMES][part % (1 + len(RUNTIMES))])


def test_one_thread_needs_no_other() -> None:
    run("crowds", NUMBA_NUM_THREADS="1")


def test_where_numba_compiles_nothing_large_reorders_run_on_the_pool(tmp_path: Path) -> None:
    # nothing that was compiled before is there
    run("crowds", NUMBA_DISABLE_JIT="1", NUMBA_CACHE_DIR=str(tmp_path))


def test_where_numba_compiles_nothing_joined_jobs_have_a_walker(tmp_path: Path) -> None:
    program = "from reorder.cpu.runtime.joined import joined_walker_at; assert joined_walker_at()"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment_of(), "NUMBA_DISABLE_JIT": "1", "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert ran.returncode == 0, ran.stderr


def test_the_process_keeps_its_number_of_threads() -> None:
    program = (
        "import threading, numpy as np, reorder; x = np.random.rand(700, 700);"
        "[reorder.reorder(x, 'ba') for _ in range(3)];"
        "print(sum(thread.name == 'reorder' for thread in threading.enumerate()))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment_of(), "NUMBA_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    # where one core may be used, there is none
    assert int(ran.stdout) <= min(1, len(os.sched_getaffinity(0)) - 1)
