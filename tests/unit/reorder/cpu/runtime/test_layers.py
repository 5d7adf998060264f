"""Reorders on threads and in forked children, under every thread layer of numba."""

from __future__ import annotations

import os
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

import pytest

_PROGRAM = Path(__file__).with_name("thread_program.py")
_ROOT = Path(__file__).parents[5]

# what numba is told, and what reorder makes of it
_LAYERS = {"tbb": "tbb", "omp": "omp", "workqueue": "pool", "default": "tbb", "nonsense": "pool"}


def run(scenario: str, layer: str, least: int = 0, **environment: str) -> str:
    """Run a scenario: reorders of `least` bytes use numba's threads, smaller ones the pool."""
    settings = {
        key: value for key, value in os.environ.items() if not key.startswith("NUMBA_THREADING")
    }
    # at least two threads, so that there is something to share on any machine
    settings |= {"NUMBA_NUM_THREADS": "2", "PYTHONPATH": str(_ROOT), **environment}
    if layer != "default":
        settings["NUMBA_THREADING_LAYER"] = layer
    ran = subprocess.run(
        [sys.executable, str(_PROGRAM), scenario, str(least)],
        env=settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


_SCENARIOS = ["crowds", "fork_first", "fork_after", "fork_meanwhile", "fork_pool", "leave"]


_ALL = [(scenario, layer) for scenario in _SCENARIOS for layer in ("tbb", "omp", "workqueue")]
# The default is one of the three; a campaign runs the other scenarios with it too.
_DEFAULT = [("crowds", "default"), ("fork_first", "default")]
_MORE = [
    pytest.param(scenario, "default", marks=pytest.mark.campaign)
    for scenario in _SCENARIOS
    if (scenario, "default") not in _DEFAULT
]


@pytest.mark.parametrize(("scenario", "layer"), [*_ALL, *_DEFAULT, *_MORE])
def test_reorders_are_right_on_threads_and_in_children(scenario: str, layer: str) -> None:
    if layer == "omp" and find_library("gomp") is None:
        pytest.skip("GNU OpenMP (libgomp.so.1) is not installed")
    found = run(scenario, layer)
    # a process whose first act is a fork may well have no threads of its own
    assert found == _LAYERS[layer]


# a thousand forks
@pytest.mark.campaign
@pytest.mark.parametrize("part", range(1, 11))
def test_a_hundred_children_are_right_while_threads_reorder(part: int) -> None:
    layer = ("tbb", "omp", "workqueue", "default")[part % 4]
    assert run("fork_often", layer, 0 if part % 2 else 1 << 40) == _LAYERS[layer]


@pytest.mark.parametrize("scenario", _SCENARIOS)
def test_the_pool_is_right_in_children_too(scenario: str) -> None:
    assert run(scenario, "tbb", 1 << 40) == "tbb"


def test_one_thread_needs_no_layer() -> None:
    assert run("crowds", "default", NUMBA_NUM_THREADS="1") in {"tbb", "omp", "pool"}
