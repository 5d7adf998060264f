"""A piece, executed on two files: its bytes are read, reordered and written.

Nothing is mapped: a file that somebody shortens ends in an error, not in a signal.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from io import FileIO
from threading import local
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memdesc import MemdescError
from memdesc.disk import open_file, reason_of
from reorder.api import prepare
from reorder.plan.plan import plan_reorder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from reorder.storage.pieces.pieces import Piece
    from reorder.storage.pieces.runs import Runs

__all__ = [
    "Place",
    "move_piece",
    "open_to_read",
    "open_to_write",
    "read_runs",
    "scratch",
    "write_runs",
]

# Buffers of a thread start at a page, which is what every element type and instruction wants.
_PAGE = 4096
# Buffers of more bytes are given back after each piece.
_KEPT = 256 << 20


class Place(NamedTuple):
    """Where a tensor is: a file, its first byte there, and its bytes."""

    path: Path
    start: int
    nbytes: int


class _Scratch(local):
    """Bytes of a thread that are used again: fresh memory costs a page fault for each page."""

    def __init__(self) -> None:
        self.held: dict[str, NDArray[np.uint8]] = {}

    def take(self, name: str, nbytes: int) -> NDArray[np.uint8]:
        """Return bytes that hold anything; many are not kept."""
        if nbytes > _KEPT:
            return np.empty(nbytes, np.uint8)
        held = self.held.get(name)
        if held is None or held.nbytes < nbytes:
            self.held.pop(name, None)
            fresh = np.empty(nbytes + _PAGE, np.uint8)
            held = self.held[name] = fresh[-fresh.ctypes.data % _PAGE :]
        return held[:nbytes]


scratch = _Scratch()


def move_piece(piece: Piece, src: Place, dst: Place, threads: int | None = None) -> int:
    """Read a piece, reorder it, and write it; returns how many bytes were written.

    It may run again, with the same result: it writes the same bytes to the same places.

    Parameters
    ----------
    piece : Piece
        From `cut`.
    src, dst : Place
        The tensors; the file that is written exists, and keeps all other bytes.
    threads : int, optional
        As for `reorder`.

    Raises
    ------
    MemdescError
        If a file cannot be read or written, or src has become shorter.
    """
    read = scratch.take("src 0", max(piece.reads.nbytes, piece.src.min_nbytes))
    with open_to_read(src.path) as file:
        read_runs(file, piece.reads, src, read)
    written = scratch.take("dst 0", max(piece.writes.nbytes, piece.dst.min_nbytes))
    if not piece.dst.is_dense or piece.dst.dtype.is_packed:
        written[:] = 0  # gaps, and the half of a last byte
    prepare(plan_reorder(piece.src, piece.dst, piece.attr), threads)(read, written)
    with open_to_write(dst.path) as file:
        write_runs(file, piece.writes, dst, written)
    return piece.writes.nbytes


@contextmanager
def open_to_read(path: Path) -> Iterator[FileIO]:
    """Open a regular file for reading, without a buffer; errors are those of `open_file`."""
    with open_file(path) as file, FileIO(file.fileno(), closefd=False) as raw:
        yield raw


@contextmanager
def open_to_write(path: Path) -> Iterator[FileIO]:
    """Open a file that exists, to write parts of it; what goes wrong is a MemdescError."""
    try:
        with FileIO(path, "r+") as file:
            yield file
    except OSError as error:
        msg = f"{str(path)!r} cannot be written: {reason_of(error)}"
        raise MemdescError(msg) from None


def read_runs(file: FileIO, runs: Runs, place: Place, into: NDArray[np.uint8]) -> None:
    """Read runs of bytes, one behind the other, from a tensor in an open file.

    Raises
    ------
    MemdescError
        If the file ends before they do.
    """
    view = memoryview(into)  # type: ignore[arg-type] # arrays of bytes are buffers
    for k, start in enumerate(runs.starts()):
        # a run that is counted in full may end behind the last element of the tensor
        part = view[k * runs.length :][: min(runs.length, place.nbytes - start)]
        file.seek(place.start + start)
        while part:
            count = file.readinto(part)
            if not count:
                held = file.seek(0, os.SEEK_END)
                msg = (
                    f"{str(place.path)!r} has {held} bytes, but a tensor in it ends at byte "
                    f"{place.start + place.nbytes}; it was shortened meanwhile"
                )
                raise MemdescError(msg)
            part = part[count:]


def write_runs(file: FileIO, runs: Runs, place: Place, data: NDArray[np.uint8]) -> None:
    """Write runs of bytes that lie one behind the other into a tensor in an open file."""
    view = memoryview(data)  # type: ignore[arg-type] # likewise
    for k, start in enumerate(runs.starts()):
        part = view[k * runs.length :][: runs.length]
        file.seek(place.start + start)
        while part:
            part = part[file.write(part) :]
