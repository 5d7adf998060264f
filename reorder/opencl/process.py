"""Whether this process may use OpenCL: a forked child may not if its parent did.

A runtime's threads do not exist in a forked child, and its locks may be held: most calls would
wait for ever. The parent may have used OpenCL without this library, but then a runtime is loaded.
"""

from __future__ import annotations

import ctypes
import os

from memdesc import MemdescError
from reorder.forks import at_fork
from reorder.opencl.icds import libraries


class _State:
    # whether this process has used OpenCL through this library
    uses_opencl = False
    # whether the process that was forked, or one before it, had used OpenCL
    is_parent_used = False
    is_forbidden = False


state = _State()


def check_process() -> None:
    """Refuse OpenCL in a child of a process that had used it; otherwise record that it is used."""
    if state.is_forbidden:
        raise MemdescError(
            "this process was forked from one that had used OpenCL, whose runtimes do not work in "
            "a forked child; start it with multiprocessing.get_context('spawn'), or fork before "
            "OpenCL is used"
        )
    state.uses_opencl = True


def _is_loaded(library: str) -> bool:
    """Whether a library is in the memory of this process; it is not loaded."""
    try:
        ctypes.CDLL(library, mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _before_fork() -> None:
    state.is_parent_used = state.uses_opencl or any(map(_is_loaded, libraries()))


def _in_child() -> None:
    state.is_forbidden = state.is_forbidden or state.is_parent_used


if hasattr(os, "fork"):
    at_fork(_before_fork, lambda: None, _in_child)
