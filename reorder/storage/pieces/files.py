"""Read runs of bytes from files, and write them.

Nothing is mapped, so a file that somebody shortens raises an error instead of a signal.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, cast

from memdesc import MemdescError
from memdesc.disk import open_file, read_at, reason_of, write_at
from reorder.system import system_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from reorder.storage.pieces.runs import Runs

__all__ = ["Place", "open_to_read", "open_to_write", "read_runs", "write_runs"]

_PAGE = 4096
# The most that one call writes. Linux allocates page cache in blocks as long as the call: it finds
# small ones in memory used before, while large ones may be new even to the host of a virtual
# machine, where they took 6 times as long.
_MOST_WRITTEN = 256 << 10
# a file that grows is neither a link nor a pipe
_WRITE = os.O_WRONLY | sum(
    getattr(os, f"O_{flag}", 0) for flag in ("BINARY", "NOFOLLOW", "NONBLOCK")
)
# what Linux calls SYNC_FILE_RANGE_WRITE
_START_WRITING = 2


class Place(NamedTuple):
    """Where a tensor is: a file, the offset of its first byte there, and its size in bytes."""

    path: Path
    start: int
    nbytes: int


@contextmanager
def open_to_read(path: Path) -> Iterator[int]:
    """Open a regular file for reading; errors are those of `open_file`."""
    with open_file(path) as file:
        yield file.fileno()


@contextmanager
def open_to_write(path: Path) -> Iterator[int]:
    """Open a file that exists, to write parts of it.

    Raises
    ------
    MemdescError
        If that fails.
    """
    try:
        handle = os.open(path, _WRITE)
    except OSError as error:
        raise _cannot(path, "written", error) from None
    try:
        yield handle
    finally:
        os.close(handle)


def read_runs(handle: int, runs: Runs, place: Place, into: NDArray[np.uint8]) -> None:
    """Read runs of bytes of a tensor in an open file, and store them back to back.

    Raises
    ------
    MemdescError
        If reading fails, or the file ends before the runs do.
    """
    view = memoryview(into)  # type: ignore[arg-type] # arrays of bytes are buffers
    for k, start in enumerate(runs.starts()):
        # the last run may be counted beyond the last element of the tensor
        part = view[k * runs.length :][: min(runs.length, place.nbytes - start)]
        at = place.start + start
        while part:
            try:
                count = read_at(handle, part, at)
            except OSError as error:
                raise _cannot(place.path, "read", error) from None
            if not count:
                msg = (
                    f"{str(place.path)!r} has {os.fstat(handle).st_size} bytes, but a tensor in it "
                    f"ends at byte {place.start + place.nbytes}; it was shortened meanwhile"
                )
                raise MemdescError(msg)
            part, at = part[count:], at + count


def write_runs(handle: int, runs: Runs, place: Place, data: NDArray[np.uint8]) -> None:
    """Write bytes that lie back to back to runs of a tensor in an open file.

    The system starts to bring long runs to the disk at once, while the caller goes on.

    Raises
    ------
    MemdescError
        If writing fails.
    """
    view = memoryview(data)  # type: ignore[arg-type] # likewise
    for k, start in enumerate(runs.starts()):
        part = view[k * runs.length :][: runs.length]
        at = place.start + start
        try:
            while part:
                count = write_at(handle, part[:_MOST_WRITTEN], at)
                part, at = part[count:], at + count
        except OSError as error:
            raise _cannot(place.path, "written", error) from None
        if runs.length >= _MOST_WRITTEN:
            _start_writing(handle, at - runs.length, at)


def _start_writing(handle: int, start: int, stop: int) -> None:
    """Start writing the whole pages of a range to the disk, so that a later fsync is short."""
    first, last = -(-start // _PAGE) * _PAGE, stop // _PAGE * _PAGE
    start_writing = _sync_file_range()
    if start_writing is not None and first < last:
        start_writing(handle, first, last - first, _START_WRITING)  # a hint: errors come by fsync


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return the function of Linux; None on other systems."""
    found = system_function("sync_file_range")
    if found is not None:
        found.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
        found.restype = ctypes.c_int
    return cast("Callable[[int, int, int, int], int] | None", found)


def _cannot(path: Path, what: str, error: OSError) -> MemdescError:
    return MemdescError(f"{str(path)!r} cannot be {what}: {reason_of(error)}")
