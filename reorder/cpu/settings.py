"""The environment variables that steer compiling and threads; no other module reads them.

Those named after numba have its meaning, so that one setting serves a process that uses numba too.
"""

import os


def thread_limit() -> int | None:
    """Return the largest number of threads of a reorder; None without a limit."""
    number = os.environ.get("NUMBA_NUM_THREADS", "")
    return max(1, int(number)) if number.isascii() and number.isdigit() else None


def uses_openmp() -> bool:
    """Whether jobs run in parallel regions of an OpenMP runtime that the process has loaded."""
    return os.environ.get("MEMDESC_OPENMP") == "1"


def kernel_folder() -> str | None:
    """Return the folder for compiled code; None for the usual ones."""
    return os.environ.get("NUMBA_CACHE_DIR") or None
