"""Older x86-64 processors that kernels can be compiled for, and run on a newer one."""

import platform
from pathlib import Path

import pytest
from llvmlite import binding

from reorder.assumed import PROCESSORS, VARIABLE


def runnable_processors() -> list[str]:
    """Return the processors whose instructions this machine has, oldest first."""
    if platform.machine() != "x86_64":
        return []
    host = binding.get_host_cpu_features()
    return [name for name, features in PROCESSORS.items() if all(map(host.get, features))]


def environment_of(processor: str, cache: Path) -> dict[str, str]:
    """Return the settings of a process that compiles for a processor; skip where it cannot run.

    `cache` is the folder of its kernels.
    """
    if processor not in runnable_processors():
        pytest.skip(f"this machine lacks some of {', '.join(PROCESSORS[processor])}")
    return {VARIABLE: f"cpu={processor}", "NUMBA_CACHE_DIR": str(cache)}
