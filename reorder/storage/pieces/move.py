"""A piece, executed on two files: its bytes are read, reordered and written, strip by strip."""

from __future__ import annotations

from functools import lru_cache
from threading import local
from typing import TYPE_CHECKING

import numpy as np

from reorder.api import prepare
from reorder.plan.plan import plan_reorder
from reorder.storage.pieces.files import open_to_read, open_to_write, read_runs, write_runs
from reorder.storage.pieces.runs import Runs
from reorder.storage.pieces.strips import strips_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import MemoryDesc
    from reorder.storage.pieces.files import Place
    from reorder.storage.pieces.pieces import Piece

__all__ = ["copy_run", "move_piece", "scratch"]

_BYTE_BITS = 8
# Buffers of a thread start at a page, which is what every element type and instruction wants.
_PAGE = 4096
# Buffers of more bytes are given back after each piece.
_KEPT = 256 << 20
# What is read and written at a time: it stays in the cache of a core.
_STRIP = 2 << 20


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


def move_piece(
    piece: Piece, src: Place, dst: Place, threads: int | None = None, strip_bytes: int = _STRIP
) -> int:
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
    strip_bytes : int, optional
        What is read and written at a time, where that is possible.

    Raises
    ------
    MemdescError
        If a file cannot be read or written, or src has become shorter.
    """
    parts, holds_src, holds_dst = strips_of(piece, strip_bytes)
    with open_to_read(src.path) as source, open_to_write(dst.path) as target:
        if holds_src:
            read = scratch.take("src 0", max(piece.reads.nbytes, piece.src.min_nbytes))
            read_runs(source, piece.reads, src, read)
        if holds_dst:
            written = _target(piece.writes.nbytes, piece.dst)
        for part in parts:
            reads, writes = part.reads, part.writes
            if holds_src:
                given = read[reads.start :]
            else:
                given = scratch.take("src 0", max(reads.nbytes, part.src.min_nbytes))
                read_runs(source, reads.after(piece.reads.start), src, given)
            made = written[writes.start :] if holds_dst else _target(writes.nbytes, part.dst)
            prepare(plan_reorder(part.src, part.dst, part.attr), threads)(given, made)
            if not holds_dst:
                write_runs(target, writes.after(piece.writes.start), dst, made)
        if holds_dst:
            write_runs(target, piece.writes, dst, written)
    return piece.writes.nbytes


def copy_run(run: Runs, src: Place, dst: Place) -> None:
    """Copy one run of bytes from a place to the same bytes of another.

    Raises
    ------
    MemdescError
        As for `move_piece`.
    """
    step = _STRIP // 2
    data = scratch.take("src 0", min(step, run.nbytes))
    with open_to_read(src.path) as source, open_to_write(dst.path) as target:
        for at in range(run.start, run.start + run.length, step):
            part = Runs(at, min(step, run.start + run.length - at))
            read_runs(source, part, src, data)
            write_runs(target, part, dst, data)


def _target(nbytes: int, desc: MemoryDesc) -> NDArray[np.uint8]:
    """Return bytes for what is written: zeros where elements do not fill them."""
    written = scratch.take("dst 0", max(nbytes, desc.min_nbytes))
    if _has_gaps(desc):
        written[:] = 0
    return written


@lru_cache(maxsize=64)
def _has_gaps(desc: MemoryDesc) -> bool:
    """Whether a reorder leaves bits as they were: gaps, or the half of a last byte."""
    return not desc.is_dense or bool(desc.padded_nelems * desc.dtype.bits % _BYTE_BITS)
