"""Cut a change between files into pieces that can run independently, in bounded memory.

A piece says which bytes it reads and writes, and how they change. No two pieces of a change
write the same bytes, unless they write the same values, so they run in any order, on any machine
that has the files, and again after a failure. A piece does not say where its tensors are, so layers
of equal shapes share their pieces.

Pieces are regions of whole blocks of every operand. One dim after another is halved, in whole
blocks, until a region is small enough: each time the dim whose halves have the longest runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import lcm, prod
from typing import TYPE_CHECKING, NamedTuple

from memdesc import Layout, MemdescError
from memdesc.dtypes import BYTE_BITS
from memdesc.errors import about
from reorder.checkpoints.moves.runs import FieldLayout, Region, Runs, compact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reorder.checkpoints.moves.changes import Change, Layouts

# How many bytes a piece reads and writes if memory allows, so that its runs are long.
_PIECE_NBYTES = 128 << 20
# Bytes of a long run: shorter ones are not worth a system call each.
_LONG_RUN = 64 << 10
# The bytes of a piece that mostly stays in the caches of a machine; pieces are larger only if that
# makes their runs long.
_SMALL_PIECE = 16 << 20


_Sizes = tuple[int, ...]
# the fields of an operand, over the dims of the regions, and whether it is written
_OperandUse = tuple[tuple[FieldLayout, ...], bool]


class Bound(NamedTuple):
    """How many bytes a region may have, of all tensors together, read and written."""

    # what it should have
    wanted: int
    # what it may have if its blocks do not fit into fewer
    most: int
    # what it may have if that makes its runs long
    wide: int = 0

    @classmethod
    def shared(cls, max_bytes: int, threads: int) -> Bound:
        """Return the bound of pieces that threads of one process run within `max_bytes`.

        Two wide pieces fit at a time, so that one can be written while the other one is read.
        """
        share = max(min(_PIECE_NBYTES, max_bytes // threads), 1)
        return cls(share, max_bytes, min(_PIECE_NBYTES, max_bytes // 2))


@dataclass(frozen=True, slots=True)
class Cut:
    """The pieces of a change, one for each region of a grid, made while iterating."""

    change: Change
    # the sizes of what is cut, and of the regions; the last one along a dim may be shorter.
    # No dims make one piece of the whole.
    dims: _Sizes
    sizes: _Sizes

    def __len__(self) -> int:
        return prod(-(-size // step) for size, step in zip(self.dims, self.sizes, strict=True))

    def __iter__(self) -> Iterator[Piece]:
        steps = zip(self.dims, self.sizes, strict=True)
        for at in product(*(range(0, size, step) for size, step in steps)):
            ends = zip(self.sizes, self.dims, at, strict=True)
            sizes = tuple(min(step, size - i) for step, size, i in ends)
            yield _piece(self.change, Region(sizes, at))


class Piece(NamedTuple):
    """A region of a change."""

    # how the bytes that are read change
    change: Change
    # the runs in each tensor that is read, and in each tensor that is written, by their roles
    reads: tuple[tuple[str, Runs], ...]
    writes: tuple[tuple[str, Runs], ...]
    # where the region begins, along the dims of the target; empty for the whole
    offsets: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes that it needs in memory."""
        return self.change.working * sum(runs.nbytes for _, runs in (*self.reads, *self.writes))

    @property
    def written(self) -> int:
        """Bytes that it writes."""
        return sum(runs.nbytes for _, runs in self.writes)


def cut(change: Change, bound: Bound) -> Cut:
    """Cut a change of whole tensors along whole blocks of all layouts, into pieces within a bound.

    *Law*: the pieces write each byte that the whole change writes, with the same value.

    Blocks with only padding belong to the piece before them, and may exceed the bound.
    Fails if blocks are too large for any piece to fit.

    Examples
    --------
    >>> import memdesc
    >>> from reorder.checkpoints.moves.changes import Reorder, Repack
    >>> from reorder.checkpoints.moves.pieces import Bound, cut
    >>> src, dst = (memdesc.memory_desc((64, 6), "f32", tag) for tag in ("ab", "Ab16a"))
    >>> pieces = cut(Reorder(src, dst), Bound(1600, 1600))
    >>> len(pieces)
    2
    >>> for piece in pieces:
    ...     print(piece.change.dst, piece.reads[0][1].start, piece.writes[0][1].start)
    memory_desc((32, 6), 'f32', 'Ab16a') 0 0
    memory_desc((32, 6), 'f32', 'Ab16a') 768 768
    >>> of = memdesc.record.record_desc
    >>> src, dst = (of((256, 64), name, group=32) for name in ("awq", "gptq"))
    >>> pieces = list(cut(Repack(src, dst), Bound(10000, 10000)))
    >>> len(pieces), pieces[1].change.dst.dims, pieces[1].writes[0]
    (2, (128, 64), ('qweight', Runs(start=4096, length=4096, loops=())))
    """
    dims, reads, writes = change.dims, change.reads, change.writes
    written = sum(operand.nbytes for operand in writes.values())
    if 0 in dims and not written:  # but the scales of an empty tensor may be written
        return Cut(change, (0,), (1,))
    read = sum(operand.nbytes for operand in reads.values())
    if 0 in dims or read + written <= min(bound.wanted, _SMALL_PIECE):
        return Cut(change, (), ())
    uses = tuple(
        (operand.fields, is_written)
        for held, is_written in ((reads, False), (writes, True))
        for operand in held.values()
        if operand.fields
    )
    with about(change):
        return Cut(change, dims, _sizes(dims, uses, change.alignment, bound))


@lru_cache(maxsize=256)  # the layers of a model are alike
def _sizes(dims: _Sizes, uses: tuple[_OperandUse, ...], alignment: _Sizes, bound: Bound) -> _Sizes:
    """Return the sizes of regions that cover dims without a 0: the smallest that have long runs.

    Sizes and offsets of regions are multiples of `alignment`, and whole blocks of all layouts.
    Fails if no region fits; the message has the bytes that the smallest takes.
    """
    steps = _steps(dims, uses, alignment)
    for wanted in _nbytes_to_try(bound):
        sizes = _sizes_within(dims, uses, steps, bound._replace(wanted=wanted))
        if _has_long_runs(uses, sizes):
            return sizes
    return _sizes_within(dims, uses, steps, bound)


def _nbytes_to_try(bound: Bound) -> Iterator[int]:
    """Return the bytes of pieces to try until their runs are long, the fewest first."""
    wanted = bound.wanted
    if wanted > _SMALL_PIECE:
        yield _SMALL_PIECE
    while True:
        yield wanted
        wanted *= 2
        if wanted > bound.wide:
            return


def _whole(change: Change) -> Piece:
    """Return the one piece of a change that is not cut."""
    reads, writes = (
        tuple((role, Runs(0, operand.nbytes)) for role, operand in operands.items())
        for operands in (change.reads, change.writes)
    )
    return Piece(change, reads, writes)


@lru_cache(maxsize=1024)  # the layers of a model are alike
def _piece(change: Change, region: Region) -> Piece:
    if not region.sizes or region.sizes == change.dims == change.alignment:
        return _whole(change)
    reads, held = _compacted(change, region, is_written=False)
    writes, made = _compacted(change, region, is_written=True)
    return Piece(change.part(region, held, made), reads, writes, region.offsets)


def _compacted(
    change: Change, region: Region, *, is_written: bool
) -> tuple[tuple[tuple[str, Runs], ...], Layouts]:
    """Return the runs of a region in each tensor, and the layouts of its fields in these bytes."""
    runs: dict[str, Runs] = {}
    layouts: dict[str, tuple[Layout, ...]] = {}
    for role, (nbytes, fields) in (change.writes if is_written else change.reads).items():
        found = compact(fields, region, is_written=is_written) if fields else None
        if found is not None:
            runs[role], layouts[role] = found
        elif fields:
            msg = (
                f"{change}: the region of {region.sizes} at {region.offsets} shares bytes with "
                "others"
            )
            raise MemdescError(msg)
        elif not any(region.offsets):
            runs[role] = Runs(0, nbytes)
    return tuple(runs.items()), layouts


class _RegionSize(NamedTuple):
    """Regions of one size: the bytes of the largest, and the runs per byte of the first.

    The last regions hold the padding of their tensors, so they may be larger than the first.
    """

    sizes: _Sizes
    nbytes: int
    cost: float


def _sizes_within(
    dims: _Sizes, uses: tuple[_OperandUse, ...], steps: _Sizes, bound: Bound
) -> _Sizes:
    """Return the sizes of regions of about the wanted bytes, multiples of `steps`."""
    best = _region_size(dims, uses, dims)
    while best is None or best.nbytes > bound.wanted:
        sizes = dims if best is None else best.sizes
        found = [_region_size(dims, uses, halved) for halved in _halved(sizes, steps)]
        legal = [each for each in found if each is not None]
        if legal:
            best = min(legal, key=lambda each: each.cost)
        elif best is not None and best.nbytes <= bound.most:
            break
        else:
            need = "an unknown number of bytes" if best is None else f"{best.nbytes} bytes"
            msg = (
                f"the smallest piece of whole blocks takes {need}, read and written, and max_bytes "
                f"is {bound.most}; give more"
            )
            raise MemdescError(msg)
    return best.sizes


def _has_long_runs(uses: Sequence[_OperandUse], sizes: _Sizes) -> bool:
    """Whether the first region of these sizes is read and written in long runs."""
    first = Region(sizes, (0,) * len(sizes))
    found = [compact(fields, first, is_written=is_written) for fields, is_written in uses]
    return all(each is None or each[0].number == 1 or each[0].length >= _LONG_RUN for each in found)


def _steps(dims: _Sizes, uses: Sequence[_OperandUse], alignment: _Sizes) -> _Sizes:
    """Return the step along each dim: multiples of it cut no block, no group and no byte."""
    steps = list(alignment)
    for layout, bits, groups, counts in (field for fields, _ in uses for field in fields):
        if layout.has_partial_blocks or layout.xor:
            return dims
        for k, axis in enumerate(layout.axes):
            if len(axis.dims) > 1:
                for dim in axis.dims:
                    steps[dim] = dims[dim]
                continue
            (dim,) = axis.dims
            outer = layout.outer(k)
            if groups[dim] >= dims[dim] and layout.dims[dim] == 1:
                continue  # one element for the whole dim, which all regions share
            is_odd = outer.extent > 1 and outer.stride * bits % BYTE_BITS
            whole = BYTE_BITS // bits if is_odd else 1
            step = lcm(outer.step * whole, counts[dim]) // counts[dim]
            steps[dim] = lcm(steps[dim], groups[dim] * step)
    return tuple(min(step, size) for step, size in zip(steps, dims, strict=True))


def _halved(sizes: _Sizes, steps: _Sizes) -> Iterator[_Sizes]:
    """Return copies of the sizes in which one of them is halved, if it has several steps."""
    for dim, (size, step) in enumerate(zip(sizes, steps, strict=True)):
        if size > step:
            half = max(-(-size // step) // 2, 1) * step
            yield (*sizes[:dim], half, *sizes[dim + 1 :])


def _region_size(dims: _Sizes, uses: Sequence[_OperandUse], sizes: _Sizes) -> _RegionSize | None:
    """Return the regions of these sizes; None if one of them has no runs."""
    first = Region(sizes, (0,) * len(sizes))
    nbytes, cost = 0, 0.0
    for fields, is_written in uses:
        found = compact(fields, first, is_written=is_written)
        if found is None or not all(
            compact(fields, tail, is_written=is_written) for tail in _tails(dims, fields, sizes)
        ):
            return None
        nbytes += max(_largest_nbytes(dims, sizes, found[0], field) for field in fields)
        cost += found[0].number / found[0].nbytes
    return _RegionSize(sizes, nbytes, cost)


def _tails(dims: _Sizes, fields: tuple[FieldLayout, ...], sizes: _Sizes) -> list[Region]:
    """Return the last regions along one or more dims, which may start inside a byte."""
    if all(field.bits >= BYTE_BITS for field in fields):
        return []
    ends = [
        ((step, 0),) if size % step == 0 else ((step, 0), (size % step, size - size % step))
        for size, step in zip(dims, sizes, strict=True)
    ]
    # the first of all is not a tail
    return [Region(*zip(*each, strict=True)) for each in [*product(*ends)][1:]]


def _largest_nbytes(dims: _Sizes, sizes: _Sizes, first: Runs, field: FieldLayout) -> int:
    """Return the bytes of the largest region of a tensor, from those of the first one."""
    nbytes = first.nbytes
    for axis in field.layout.axes:
        dim, group = axis.dims[0], field.groups[axis.dims[0]]
        count = field.counts[dim]
        if len(axis.dims) == 1 and sizes[dim] < dims[dim]:
            step = -(-sizes[dim] // group) * count
            last = axis.padded - (dims[dim] - 1) // sizes[dim] * sizes[dim] // group * count
            nbytes = -(-nbytes * max(last, step) // step)
    return nbytes
