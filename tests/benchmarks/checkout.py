"""Checkouts of this project as processes: workers that time reorders, and the times of starts."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple, Self

_PROGRAM = Path(__file__).with_name("timing_worker.py")
# How often imports and first calls are timed; the first of them with an empty cache.
_STARTS = 5
_COLD_STARTS = 2

_IMPORT = """
from time import perf_counter
start = perf_counter()
import memdesc, reorder
print(perf_counter() - start)
"""
_FIRST_CALLS = """
from time import perf_counter
import numpy as np
import reorder
x = np.ones((1, 64, 56, 56), np.float32)
start = perf_counter()
reorder.reorder(x, "nChw16c")
moved = perf_counter()
reorder.reorder(x, "nChw16c", dtype="s8", attr=reorder.Attr(dst_scale=0.5))
print(moved - start, perf_counter() - moved)
"""


class Checkout(NamedTuple):
    """A folder that holds the library, and the Python that runs it."""

    folder: Path
    python: str

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Start this Python so that it imports from this folder and from no other checkout."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder), **variables}
        return subprocess.Popen(
            [self.python, "-P", *arguments],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def numbers(self, program: str, **variables: str) -> list[float]:
        """Run a program, and return the numbers that it prints."""
        with self.start("-c", program, **variables) as process:
            printed, _ = process.communicate()
        if process.returncode:
            msg = f"{self.python} in {self.folder} ended with {process.returncode}"
            raise RuntimeError(msg)
        return [float(number) for number in printed.split()]


class Worker:
    """A process that times reorders of one checkout."""

    def __init__(self, checkout: Checkout) -> None:
        self.checkout = checkout
        self.process = checkout.start(str(_PROGRAM))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def check_origin(self) -> None:
        """Refuse a library that was imported from elsewhere."""
        found = self._read()
        for name in ("memdesc", "reorder"):
            if not Path(found[name]).is_relative_to(self.checkout.folder):
                msg = f"{name} of {self.checkout.folder} was imported from {found[name]}"
                raise RuntimeError(msg)

    def ask(self, **request: object) -> float:
        """Send a request, and return the seconds of one call."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise ValueError(answer["error"])
        return float(answer["seconds"])

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            msg = f"the worker {self.process.args!r} ended with {self.process.wait()}"
            raise RuntimeError(msg)
        found: dict[str, Any] = json.loads(line)
        return found


def compare_starts(checkouts: tuple[Checkout, Checkout]) -> dict[str, tuple[float, float]]:
    """Return the least seconds of imports and first calls, of the old and the new checkout."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(_STARTS):
            for k in (0, 1) if number % 2 == 0 else (1, 0):
                empty = number < _COLD_STARTS
                # the caches that the cold starts fill serve the warm ones
                cache = Path(folder) / f"{k}-{number if empty else 0}"
                kind = "empty cache" if empty else "full cache"
                calls = checkouts[k].numbers(_FIRST_CALLS, NUMBA_CACHE_DIR=str(cache))
                imports = checkouts[k].numbers(_IMPORT, NUMBA_CACHE_DIR=str(cache))
                names = (f"first reorder, {kind}", f"first conversion, {kind}", "import")
                for name, value in zip(names, [*calls, *imports], strict=True):
                    found.setdefault(name, ([], []))[k].append(value)
    return {name: (min(old), min(new)) for name, (old, new) in found.items()}
