"""The real OpenMP runtimes that tests load, and parallel regions of them."""

import ctypes
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path
from site import getsitepackages
from typing import Any

from reorder.cpu.runtime.jit import compiled_at
from tests.machine import assuming


def _intel() -> list[str]:
    """Return the path of Intel's runtime, which comes with the oneDNN of the test extra."""
    folders = [Path(folder).parents[1] for folder in getsitepackages()]
    return [str(path) for folder in folders for path in folder.glob("libiomp5.so")]


# GNU's and Intel's; `.ci/run` installs the first, and the test extra brings the second.
RUNTIMES = [*filter(None, [find_library("gomp")]), *_intel()]


def environment_of(**settings: str) -> dict[str, str]:
    """Return settings with which two threads are used, and OpenMP's spin between regions."""
    return {
        # so that there is something to share on any machine
        **assuming(cores="2"),
        "OMP_NUM_THREADS": "2",
        "OMP_WAIT_POLICY": "active",
        **settings,
    }


def _nothing(_data: int) -> None:
    pass


class OpenMP:
    """A runtime that is loaded into this process."""

    def __init__(self, library: str) -> None:
        self.library: Any = ctypes.CDLL(library)
        self._nothing = compiled_at(_nothing, "nothing")

    def region(self, address: int = 0, threads: int = 0) -> None:
        """Run a function on threads of the runtime, by default one that does nothing on all."""
        self.library.GOMP_parallel(ctypes.c_void_p(address or self._nothing), None, threads, 0)

    def region_of(self, function: Callable[[], Any]) -> None:
        """Run a function of Python on each thread of a region."""
        called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: function())
        self.region(ctypes.cast(called, ctypes.c_void_p).value or 0)
