"""Run the workers, one process for each number of threads, and collect their results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import product
from typing import TYPE_CHECKING, Any

from memdesc import MemdescError
from reorder.bench.libdnnl import find_libraries
from reorder.bench.transposers import mkl_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["missing_peers", "run_workers"]


# Threads of GNU OpenMP spin after every call, up to a tenth of a second on a virtual machine, those
# of Intel's for 200 ms, and would occupy the cores while the next candidate runs. Between calls in
# a row they still spin.
_SHORT_SPIN = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}


def run_workers(
    words: Sequence[str],
    threads: Sequence[int],
    peers: Sequence[str],
    seconds: float,
    busy: int = 0,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Measure cases in separate processes; yield the number of threads and a message of a worker.

    There is one process for each number of threads and each oneDNN beyond the first: builds
    keep threads of their own (OpenMP, TBB), and those of one would take cores from the other.
    Meanwhile `busy` other processes occupy a core each.

    Raises
    ------
    MemdescError
        If a worker ends early; with the last line of its stderr.
    """
    for count, group in product(threads, _groups(peers)):
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        command = [
            sys.executable,
            "-m",
            "reorder.bench.worker",
            f"--threads={count}",
            f"--seconds={seconds}",
            *(f"--peer={peer}" for peer in group),
        ]
        with _cores(count):
            worker = subprocess.Popen(  # noqa: S603 - a module of this package
                [*command, "--", *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | dict.fromkeys(names, str(count)) | _SHORT_SPIN,
            )
        with worker, _spinning(busy):
            for line in worker.stdout or ():
                yield count, json.loads(line)
            said = (worker.stderr.read().strip() if worker.stderr else "") or "no message"
        if worker.returncode:
            ended = f"ended with {worker.returncode}: {said.splitlines()[-1]}"
            msg = f"the process that measures on {count} threads {ended}"
            raise MemdescError(msg)


def missing_peers(peers: Sequence[str]) -> list[str]:
    """Return those peers that are not installed."""
    found: dict[str, Callable[[], object]] = {"onednn": find_libraries, "mkl": mkl_library}
    return [peer for peer in peers if not found.get(peer, partial(_is_installed, peer))()]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # a module in sys.modules without a spec
        return False


def _groups(peers: Sequence[str]) -> list[list[str]]:
    """Return which peers are measured together."""
    others = [peer for peer in peers if peer != "onednn"]
    versions = [f"onednn {version}" for version in find_libraries()] if "onednn" in peers else []
    return [[*others, *versions[:1]], *([version] for version in versions[1:])]


@contextmanager
def _spinning(count: int) -> Iterator[None]:
    """Run processes that spin."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


@contextmanager
def _cores(count: int) -> Iterator[None]:
    """Let a child that starts meanwhile see `count` cores: some libraries read nothing else."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(cores)[:count]))
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
