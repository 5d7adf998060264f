"""Pieces: a reorder between two files, cut into values that move alone, in bounded memory.

A piece says which bytes it reads and writes and how they lie. Pieces of one reorder write different
bytes, so they run in any order, on any machine that has the files, and again after a failure.
"""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError, MemoryDesc
from reorder.plan.plan import plan_reorder
from reorder.storage.pieces.attributes import attr_of_box, groups_along
from reorder.storage.pieces.boxes import Bound, Tensor, boxes_within
from reorder.storage.pieces.runs import Part, Runs, compact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.storage.pieces.runs import Box
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
    offsets : tuple of int
        Where the box starts in the tensor.
    """

    src: MemoryDesc
    dst: MemoryDesc
    reads: Runs
    writes: Runs
    attr: Attr | None = None
    offsets: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes that it needs in memory: what it reads and what it writes."""
        return self.reads.nbytes + self.writes.nbytes


def cut(
    src: MemoryDesc,
    dst: MemoryDesc,
    attr: Attr | None = None,
    *,
    bound: Bound,
    units: tuple[int, ...] = (),
) -> Iterator[Piece]:
    """Cut a reorder along whole blocks of both layouts into pieces of bounded size.

    *Law*: the pieces write each byte of dst that a reorder writes, once, with the same value.

    Parameters
    ----------
    src, dst : MemoryDesc
        Of the same dims.
    attr : Attr, optional
        Scales and zero points, but no accumulation: a piece may run twice.
    bound : Bound
        What a piece may read and write together, and what it should where blocks allow that. Blocks
        that hold nothing but padding belong to the piece before them, and may exceed it.
    units : tuple of int, optional
        What sizes and offsets of boxes are multiples of, beside whole blocks.

    Raises
    ------
    MemdescError
        If there is no such reorder, a stride is negative, or blocks are so large that no piece
        fits; before the first piece.

    Examples
    --------
    >>> import memdesc
    >>> from reorder.storage.pieces.boxes import Bound
    >>> from reorder.storage.pieces.pieces import cut
    >>> src, dst = (memdesc.memory_desc((64, 6), "f32", tag) for tag in ("ab", "Ab16a"))
    >>> for piece in cut(src, dst, bound=Bound(1600, 1600)):
    ...     print(piece.src.dims, piece.dst, piece.reads.start, piece.writes.start)
    (32, 6) memory_desc((32, 6), 'f32', 'Ab16a') 0 0
    (32, 6) memory_desc((32, 6), 'f32', 'Ab16a') 768 768
    """
    plan = plan_reorder(src, dst, attr)
    if plan.bound_attr.beta:
        msg = f"beta {plan.bound_attr.beta} adds to what dst holds; pieces are written, not added"
        raise MemdescError(msg)
    if not dst.nelems:
        return iter(())
    for desc in (src, dst):
        _refuse_negative_strides(desc)
    given = units or (1,) * dst.ndims
    groups = groups_along(attr, dst.ndims)
    if src.extra is not None or dst.extra is not None:
        groups = dst.dims  # compensation belongs to all elements
    boxes = boxes_within(
        dst.dims,
        (Tensor((_part(src),), is_written=False), Tensor((_part(dst),), is_written=True)),
        tuple(map(lcm, given, groups)),
        bound,
        f"{src!r} to {dst!r}",
    )
    return (_piece(src, dst, attr_of_box(plan, *box), box) for box in boxes)


def _refuse_negative_strides(desc: MemoryDesc) -> None:
    strides = [block.stride for block in desc.layout.blocks if block.extent > 1]
    if min(strides, default=0) < 0:
        msg = (
            f"{desc!r} has the negative stride {min(strides)}; pieces are read and written in the "
            "order of bytes, so reorder it as a whole"
        )
        raise MemdescError(msg)


def _part(desc: MemoryDesc) -> Part:
    return Part(desc.layout, desc.dtype.bits, (1,) * desc.ndims)


def _piece(src: MemoryDesc, dst: MemoryDesc, attr: Attr | None, box: Box) -> Piece:
    if box[0] == dst.dims and (src.extra is not None or dst.extra is not None):
        return Piece(src, dst, Runs(0, src.min_nbytes), Runs(0, dst.min_nbytes), attr, box[1])
    read = compact((_part(src),), box, is_written=False)
    written = compact((_part(dst),), box, is_written=True)
    if read is None or written is None:
        msg = f"{src!r} to {dst!r}: the box of {box[0]} at {box[1]} does not start at a whole byte"
        raise MemdescError(msg)
    return Piece(
        MemoryDesc(src.dtype, read[1][0]),
        MemoryDesc(dst.dtype, written[1][0]),
        read[0],
        written[0],
        attr,
        box[1],
    )
