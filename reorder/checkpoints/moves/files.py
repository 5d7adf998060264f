"""Read runs of bytes from files, and write them.

Files are not mapped into memory, so a file that somebody shortens is an error, not a signal.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from threading import Lock, local
from typing import TYPE_CHECKING, Any

import numpy as np

from memdesc import MemdescError
from reorder.disk import NO_LINK, cannot, open_file, read_at, write_at
from reorder.forks import at_fork
from reorder.system import system_function

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from reorder.checkpoints.formats.entry import Place
    from reorder.checkpoints.moves.pieces import Runs

_PAGE = 4096
# The most bytes that one call writes. Linux allocates page cache in blocks of the length of the
# call. It finds small blocks in memory that was used before, while large ones may be new even to
# the host of a virtual machine, where they took 6 times as long.
_MOST_WRITTEN = 256 << 10
# what Linux calls SYNC_FILE_RANGE_WRITE
_START_WRITING = 2
# the largest buffer that a thread keeps for its next piece
_MAX_KEPT = 256 << 20
# Runs shorter than this are read or written by one thread at a time. Each call releases the GIL and
# waits for it again: 16 threads that did so at once took twice as long as one after another.
_SHORT_RUN = 64 << 10
_turn = Lock()
at_fork(_turn.acquire, _turn.release, _turn.release)


def _turn_for(runs: Runs) -> AbstractContextManager[object]:
    return _turn if runs.length < _SHORT_RUN and runs.number > 1 else nullcontext()


class _Scratch(local):
    """Buffers that a thread reuses: fresh memory costs a page fault for each page."""

    def __init__(self) -> None:
        self.held: dict[str, NDArray[np.uint8]] = {}

    def take(self, name: str, nbytes: int) -> NDArray[np.uint8]:
        """Return uninitialised bytes at the start of a page; large buffers are not kept."""
        if nbytes > _MAX_KEPT:
            return np.empty(nbytes, np.uint8)
        held = self.held.get(name)
        if held is None or held.nbytes < nbytes:
            self.held.pop(name, None)
            fresh = np.empty(nbytes + _PAGE, np.uint8)
            held = self.held[name] = fresh[-fresh.ctypes.data % _PAGE :]
        return held[:nbytes]

    def clear(self) -> None:
        """Free all buffers of the thread."""
        self.held.clear()


scratch = _Scratch()


@contextmanager
def _open_to_write(path: Path) -> Iterator[int]:
    """Open a file that exists, to write parts of it."""
    try:
        handle = os.open(path, os.O_WRONLY | NO_LINK)
        try:
            yield handle
        finally:
            os.close(handle)
    except OSError as error:
        raise cannot(path, "written", error) from None


def read_runs(runs: Runs, place: Place, into: NDArray[np.uint8]) -> None:
    """Read runs of bytes of a tensor, and store them back to back; refuse a file that is short."""
    view = memoryview(into)  # type: ignore[arg-type] # arrays of bytes are buffers
    with open_file(place.path) as file, _turn_for(runs):
        handle = file.fileno()
        for k, start in enumerate(runs.starts()):
            # the last run may be counted beyond the last element of the tensor
            part = view[k * runs.length :][: min(runs.length, place.nbytes - start)]
            for at, size in place.spans(start, len(part)):
                _read_span(handle, at, part[:size], place)
                part = part[size:]


def _read_span(handle: int, at: int, part: memoryview, place: Place) -> None:
    """Read bytes of a tensor that follow each other in its file."""
    while part:
        count = read_at(handle, part, at)
        if not count:
            raise MemdescError(
                f"{str(place.path)!r} has {os.fstat(handle).st_size} bytes, but a tensor in it "
                f"ends at byte {place.start + place.nbytes}; it was shortened after it was opened"
            )
        part, at = part[count:], at + count


def write_runs(runs: Runs, place: Place, data: NDArray[np.uint8]) -> None:
    """Write bytes that are back to back to runs of a tensor; its file exists."""
    view = memoryview(data)  # type: ignore[arg-type] # arrays of bytes are buffers
    with _open_to_write(place.path) as handle, _turn_for(runs):
        for k, start in enumerate(runs.starts()):
            at = place.start + start
            write_at(handle, view[k * runs.length :][: runs.length], at, _MOST_WRITTEN)
            if runs.length >= _MOST_WRITTEN:
                _start_writing(handle, at, at + runs.length)


def _start_writing(handle: int, start: int, stop: int) -> None:
    """Start writing the whole pages of a range to the disk, so that a later fsync is short."""
    first, last = -(-start // _PAGE) * _PAGE, stop // _PAGE * _PAGE
    start_writing = _sync_file_range()
    if start_writing is not None and first < last:
        start_writing(handle, first, last - first, _START_WRITING)  # a hint: errors come by fsync


@cache
def _sync_file_range() -> Any:
    """Return the function `sync_file_range` of Linux; None on other systems."""
    offset = ctypes.c_int64
    return system_function("sync_file_range", ctypes.c_int, offset, offset, ctypes.c_uint)
