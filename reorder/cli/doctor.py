"""`memdesc doctor`."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import memdesc
from reorder.cli.command import Command, Facts

if TYPE_CHECKING:
    import argparse

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def _run(_options: argparse.Namespace) -> tuple[Facts, int]:
    from reorder.cpu import cache_folder, count_threads, layer_name  # noqa: PLC0415 - numba is slow to load

    facts: Facts = {"memdesc": memdesc.__version__, "python": platform.python_version(), "machine": platform.machine()}
    for package in ("numpy", "ml_dtypes", "numba", "llvmlite", "pyopencl", "tbb"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    folder = cache_folder()
    facts |= {
        "thread_layer": layer_name(),
        "threads": count_threads(),
        "kernel_cache": folder or "none: no folder can be written, so each process compiles anew; set NUMBA_CACHE_DIR to one",
    }
    return facts, 0


COMMAND = Command("doctor", "Report versions, threads and the cache of compiled kernels.", "doctor", _add_arguments, _run)
