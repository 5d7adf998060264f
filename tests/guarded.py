"""Buffers whose end, or whose start, is next to inaccessible memory.

A read or a write outside of such a buffer ends the process, so a test that passes
has not made one. What lies between the buffer and the other edge holds a pattern
that `is_intact` looks for.
"""

import ctypes
import mmap

import numpy as np
from numpy.typing import NDArray

POISON = 0xA5
_PAGE = mmap.PAGESIZE
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_PROT_NONE = 0


class Guarded:
    """Pages of memory between two that are inaccessible; never given back.

    Parameters
    ----------
    nbytes : int
        How large the largest buffer will be.
    """

    def __init__(self, nbytes: int) -> None:
        self._size = -(-max(nbytes, 1) // _PAGE) * _PAGE
        start = _libc.mmap(None, self._size + 2 * _PAGE, _PROT_NONE, _PRIVATE, -1, 0)
        if start in {None, ctypes.c_void_p(-1).value}:
            raise OSError(ctypes.get_errno(), "mmap")
        self._start = start + _PAGE
        self._protect(mmap.PROT_READ | mmap.PROT_WRITE)
        self._pages: NDArray[np.uint8] = np.ctypeslib.as_array(
            (ctypes.c_uint8 * self._size).from_address(self._start)
        )
        self._used = slice(0, 0)

    def _protect(self, protection: int) -> None:
        if _libc.mprotect(self._start, self._size, protection):
            raise OSError(ctypes.get_errno(), "mprotect")

    def buffer(self, content: NDArray[np.uint8], *, at_end: bool) -> NDArray[np.uint8]:
        """Return a copy of some bytes that ends, or else starts, at the inaccessible page."""
        size = content.size
        assert size <= self._size
        self._protect(mmap.PROT_READ | mmap.PROT_WRITE)
        self._pages[:] = POISON
        self._used = slice(self._size - size, self._size) if at_end else slice(0, size)
        self._pages[self._used] = content
        used: NDArray[np.uint8] = self._pages[self._used]
        return used

    def forbid_writes(self) -> None:
        """Make writes into the buffer end the process, until the next one is asked for."""
        self._protect(mmap.PROT_READ)

    def is_intact(self) -> bool:
        """Whether all bytes around the buffer are unchanged."""
        return bool(
            (self._pages[: self._used.start] == POISON).all()
            and (self._pages[self._used.stop :] == POISON).all()
        )
