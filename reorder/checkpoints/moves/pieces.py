"""Cut a change between files into pieces that can run independently, in bounded memory.

A piece says which bytes it reads and writes, and how they change. No two pieces of a change write
the same bytes, unless they write the same values, so they run in any order, on any machine that has
the files, and again after a failure. A piece does not say where its tensors are, so layers of equal
shapes share their pieces.

Pieces are regions of whole blocks of every operand. One dim after another is halved, in whole
blocks, until a region is small enough: each time the dim whose halves have the longest runs. The
innermost blocks of a region form one run of bytes; the blocks around them are loops over such runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from math import lcm, prod
from typing import TYPE_CHECKING

from memdesc import Block, Layout, MemdescError, MemoryDesc
from memdesc.dtypes import BYTE_BITS
from memdesc.errors import about
from memdesc.tuples import NamedTuple
from memdesc.views import submemory

if TYPE_CHECKING:
    from reorder.checkpoints.moves.changes import Change

# How many bytes a piece reads and writes if memory allows, so that its runs are long.
_PIECE_NBYTES = 128 << 20
# Bytes of a long run: shorter ones are not worth a system call each.
_LONG_RUN = 64 << 10
# The bytes of a piece that mostly stays in the caches of a machine; pieces are larger only if that
# makes their runs long.
_SMALL_PIECE = 16 << 20
# A gap is read along with the elements around it unless it is longer than they are.
_MAX_GAP = 2

_Sizes = tuple[int, ...]


class Region(NamedTuple):
    """A rectangular part of a tensor: its sizes along the dims, and where it starts."""

    sizes: _Sizes
    offsets: _Sizes


class Runs(NamedTuple):
    """Runs of bytes of one length in a tensor, whose starts are those of a loop nest."""

    # the first byte of the first run, and the bytes of each
    start: int
    length: int
    # the number of runs and the bytes from one to the next, outermost loop first
    loops: tuple[tuple[int, int], ...] = ()

    @property
    def number(self) -> int:
        """How many runs there are."""
        return prod(count for count, _ in self.loops)

    @property
    def nbytes(self) -> int:
        """Bytes of all runs."""
        return self.number * self.length

    def starts(self) -> Iterator[int]:
        """Return the first byte of each run, in the order of the runs in a buffer."""
        steps = (range(0, count * step, step) for count, step in self.loops)
        return (self.start + sum(at) for at in product(*steps))


class FieldLayout(NamedTuple):
    """Where the elements of one field lie in a tensor; a plain tensor has a single field.

    `groups` says how many adjacent indices along each dim of a region share `counts` elements.
    """

    layout: Layout
    bits: int
    groups: _Sizes
    counts: _Sizes

    @classmethod
    def of(cls, desc: MemoryDesc) -> FieldLayout:
        """Return the only field of a plain tensor. Fails if a stride is negative."""
        strides = [block.stride for block in desc.layout.blocks if block.extent > 1]
        if desc.nelems and min(strides, default=0) < 0:
            why = f"has the negative stride {min(strides)}; pieces do not, so reorder it as a whole"
            raise MemdescError(f"{desc!r} {why}")
        ones = (1,) * desc.ndims
        return cls(desc.layout, desc.dtype.bits, ones, ones)

    def view(self, region: Region) -> Layout:
        """Return the layout of the elements of a region in the whole tensor."""
        dims = [*zip(*region, self.groups, self.counts, strict=True)]
        sizes = tuple(-(-size // group) * count for size, _, group, count in dims)
        if sizes == self.layout.dims:
            return self.layout
        offsets = tuple(at // group * count for _, at, group, count in dims)
        return submemory(self.layout, sizes, offsets)


class Operand(NamedTuple):
    """A tensor that is read or written: the bytes of the whole, and its fields."""

    nbytes: int
    fields: tuple[FieldLayout, ...]
    is_written: bool

    def compact(self, region: Region) -> tuple[Runs, tuple[Layout, ...]] | None:
        """Return the runs of a region, and the layouts of the fields in these bytes.

        None if they would not be whole bytes, or hold other elements. Runs that are read may
        include gaps no longer than the data between them.
        """
        views = [field.view(region) for field in self.fields]
        if any(view.xor for view in views):
            return None
        if len(views) > 1:
            return _joined(self.fields, views)
        (field,), (view,) = self.fields, views
        return _runs(view, field.bits, is_exact=self.is_written and view is not field.layout)


class Piece(NamedTuple):
    """A region of a change: what it reads and writes of each tensor, by its role."""

    # how the bytes that are read change
    change: Change
    reads: Mapping[str, Runs]
    writes: Mapping[str, Runs]
    # where the region begins, along the dims of the target; empty for the whole
    offsets: _Sizes = ()

    @property
    def nbytes(self) -> int:
        """Bytes that it needs in memory."""
        runs = (*self.reads.values(), *self.writes.values())
        return self.change.working * sum(run.nbytes for run in runs)

    @property
    def written(self) -> int:
        """Bytes that it writes."""
        return sum(run.nbytes for run in self.writes.values())


class Cut(NamedTuple):
    """The pieces of a change, one for each region of a grid, made while they are asked for."""

    change: Change
    # the sizes of the regions; the last one along a dim may be shorter; empty for one whole piece
    sizes: _Sizes

    @property
    def _starts(self) -> list[range]:
        return [range(0, n, step) for n, step in zip(self.change.dims, self.sizes, strict=False)]

    @property
    def number(self) -> int:
        """How many pieces there are."""
        return prod(map(len, self._starts))

    def pieces(self) -> Iterator[Piece]:
        """Return the pieces."""
        for at in product(*self._starts):
            yield _piece(self.change, _region_at(at, self.change.dims, self.sizes))


def cut(change: Change, max_bytes: int, threads: int = 1, wanted: int = _PIECE_NBYTES) -> Cut:
    """Cut a change of whole tensors along whole blocks of all layouts, into pieces.

    *Law*: the pieces write each byte that the whole change writes, with the same value.

    A piece reads and writes at most `wanted` bytes of all tensors together, and few enough that all
    threads stay within `max_bytes`. Only if blocks are too large for that, a piece takes up to
    `max_bytes` by itself. Fails if blocks are larger than that.

    Examples
    --------
    >>> from memdesc import memory_desc
    >>> from reorder.checkpoints.moves.changes import Reorder
    >>> change = Reorder(*(memory_desc((64, 6), "f32", tag) for tag in ("ab", "Ab16a")))
    >>> [piece.writes["memory"] for piece in cut(change, 1600).pieces()]
    [Runs(start=0, length=768, loops=()), Runs(start=768, length=768, loops=())]
    """
    dims, operands = change.dims, (*change.reads.values(), *change.writes.values())
    nbytes = sum(operand.nbytes for operand in operands)
    small = max(min(wanted, max_bytes // threads, _SMALL_PIECE), 1)
    if 0 in dims or nbytes <= small:
        # the scales of an empty tensor may be written
        is_written = any(operand.nbytes for operand in change.writes.values())
        return Cut(change, () if is_written else (1,) * len(dims))

    bounds = max(min(wanted, max_bytes // threads), 1), max_bytes
    with about(change):
        return Cut(change, _sizes(dims, operands, change.alignment, bounds))


@lru_cache(maxsize=1024)  # the layers of a model are alike
def _piece(change: Change, region: Region) -> Piece:
    sides = change.reads, change.writes
    if not region.sizes or region.sizes == change.dims == change.alignment:
        reads, writes = ({role: Runs(0, x.nbytes) for role, x in held.items()} for held in sides)
        return Piece(change, reads, writes)
    runs: tuple[dict[str, Runs], dict[str, Runs]] = {}, {}
    layouts = dict[str, tuple[Layout, ...]](), dict[str, tuple[Layout, ...]]()
    for k, operands in enumerate(sides):
        for role, operand in operands.items():
            compacted = operand.compact(region)
            if compacted is None:
                raise MemdescError(f"{change}: {region} shares bytes with others")
            runs[k][role], layouts[k][role] = compacted
    return Piece(change.part(region, *layouts), *runs, region.offsets)


# --- how large regions are ---


class _Grid(NamedTuple):
    """Regions of one size: the bytes of the largest, and the runs of the first."""

    sizes: _Sizes
    nbytes: int
    # runs for each byte
    cost: float
    has_long_runs: bool


@lru_cache(maxsize=256)  # the layers of a model are alike
def _sizes(
    dims: _Sizes, operands: tuple[Operand, ...], alignment: _Sizes, bounds: tuple[int, int]
) -> _Sizes:
    """Return the sizes of regions that cover dims without a 0: the smallest that have long runs."""
    (wanted, most), steps = bounds, _steps(dims, operands, alignment)
    sizes, tried = dims, [*filter(None, [_grid(dims, operands, dims)])]
    while not tried or tried[-1].nbytes > min(wanted, _SMALL_PIECE):
        halved = (
            (*sizes[:dim], max(-(-size // step) // 2, 1) * step, *sizes[dim + 1 :])
            for dim, (size, step) in enumerate(zip(sizes, steps, strict=True))
            if size > step
        )
        legal = [*filter(None, (_grid(dims, operands, smaller) for smaller in halved))]
        if not legal:
            break
        tried.append(min(legal, key=lambda grid: grid.cost))
        sizes = tried[-1].sizes
    fitting = [grid for grid in tried if grid.nbytes <= wanted]
    long = [grid for grid in fitting if grid.has_long_runs]
    best = next(iter(long[-1:] or fitting or tried[-1:]), None)
    if best is None or best.nbytes > most:
        need = "an unknown number of bytes" if best is None else f"{best.nbytes} bytes"
        raise MemdescError(
            f"the smallest piece of whole blocks takes {need}, read and written, and max_bytes "
            f"is {most}; give more"
        )
    return best.sizes


def _grid(dims: _Sizes, operands: tuple[Operand, ...], sizes: _Sizes) -> _Grid | None:
    """Return the regions of these sizes; None if one of them has no runs."""
    pairs = zip(dims, sizes, strict=True)
    # the last regions along a dim hold the padding of their tensors, and may start inside a byte
    corners = product(*(sorted({0, (size - 1) // step * step}) for size, step in pairs))
    nbytes, first = 0, list[Runs]()
    for at in corners:
        compacted = [operand.compact(_region_at(at, dims, sizes)) for operand in operands]
        runs = [pair[0] for pair in compacted if pair is not None]
        if len(runs) < len(compacted):
            return None
        nbytes, first = max(nbytes, sum(run.nbytes for run in runs)), first or runs
    cost = sum(run.number / run.nbytes for run in first)
    is_long = all(run.number == 1 or run.length >= _LONG_RUN for run in first)
    return _Grid(sizes, nbytes, cost, is_long)


def _region_at(at: _Sizes, dims: _Sizes, sizes: _Sizes) -> Region:
    ends = zip(sizes, dims, at, strict=False)
    return Region(tuple(min(step, size - i) for step, size, i in ends), at)


def _steps(dims: _Sizes, operands: tuple[Operand, ...], alignment: _Sizes) -> _Sizes:
    """Return the step along each dim: multiples of it cut no block, no group and no byte."""
    steps = list(alignment)
    for layout, bits, groups, counts in (field for operand in operands for field in operand.fields):
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


# --- the bytes of a region ---


def _runs(layout: Layout, bits: int, *, is_exact: bool) -> tuple[Runs, tuple[Layout]] | None:
    """Return the runs of one layout; those that are exact have no gaps."""
    # strides in a run may be negative, as those of 4-bit elements from the high half of a byte on
    blocks = [block for block in layout.blocks if block.extent > 1 and block.stride]
    inner, loops, strides = 1, list[Block](), dict[Block, int]()
    for block in sorted(blocks, key=lambda block: abs(block.stride)):
        stride = abs(block.stride)
        if stride < inner and (is_exact or loops):
            return None
        if not loops and stride <= inner * (1 if is_exact else _MAX_GAP):
            inner += (block.extent - 1) * stride
            continue
        if block.stride < 0:
            return None
        strides[block] = inner * prod(loop.extent for loop in loops)
        loops.append(block)
    below, is_ragged = _below(layout), layout.has_partial_blocks
    first = layout.offset0 - below
    start, at_bit = divmod(first * bits, BYTE_BITS)
    counts = (inner, *(block.stride for block in loops))
    is_cut = at_bit or is_ragged or any(count * bits % BYTE_BITS for count in counts)
    if (loops and is_cut) or (is_exact and at_bit) or (below and is_ragged):
        return None
    # extents count the last block of an axis in full, even where the axis ends inside it
    end = layout.last + 1 if is_ragged else first + inner
    steps = tuple((block.extent, block.stride * bits // BYTE_BITS) for block in reversed(loops))
    runs = Runs(start, -(-end * bits // BYTE_BITS) - start, steps)
    return runs, (_moved(layout, at_bit // bits + below, strides),)


def _below(layout: Layout) -> int:
    """Return how many elements lie before the first one, because of negative strides."""
    return sum((block.extent - 1) * -block.stride for block in layout.blocks if block.stride < 0)


def _joined(
    fields: tuple[FieldLayout, ...], views: list[Layout]
) -> tuple[Runs, tuple[Layout, ...]] | None:
    """Return the one run of all fields, if they fill it."""
    if any(map(_below, views)):
        return None
    pairs = list(zip(fields, views, strict=True))
    low = min(view.offset0 * field.bits for field, view in pairs)
    high = max((view.last + 1) * field.bits for field, view in pairs)
    low -= low % BYTE_BITS
    if any((view.offset0 * field.bits - low) % field.bits for field, view in pairs):
        return None
    held = sum(view.nelems * field.bits for field, view in pairs)
    is_whole = all(view is field.layout for field, view in pairs)
    if not is_whole and held < high - low:
        return None
    runs = Runs(low // BYTE_BITS, -(-high // BYTE_BITS) - low // BYTE_BITS)
    return runs, tuple(_moved(view, view.offset0 - low // field.bits, {}) for field, view in pairs)


def _moved(layout: Layout, offset0: int, strides: Mapping[Block, int]) -> Layout:
    """Return a layout with another offset, and some strides replaced."""
    blocks = tuple(
        block._replace(stride=strides.get(block, block.stride)) for block in layout.blocks
    )
    return Layout.computed(layout.dims, layout.axes, blocks, offset0)
