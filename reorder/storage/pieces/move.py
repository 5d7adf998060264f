"""Execute a piece on two files: read, reorder and write it, strip by strip.

A strip stays cached while it is read, reordered and written. A side of a piece is streamed strip by
strip if the bytes of each strip are long runs; otherwise the whole side is held in memory, and each
strip reorders a part of it.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from threading import local
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memdesc import MemdescError, MemoryDesc
from reorder.api import prepare
from reorder.plan.plan import plan_reorder
from reorder.storage.pieces.files import open_to_read, open_to_write, read_runs, write_runs
from reorder.storage.pieces.pieces import Piece
from reorder.storage.pieces.regions import Bound, Cut, Operand, sizes_within
from reorder.storage.pieces.runs import FieldLayout, Region, Runs, compact, window

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import Layout
    from reorder.storage.pieces.files import Place

__all__ = ["Strips", "copy_run", "move_piece", "scratch", "strips_of"]

_BYTE_BITS = 8
# Buffers of a thread start at a page, which suits every element type and instruction.
_PAGE = 4096
# Larger buffers are freed after each piece.
_KEPT = 256 << 20
# Bytes that are read and written at a time, so that they stay in the cache of a core.
_STRIP = 2 << 20
# Shorter runs are not worth a system call each.
_LONG = 64 << 10
# Whether source and target are held, in order of preference.
_WAYS = ((False, False), (True, False), (False, True))
# How many times as large strips may be if that makes their runs long.
_FACTORS = (1, 4, 16)


class _Scratch(local):
    """Buffers that a thread reuses: fresh memory costs a page fault for each page."""

    def __init__(self) -> None:
        self.held: dict[str, NDArray[np.uint8]] = {}

    def take(self, name: str, nbytes: int) -> NDArray[np.uint8]:
        """Return uninitialised bytes; large buffers are not kept."""
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
) -> None:
    """Read a piece, reorder it, and write it.

    Running it again writes the same bytes to the same places.

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


class Strips(NamedTuple):
    """The strips of a piece.

    Attributes
    ----------
    parts : tuple of Piece
        Their runs start at the first byte that the piece reads or writes.
    holds_src, holds_dst : bool
        Whether the piece is read before the first strip, and written after the last one.
    """

    parts: tuple[Piece, ...]
    holds_src: bool
    holds_dst: bool


def strips_of(piece: Piece, nbytes: int) -> Strips:
    """Cut a piece into strips that read and write about so many bytes; it may be a single one.

    *Law*: the strips write what the piece writes.
    """
    whole = piece._replace(
        reads=Runs(0, piece.reads.nbytes), writes=Runs(0, piece.writes.nbytes), offsets=()
    )
    if (
        piece.nbytes <= nbytes
        or piece.src.extra is not None
        or piece.dst.extra is not None
        or (piece.attr is not None and any(each.mask for each in piece.attr.parameters))
    ):
        return Strips((whole,), holds_src=True, holds_dst=True)
    return _strips(whole, piece.reads.number == 1, piece.writes.number == 1, nbytes)


@lru_cache(maxsize=64)  # pieces are alike
def _strips(whole: Piece, reads_one: bool, writes_one: bool, nbytes: int) -> Strips:  # noqa: FBT001 - a key
    for (holds_src, holds_dst), factor in product(_WAYS, _FACTORS):
        if (holds_src or reads_one) and (holds_dst or writes_one):
            parts = _parts(whole, holds_src, holds_dst, factor * nbytes)
            if parts is not None:
                return Strips(parts, holds_src, holds_dst)
    return Strips((whole,), holds_src=True, holds_dst=True)


def _parts(whole: Piece, holds_src: bool, holds_dst: bool, nbytes: int) -> tuple[Piece, ...] | None:  # noqa: FBT001 - one of `_WAYS`
    """Return strips; None if some runs of a streamed side would be short."""
    src, dst = FieldLayout.of(whole.src), FieldLayout.of(whole.dst)
    operands = (
        Operand((src,), is_written=False, is_held=holds_src),
        Operand((dst,), is_written=True, is_held=holds_dst),
    )
    dims, ones = whole.src.dims, (1,) * whole.src.ndims
    try:
        sizes = sizes_within(dims, operands, ones, Bound(nbytes, whole.nbytes), "a piece")
    except MemdescError:
        return None
    parts = []
    for region in Cut(dims, sizes, lambda region: region):
        read = _side(src, region, is_held=holds_src, is_written=False)
        written = _side(dst, region, is_held=holds_dst, is_written=True)
        if read is None or written is None:
            return None
        descs = MemoryDesc(whole.src.dtype, read[1]), MemoryDesc(whole.dst.dtype, written[1])
        parts.append(Piece(*descs, read[0], written[0], whole.attr))
    return tuple(parts)


def _side(
    field: FieldLayout, region: Region, *, is_held: bool, is_written: bool
) -> tuple[Runs, Layout] | None:
    """Return where a strip lies in the bytes of its piece, and its layout there."""
    if is_held:
        return window(field, region)
    found = compact((field,), region, is_written=is_written)
    if found is None or (found[0].number > 1 and found[0].length < _LONG):
        return None
    return found[0], found[1][0]


def _target(nbytes: int, desc: MemoryDesc) -> NDArray[np.uint8]:
    """Return a buffer for what is written, zeroed if its elements leave gaps."""
    written = scratch.take("dst 0", max(nbytes, desc.min_nbytes))
    if _has_gaps(desc):
        written[:] = 0
    return written


@lru_cache(maxsize=64)
def _has_gaps(desc: MemoryDesc) -> bool:
    """Whether a reorder leaves bits untouched: gaps, or half of the last byte."""
    return not desc.is_dense or bool(desc.padded_nelems * desc.dtype.bits % _BYTE_BITS)
