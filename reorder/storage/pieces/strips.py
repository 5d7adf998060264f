"""Strips: a piece in parts that stay in the caches while they are read, reordered and written.

A side of a piece is streamed, strip by strip, where the bytes of each strip are long runs; else it
is held as a whole, and each strip reorders a part of it.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError, MemoryDesc
from reorder.storage.pieces.boxes import Bound, Tensor, boxes_within
from reorder.storage.pieces.pieces import Piece
from reorder.storage.pieces.runs import Part, Runs, compact, window

if TYPE_CHECKING:
    from memdesc import Layout
    from reorder.storage.pieces.runs import Box

__all__ = ["Strips", "strips_of"]

# Shorter runs are not worth a call of the system each.
_LONG = 64 << 10
# Which sides are held, source and target, in the order of preference.
_WAYS = ((False, False), (True, False), (False, True))
# Strips may be so many times as large, if that makes their runs long.
_FACTORS = (1, 4, 16)


class Strips(NamedTuple):
    """The strips of a piece.

    Attributes
    ----------
    parts : tuple of Piece
        Their runs count from the first byte of what the piece reads and writes.
    holds_src, holds_dst : bool
        Whether the piece is read before the first strip, and written after the last one.
    """

    parts: tuple[Piece, ...]
    holds_src: bool
    holds_dst: bool


def strips_of(piece: Piece, nbytes: int) -> Strips:
    """Cut a piece into strips of some bytes, read and written; it may be a single one.

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
    """Return strips; None if some of a side that is streamed are short runs."""
    ones = (1,) * whole.src.ndims
    src, dst = (Part(desc.layout, desc.dtype.bits, ones) for desc in (whole.src, whole.dst))
    tensors = (
        Tensor((src,), is_written=False, is_held=holds_src),
        Tensor((dst,), is_written=True, is_held=holds_dst),
    )
    try:
        boxes = boxes_within(whole.src.dims, tensors, ones, Bound(nbytes, whole.nbytes), "a piece")
    except MemdescError:
        return None
    parts = []
    for box in boxes:
        read = _side(src, box, is_held=holds_src, is_written=False)
        written = _side(dst, box, is_held=holds_dst, is_written=True)
        if read is None or written is None:
            return None
        descs = MemoryDesc(whole.src.dtype, read[1]), MemoryDesc(whole.dst.dtype, written[1])
        parts.append(Piece(*descs, read[0], written[0], whole.attr))
    return tuple(parts)


def _side(part: Part, box: Box, *, is_held: bool, is_written: bool) -> tuple[Runs, Layout] | None:
    """Return where a strip is in the bytes of its piece, and its layout there."""
    if is_held:
        return window(part, box)
    found = compact((part,), box, is_written=is_written)
    if found is None or (found[0].number > 1 and found[0].length < _LONG):
        return None
    return found[0], found[1][0]
