"""Pieces of records: boxes of all their fields, which are records of their own."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from memdesc import MemdescError, MemoryDesc, RecordDesc
from memdesc.views import permute_axes
from reorder.storage.pieces.boxes import Bound, Tensor, boxes_within
from reorder.storage.pieces.runs import Part, Runs, compact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memdesc import Layout
    from reorder.storage.pieces.runs import Box

__all__ = ["RecordPiece", "cut_record", "permutation"]

Desc = RecordDesc | MemoryDesc
# the name of the only tensor of what is no record
_PLAIN = ""


class RecordPiece(NamedTuple):
    """A part of a record that becomes another record, or plain numbers.

    Attributes
    ----------
    src : RecordDesc
        The box in the bytes that are read.
    dst : RecordDesc or MemoryDesc
        The box in the bytes that are written.
    reads, writes : tuple of (str, Runs)
        Where these are, for each tensor by its name; of a MemoryDesc it is ``""``.
    """

    src: RecordDesc
    dst: Desc
    reads: tuple[tuple[str, Runs], ...]
    writes: tuple[tuple[str, Runs], ...]

    @property
    def nbytes(self) -> int:
        """Bytes that it needs in memory: what it reads and what it writes."""
        return sum(runs.nbytes for _, runs in (*self.reads, *self.writes))


def permutation(src: RecordDesc, dst: Desc) -> tuple[int, ...]:
    """Return the dim of dst that each dim of src is, by the letters of two records."""
    if isinstance(dst, RecordDesc) and src.letters != dst.letters:
        return tuple(dst.letters.index(letter) for letter in src.letters)
    return tuple(range(len(src.dims)))


def cut_record(src: RecordDesc, dst: Desc, bound: Bound) -> Iterator[RecordPiece]:
    """Cut the conversion of a record along whole blocks of all fields.

    *Law*: the pieces write what the conversion of the whole record writes.

    Raises
    ------
    MemdescError
        If no piece fits; before the first piece.

    Examples
    --------
    >>> import memdesc
    >>> from reorder.storage.pieces.boxes import Bound
    >>> from reorder.storage.pieces.records import cut_record
    >>> src, dst = (memdesc.record_desc((256, 64), name, group=32) for name in ("awq", "gptq"))
    >>> pieces = list(cut_record(src, dst, Bound(10000, 10000)))
    >>> len(pieces), pieces[1].dst.dims, pieces[1].writes[0]
    (2, (128, 64), ('qweight', Runs(start=4096, length=4096, loops=())))
    """
    if 0 in src.dims:
        return iter(())
    perm = permutation(src, dst)
    tensors = (*_tensors(src, perm, is_written=False), *_tensors(dst, None, is_written=True))
    units = (1,) * len(dst.dims)
    boxes = boxes_within(dst.dims, tensors, units, bound, f"{src!r} to {dst!r}")
    return (_piece(src, dst, perm, box) for box in boxes)


def _tensors(desc: Desc, perm: tuple[int, ...] | None, *, is_written: bool) -> list[Tensor]:
    return [Tensor(parts, is_written) for parts in _parts(desc, perm).values()]


def _parts(desc: Desc, perm: tuple[int, ...] | None) -> dict[str, tuple[Part, ...]]:
    """Return the parts of each tensor, with dims in the order of dst."""
    if isinstance(desc, MemoryDesc):
        return {_PLAIN: (Part(desc.layout, desc.dtype.bits, (1,) * desc.ndims),)}
    order = tuple(range(len(desc.dims))) if perm is None else perm
    found: dict[str, tuple[Part, ...]] = {}
    for field in desc.fields:
        groups = [0] * len(order)
        for dim, group in zip(order, field.groups, strict=True):
            groups[dim] = group
        part = Part(permute_axes(field.layout, order), field.bits, tuple(groups))
        found[field.tensor] = (*found.get(field.tensor, ()), part)
    return found


@lru_cache(maxsize=256)  # the layers of a model are alike
def _piece(src: RecordDesc, dst: Desc, perm: tuple[int, ...], box: Box) -> RecordPiece:
    reads, held = _compacted(src, perm, box, is_written=False)
    writes, made = _compacted(dst, None, box, is_written=True)
    return RecordPiece(_record(src, perm, box, held), _desc(dst, box, made), reads, writes)


def _compacted(
    desc: Desc, perm: tuple[int, ...] | None, box: Box, *, is_written: bool
) -> tuple[tuple[tuple[str, Runs], ...], dict[str, list[Layout]]]:
    """Return the runs of a box in each tensor, and the layouts of its parts there."""
    runs, layouts = [], {}
    for tensor, parts in _parts(desc, perm).items():
        found = compact(parts, box, is_written=is_written)
        if found is None:
            msg = f"{desc!r}: the box of {box[0]} at {box[1]} shares bytes with others"
            raise MemdescError(msg)
        runs.append((tensor, found[0]))
        layouts[tensor] = list(found[1])
    return tuple(runs), layouts


def _desc(desc: Desc, box: Box, layouts: dict[str, list[Layout]]) -> Desc:
    if isinstance(desc, MemoryDesc):
        return MemoryDesc(desc.dtype, layouts[_PLAIN][0])
    return _record(desc, tuple(range(len(desc.dims))), box, layouts)


def _record(
    desc: RecordDesc, perm: tuple[int, ...], box: Box, layouts: dict[str, list[Layout]]
) -> RecordDesc:
    """Return the record of a box; `perm` are the dims that the box has of it."""
    back = tuple(perm.index(dim) for dim in range(len(perm)))
    rest = {tensor: iter(found) for tensor, found in layouts.items()}
    fields = tuple(
        replace(field, layout=permute_axes(next(rest[field.tensor]), back)) for field in desc.fields
    )
    dims = tuple(box[0][dim] for dim in perm)
    return replace(desc, dims=dims, fields=fields)
