"""Runs: the bytes of a tensor that a region touches, and layouts over only these bytes.

The innermost blocks of a region form one contiguous run of bytes; the blocks around them are loops
over such runs. Once runs are back to back in a buffer, the layout there has smaller strides.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import NamedTuple

from memdesc import Block, Layout, MemoryDesc
from memdesc.dtypes import BYTE_BITS
from memdesc.views import submemory

# A gap is read along with the elements around it unless it is longer than they are.
_MAX_GAP = 2


class Region(NamedTuple):
    """A rectangular part of a tensor: its sizes along the dims, and where it starts."""

    sizes: tuple[int, ...]
    offsets: tuple[int, ...]


class Runs(NamedTuple):
    """Runs of bytes of one length, whose starts are those of a loop nest."""

    # the first byte of the first run, from the start of the tensor
    start: int
    # bytes of each run
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
    groups: tuple[int, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, desc: MemoryDesc) -> FieldLayout:
        """Return the only field of a plain tensor."""
        ones = (1,) * desc.ndims
        return cls(desc.layout, desc.dtype.bits, ones, ones)

    def view(self, region: Region) -> Layout:
        """Return the layout of the elements of a region in the whole tensor."""
        each = tuple(zip(self.groups, self.counts, strict=True))
        sizes = tuple(
            -(-size // group) * count
            for size, (group, count) in zip(region.sizes, each, strict=True)
        )
        offsets = tuple(
            at // group * count for at, (group, count) in zip(region.offsets, each, strict=True)
        )
        if sizes == self.layout.dims:
            return self.layout
        return submemory(self.layout, sizes, offsets)


class Operand(NamedTuple):
    """A tensor that is read or written: the bytes of the whole, and its fields.

    Constants have no fields.
    """

    nbytes: int
    fields: tuple[FieldLayout, ...]


def compact(
    fields: tuple[FieldLayout, ...], region: Region, *, is_written: bool
) -> tuple[Runs, tuple[Layout, ...]] | None:
    """Return the runs of a region of a tensor, and the layouts of its fields in these bytes.

    Runs that are written hold only bytes of the region; runs that are read may include gaps no
    longer than the data between them. None if there are no such runs: they would not be whole
    bytes, the order of runs is reversed, or other elements are in between.
    """
    views = [field.view(region) for field in fields]
    if len(fields) > 1:
        return _joined(fields, views)
    (field,), (view,) = fields, views
    found = _runs(view, field.bits, is_exact=is_written and view is not field.layout)
    return None if found is None else (found[0], (found[1],))


def _runs(layout: Layout, bits: int, *, is_exact: bool) -> tuple[Runs, Layout] | None:
    """Return the runs of one layout; those that are exact have no gaps."""
    if layout.xor:
        return None
    blocks = sorted(
        (block for block in layout.blocks if block.extent > 1 and block.stride),
        key=lambda block: abs(block.stride),
    )
    below = _below(layout)
    if below and layout.has_partial_blocks:
        return None
    first = layout.offset0 - below
    inner = 1
    loops: list[Block] = []
    for block in blocks:
        stride = abs(block.stride)
        if stride < inner and (is_exact or loops):
            return None
        if not loops and stride <= inner * (1 if is_exact else _MAX_GAP):
            inner += (block.extent - 1) * stride
        elif block.stride < 0:
            return None
        else:
            loops.append(block)
    at_bit = first * bits % BYTE_BITS
    counts = (inner, *(block.stride for block in loops))
    is_cut = any(count * bits % BYTE_BITS for count in counts)
    if (loops and (layout.has_partial_blocks or is_cut)) or (at_bit and (loops or is_exact)):
        return None
    start = first * bits // BYTE_BITS
    if loops:
        steps = tuple((block.extent, block.stride * bits // BYTE_BITS) for block in loops)
        runs = Runs(start, inner * bits // BYTE_BITS, steps[::-1])
    else:
        # extents count the last block of an axis in full, even where the axis ends inside it
        last = layout.last + 1 if layout.has_partial_blocks else first + inner
        runs = Runs(start, -(-last * bits // BYTE_BITS) - start)
    strides, total = {}, inner
    for block in loops:
        strides[block] = total
        total *= block.extent
    return runs, _moved(layout, at_bit // bits + below, strides)


def _below(layout: Layout) -> int:
    """Return how many elements lie before the first one, because of negative strides."""
    return sum((block.extent - 1) * -block.stride for block in layout.blocks if block.stride < 0)


def _joined(
    fields: tuple[FieldLayout, ...], views: list[Layout]
) -> tuple[Runs, tuple[Layout, ...]] | None:
    """Return the one run of all fields, if they fill it."""
    pairs = list(zip(fields, views, strict=True))
    if any(map(_below, views)) or any(view.xor for view in views):
        return None
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


def _moved(layout: Layout, offset0: int, strides: dict[Block, int]) -> Layout:
    """Return a layout with another offset, and some strides replaced."""
    blocks = tuple(
        block._replace(stride=strides.get(block, block.stride)) for block in layout.blocks
    )
    return Layout.computed(layout.dims, layout.axes, blocks, offset0)
