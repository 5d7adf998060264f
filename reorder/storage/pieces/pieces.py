"""Cut a conversion between files into pieces: values that run alone, in bounded memory.

A piece says which bytes it reads and writes, and their layouts. No two pieces of a tensor write the
same bytes, so they run in any order, on any machine that has the files, and again after a failure.
A piece does not say where its tensors are, so layers of equal shapes share their pieces.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import lcm
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc import MemdescError, MemoryDesc, RecordDesc
from memdesc.views import permute_axes
from reorder.storage.pieces.regions import Bound, Cut, Operand, sizes_within
from reorder.storage.pieces.runs import FieldLayout, Region, Runs, compact
from reorder.values.attr import Attr
from reorder.values.parameter import GROUPED_DIMS

if TYPE_CHECKING:
    from memdesc import Layout
    from reorder.plan.plan import ReorderPlan

__all__ = ["Piece", "RecordPiece", "cut", "cut_record", "permutation"]

Desc = RecordDesc | MemoryDesc
# the name of a tensor that is not part of a record
_PLAIN = ""


class Piece(NamedTuple):
    """A region of a reorder.

    Attributes
    ----------
    src, dst : MemoryDesc
        The region's layout in the bytes that are read, and in those that are written.
    reads, writes : Runs
        Where these bytes are in the two tensors.
    attr : Attr or None
        The attributes of the region's elements.
    offsets : tuple of int
        Where the region starts in the tensor.
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


class RecordPiece(NamedTuple):
    """A region of a record that becomes another record, or plain numbers.

    Attributes
    ----------
    src : RecordDesc
        The region in the bytes that are read.
    dst : RecordDesc or MemoryDesc
        The region in the bytes that are written.
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


def cut(plan: ReorderPlan, bound: Bound, units: tuple[int, ...] = ()) -> Cut[Piece]:
    """Cut a reorder along whole blocks of both layouts into pieces of bounded size.

    *Law*: the pieces write each byte of dst that a reorder writes, once, with the same value.

    Parameters
    ----------
    plan : ReorderPlan
        The reorder, without accumulation: a piece may run twice.
    bound : Bound
        The most bytes that a piece may read and write, and how many it should where blocks allow.
        Blocks that hold nothing but padding belong to the piece before them, and may exceed this.
    units : tuple of int, optional
        Sizes and offsets of regions are multiples of these, as well as whole blocks.

    Raises
    ------
    MemdescError
        If it accumulates, a stride is negative, or blocks are too large for any piece to fit.

    Examples
    --------
    >>> import memdesc, reorder
    >>> from reorder.storage.pieces.pieces import cut
    >>> from reorder.storage.pieces.regions import Bound
    >>> src, dst = (memdesc.memory_desc((64, 6), "f32", tag) for tag in ("ab", "Ab16a"))
    >>> pieces = cut(reorder.plan_reorder(src, dst), Bound(1600, 1600))
    >>> len(pieces)
    2
    >>> for piece in pieces:
    ...     print(piece.src.dims, piece.dst, piece.reads.start, piece.writes.start)
    (32, 6) memory_desc((32, 6), 'f32', 'Ab16a') 0 0
    (32, 6) memory_desc((32, 6), 'f32', 'Ab16a') 768 768
    """
    src, dst, attr = plan.src, plan.dst, plan.attr
    if plan.bound_attr.beta:
        msg = f"beta {plan.bound_attr.beta} adds to what dst holds; pieces are written, not added"
        raise MemdescError(msg)
    for desc in (src, dst):
        _refuse_negative_strides(desc)

    def make(region: Region) -> Piece:
        return _piece(src, dst, _attr_of(plan, region), region)

    if not dst.nelems:
        return Cut((0,), (1,), make)
    groups = _groups_of(attr, dst.ndims)
    if src.extra is not None or dst.extra is not None:
        groups = dst.dims  # compensation belongs to all elements
    sizes = sizes_within(
        dst.dims,
        tuple(Operand((FieldLayout.of(desc),), is_written=desc is dst) for desc in (src, dst)),
        tuple(map(lcm, units or (1,) * dst.ndims, groups)),
        bound,
        f"{src!r} to {dst!r}",
    )
    return Cut(dst.dims, sizes, make)


def _refuse_negative_strides(desc: MemoryDesc) -> None:
    strides = [block.stride for block in desc.layout.blocks if block.extent > 1]
    if desc.nelems and min(strides, default=0) < 0:
        msg = (
            f"{desc!r} has the negative stride {min(strides)}; pieces are read and written in the "
            "order of bytes, so reorder it as a whole"
        )
        raise MemdescError(msg)


def _piece(src: MemoryDesc, dst: MemoryDesc, attr: Attr | None, region: Region) -> Piece:
    if region.sizes == dst.dims and (src.extra is not None or dst.extra is not None):
        runs = Runs(0, src.min_nbytes), Runs(0, dst.min_nbytes)
        return Piece(src, dst, *runs, attr, region.offsets)
    read = compact((FieldLayout.of(src),), region, is_written=False)
    written = compact((FieldLayout.of(dst),), region, is_written=True)
    if read is None or written is None:
        msg = (
            f"{src!r} to {dst!r}: the region of {region.sizes} at {region.offsets} does not start "
            "at a whole byte"
        )
        raise MemdescError(msg)
    descs = MemoryDesc(src.dtype, read[1][0]), MemoryDesc(dst.dtype, written[1][0])
    return Piece(*descs, read[0], written[0], attr, region.offsets)


def _groups_of(attr: Attr | None, ndims: int) -> tuple[int, ...]:
    """Return the step of region offsets along each dim that cuts no group."""
    groups = [1] * ndims
    for parameter in () if attr is None else attr.parameters:
        for k, group in enumerate(parameter.groups):
            dim = ndims - GROUPED_DIMS + k
            groups[dim] = lcm(groups[dim], group)
    return tuple(groups)


def _attr_of(plan: ReorderPlan, region: Region) -> Attr | None:
    """Return the scales and zero points of the elements of a region."""
    if plan.attr is None or not plan.attr.parameters:
        return plan.attr
    operands = {operand.role: operand for operand in plan.bound_attr.operands}
    given: dict[str, Any] = {}
    for parameter in plan.attr.parameters:
        role, operand = parameter.role, operands[parameter.role]
        along = [
            slice(at // group, (at + size) // group) if operand.mask >> dim & 1 else slice(None)
            for dim, (at, size, group) in enumerate(
                zip(region.offsets, region.sizes, operand.groups, strict=True)
            )
        ]
        values = parameter.values.reshape(operand.sizes)[tuple(along)]
        given[role] = values.reshape(-1) if parameter.mask else parameter.values
        given[f"{role}_mask"] = parameter.mask
        given[f"{role}_groups"] = parameter.groups
    return Attr(
        **given,
        beta=plan.attr.beta,
        saturate=plan.attr.saturate,
        f8_rounding=plan.attr.f8_rounding,
    )


def permutation(src: RecordDesc, dst: Desc) -> tuple[int, ...]:
    """Return which dim of dst each dim of src is, by the letters of the two records."""
    if isinstance(dst, RecordDesc) and src.letters != dst.letters:
        return tuple(dst.letters.index(letter) for letter in src.letters)
    return tuple(range(len(src.dims)))


def cut_record(src: RecordDesc, dst: Desc, bound: Bound) -> Cut[RecordPiece]:
    """Cut the conversion of a record along whole blocks of all fields.

    *Law*: the pieces write what the conversion of the whole record writes.

    Raises
    ------
    MemdescError
        If no piece fits.

    Examples
    --------
    >>> import memdesc
    >>> from reorder.storage.pieces.pieces import cut_record
    >>> from reorder.storage.pieces.regions import Bound
    >>> src, dst = (memdesc.record_desc((256, 64), name, group=32) for name in ("awq", "gptq"))
    >>> pieces = list(cut_record(src, dst, Bound(10000, 10000)))
    >>> len(pieces), pieces[1].dst.dims, pieces[1].writes[0]
    (2, (128, 64), ('qweight', Runs(start=4096, length=4096, loops=())))
    """
    perm = permutation(src, dst)

    def make(region: Region) -> RecordPiece:
        return _record_piece(src, dst, perm, region)

    if 0 in src.dims:
        return _empty(src, dst)
    operands = (
        *(Operand(fields, is_written=False) for fields in _fields(src, perm).values()),
        *(Operand(fields, is_written=True) for fields in _fields(dst, None).values()),
    )
    units = (1,) * len(dst.dims)
    return Cut(
        dst.dims, sizes_within(dst.dims, operands, units, bound, f"{src!r} to {dst!r}"), make
    )


def _empty(src: RecordDesc, dst: Desc) -> Cut[RecordPiece]:
    """Return the piece that writes the constants of a record without elements; none without any."""
    constants = _constants(dst)
    reads = tuple((name, Runs(0, nbytes)) for name, nbytes in src.bare.tensors.items())
    writes = {_PLAIN: dst.nbytes} if isinstance(dst, MemoryDesc) else dst.tensors
    whole = RecordPiece(
        src.bare, dst, reads, tuple((name, Runs(0, nbytes)) for name, nbytes in writes.items())
    )
    return Cut((), (), lambda _: whole) if constants else Cut((0,), (1,), lambda _: whole)


def _constants(desc: Desc) -> tuple[tuple[str, Runs], ...]:
    """Return where the constants of a record are written."""
    if isinstance(desc, MemoryDesc):
        return ()
    return tuple((each.tensor, Runs(0, len(each.data))) for each in desc.constants)


def _fields(desc: Desc, perm: tuple[int, ...] | None) -> dict[str, tuple[FieldLayout, ...]]:
    """Return the fields of each tensor, with dims in the order of dst."""
    if isinstance(desc, MemoryDesc):
        return {_PLAIN: (FieldLayout.of(desc),)}
    order = tuple(range(len(desc.dims))) if perm is None else perm
    found: dict[str, tuple[FieldLayout, ...]] = {}
    for field in desc.fields:
        groups, counts = [0] * len(order), [0] * len(order)
        for dim, group, count in zip(order, field.groups, field.counts, strict=True):
            groups[dim], counts[dim] = group, count
        layout = permute_axes(field.layout, order)
        made = FieldLayout(layout, field.bits, tuple(groups), tuple(counts))
        found[field.tensor] = (*found.get(field.tensor, ()), made)
    return found


@lru_cache(maxsize=256)  # the layers of a model are alike
def _record_piece(src: RecordDesc, dst: Desc, perm: tuple[int, ...], region: Region) -> RecordPiece:
    reads, held = _compacted(src, perm, region, is_written=False)
    writes, made = _compacted(dst, None, region, is_written=True)
    if isinstance(dst, MemoryDesc):
        written: Desc = MemoryDesc(dst.dtype, made[_PLAIN][0])
    else:
        # the first piece writes the constants
        is_first = not any(region.offsets)
        writes = (*writes, *_constants(dst)) if is_first else writes
        part = dst if is_first else dst.bare
        written = _record(part, tuple(range(len(dst.dims))), region, made)
    return RecordPiece(_record(src.bare, perm, region, held), written, reads, writes)


def _compacted(
    desc: Desc, perm: tuple[int, ...] | None, region: Region, *, is_written: bool
) -> tuple[tuple[tuple[str, Runs], ...], dict[str, list[Layout]]]:
    """Return the runs of a region in each tensor, and the layouts of its fields there."""
    runs, layouts = [], {}
    for tensor, fields in _fields(desc, perm).items():
        found = compact(fields, region, is_written=is_written)
        if found is None:
            msg = (
                f"{desc!r}: the region of {region.sizes} at {region.offsets} shares bytes with "
                "others"
            )
            raise MemdescError(msg)
        runs.append((tensor, found[0]))
        layouts[tensor] = list(found[1])
    return tuple(runs), layouts


def _record(
    desc: RecordDesc, perm: tuple[int, ...], region: Region, layouts: dict[str, list[Layout]]
) -> RecordDesc:
    """Return the record of a region; `perm` are the dims that the region has of it."""
    back = tuple(perm.index(dim) for dim in range(len(perm)))
    rest = {tensor: iter(found) for tensor, found in layouts.items()}
    fields = tuple(
        replace(field, layout=permute_axes(next(rest[field.tensor]), back)) for field in desc.fields
    )
    return replace(desc, dims=tuple(region.sizes[dim] for dim in perm), fields=fields)
