"""Whether a memory object is still one: runtimes read freed memory when asked about a released one.

pyopencl does not say whether an object was released, but notes it: a byte in front of the
handle, which is read from the object itself where a trial has shown that it is there. For objects of other
classes (of pools, say) the first word of the memory that the handle leads to is read: every OpenCL object
starts with the address of its runtime's dispatch table (OpenCL extension cl_khr_icd), so that of
a live one equals that of another live one of the same context, and that of a released one seldom
does. All is read through the kernel's view of the process, where a bad address is an error and no crash.
Elsewhere than on Linux nothing is checked.
"""

from __future__ import annotations

import os
import sys
from functools import cache

import pyopencl as cl
from pyopencl.tools import first_arg_dependent_memoize

from memdesc import MemdescError

__all__ = ["check_alive", "released"]

_WORD = 8


def check_alive(context: cl.Context, memory: cl.MemoryObjectHolder, side: str) -> None:
    """Refuse a released buffer or image.

    Raises
    ------
    MemdescError
        With the side.
    """
    note = _note_of(memory) if isinstance(memory, cl.MemoryObject) and _has_notes(context) else None
    if note in {b"\0", b"\1"}:
        is_alive = note == b"\1"
    else:
        expected = _table_of(context)
        is_alive = expected is None or _read(memory.int_ptr, _WORD) == expected
    if not is_alive:
        raise released(memory, side)


def released(memory: cl.MemoryObjectHolder, side: str) -> MemdescError:
    """Return what is to be said of released memory, also where only the runtime knows: its place may hold another object already."""
    kind = "an Image" if isinstance(memory, cl.Image) else "a Buffer"
    return MemdescError(
        f"{side} is {kind} that was released; nothing can be read from it or written to it"
    )


def _note_of(memory: cl.MemoryObjectHolder) -> bytes | None:
    """Return the byte in front of the handle: in the object, or where it leads to."""
    head = _read(id(memory) + object.__basicsize__, _WORD)
    if not head:
        return None
    # nanobind's objects say how far from their start what they hold lies, or where its address does
    start = id(memory) + int.from_bytes(head[:4], sys.byteorder)
    for place in (start, int.from_bytes(_read(start, _WORD) or b"", sys.byteorder)):
        fields = _read(place, 3 * _WORD)
        if fields and int.from_bytes(fields[2 * _WORD :], sys.byteorder) == memory.int_ptr:
            return fields[_WORD : _WORD + 1]
    return None


@first_arg_dependent_memoize
def _has_notes(context: cl.Context) -> bool:
    """Whether a trial shows that the byte is what it is taken for."""
    probe = cl.Buffer(context, cl.mem_flags.READ_WRITE, _WORD)
    before = _note_of(probe)
    probe.release()
    return (before, _note_of(probe)) == (b"\1", b"\0")


@first_arg_dependent_memoize
def _table_of(context: cl.Context) -> bytes | None:
    """Return the first word of a live memory object of a context."""
    probe = cl.Buffer(context, cl.mem_flags.READ_WRITE, _WORD)
    try:
        return _read(probe.int_ptr, _WORD)
    finally:
        probe.release()


def _read(address: int, nbytes: int) -> bytes | None:
    """Return bytes of this process, fewer where there are none; None where nothing can be read so."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        return os.pread(_own_memory(os.getpid()), nbytes, address)
    except (OSError, OverflowError):
        return b""


@cache
def _own_memory(_process: int) -> int:
    # one for each process: a forked child must not look into its parent
    return os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
