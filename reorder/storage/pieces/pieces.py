"""Pieces: a reorder between two files, cut into values that move alone, in bounded memory.

A piece says which bytes it reads and writes and how they lie. Pieces of one reorder write different
bytes, so they run in any order, on any machine that has the files, and again after a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError, MemoryDesc
from reorder.plan.plan import plan_reorder
from reorder.storage.pieces.attributes import attr_of_box
from reorder.storage.pieces.boxes import boxes_within
from reorder.storage.pieces.runs import Runs, compact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.values.attr import Attr

__all__ = ["Piece", "cut"]


class Piece(NamedTuple):
    """A part of a reorder: a box of the tensor.

    Attributes
    ----------
    src, dst : MemoryDesc
        The box in the bytes that are read, and in those that are written.
    reads, writes : Runs
        Where these bytes are in the two tensors.
    attr : Attr or None
        The attributes of its elements.
    """

    src: MemoryDesc
    dst: MemoryDesc
    reads: Runs
    writes: Runs
    attr: Attr | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that it needs in memory: what it reads and what it writes."""
        return self.reads.nbytes + self.writes.nbytes


def cut(
    src: MemoryDesc, dst: MemoryDesc, attr: Attr | None = None, *, max_bytes: int
) -> Iterator[Piece]:
    """Cut a reorder along whole blocks of both layouts into pieces of bounded size.

    *Law*: the pieces write each byte of dst that a reorder writes, once, with the same value.

    Parameters
    ----------
    src, dst : MemoryDesc
        Of the same dims.
    attr : Attr, optional
        Scales and zero points, but no accumulation: a piece may run twice.
    max_bytes : int
        What a piece may read and write, together.

    Raises
    ------
    MemdescError
        If there is no such reorder, or blocks are so large that no piece fits; before the first
        piece.

    Examples
    --------
    >>> import memdesc
    >>> from reorder.storage.pieces.pieces import cut
    >>> src, dst = (memdesc.memory_desc((64, 6), "f32", tag) for tag in ("ab", "Ab16a"))
    >>> for piece in cut(src, dst, max_bytes=1600):
    ...     print(piece.src.dims, piece.dst, piece.reads.start, piece.writes.start)
    (32, 6) memory_desc((32, 6), 'f32', 'Ab16a') 0 0
    (32, 6) memory_desc((32, 6), 'f32', 'Ab16a') 768 768
    """
    plan = plan_reorder(src, dst, attr)
    if plan.bound_attr.beta:
        msg = f"beta {plan.bound_attr.beta} adds to what dst holds; pieces are written, not added"
        raise MemdescError(msg)
    boxes = boxes_within(src, dst, attr, max_bytes) if dst.nelems else iter(())
    return (_piece(src, dst, attr_of_box(plan, *box), box) for box in boxes)


def _piece(
    src: MemoryDesc,
    dst: MemoryDesc,
    attr: Attr | None,
    box: tuple[tuple[int, ...], tuple[int, ...]],
) -> Piece:
    is_all = box[0] == dst.dims
    sides = (src, dst) if is_all else (src.submemory(*box), dst.submemory(*box))
    read = compact(sides[0], is_written=False)
    written = compact(sides[1], is_written=not is_all)
    if read is None or written is None:
        msg = f"{src!r} to {dst!r}: the box of {box[0]} at {box[1]} does not start at a whole byte"
        raise MemdescError(msg)
    return Piece(read[1], written[1], read[0], written[0], attr)
