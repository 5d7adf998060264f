"""Whether a memory object is still one: runtimes read freed memory when asked about a released one.

pyopencl does not say whether an object was released. Every OpenCL object starts with the
address of its runtime's dispatch table (OpenCL extension cl_khr_icd), so the first word of
a live one equals that of another live one of the same context. It is read through the
kernel's view of the process, where a bad address is an error and no crash. Elsewhere than
on Linux nothing is checked.
"""

from __future__ import annotations

import os
import sys
from functools import cache

import pyopencl as cl
from pyopencl.tools import first_arg_dependent_memoize

from memdesc import MemdescError

__all__ = ["check_alive"]

_WORD = 8


def check_alive(context: cl.Context, memory: cl.MemoryObjectHolder, side: str) -> None:
    """Refuse a released buffer or image.

    Raises
    ------
    MemdescError
        With the side.
    """
    expected = _table_of(context)
    if expected is not None and _first_word(memory.int_ptr) != expected:
        kind = "an Image" if isinstance(memory, cl.Image) else "a Buffer"
        msg = f"{side} is {kind} that was released; nothing can be read from it or written to it"
        raise MemdescError(msg)


@first_arg_dependent_memoize
def _table_of(context: cl.Context) -> bytes | None:
    """Return the first word of a live memory object of a context."""
    probe = cl.Buffer(context, cl.mem_flags.READ_WRITE, _WORD)
    try:
        return _first_word(probe.int_ptr)
    finally:
        probe.release()


def _first_word(address: int) -> bytes | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return os.pread(_own_memory(os.getpid()), _WORD, address)
    except OSError:
        return b""


@cache
def _own_memory(_process: int) -> int:
    # one for each process: a forked child must not look into its parent
    return os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
