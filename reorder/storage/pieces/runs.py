"""Runs: the bytes that a view of a tensor touches, and the view over these bytes alone.

The innermost blocks of a view make one run of bytes; the blocks outside of it are loops over runs.
Runs that are read one behind the other need a layout of smaller strides: the compact one.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from memdesc import Layout, MemoryDesc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memdesc import Block

__all__ = ["Runs", "compact"]

_BYTE_BITS = 8
# A gap is read with the elements around it if it is not longer than they are.
_MAX_GAP = 2


class Runs(NamedTuple):
    """Runs of bytes of one length, in loops.

    Attributes
    ----------
    start : int
        First byte of the first run, from the start of the tensor.
    length : int
        Bytes of each run.
    loops : tuple of (int, int)
        How many runs there are, and the bytes between two, outermost loop first.
    """

    start: int
    length: int
    loops: tuple[tuple[int, int], ...] = ()

    @property
    def number(self) -> int:
        """How many runs there are."""
        return prod(count for count, _ in self.loops)

    @property
    def nbytes(self) -> int:
        """Bytes of all runs."""
        return self.number * self.length

    @property
    def end(self) -> int:
        """One past the last byte of the last run."""
        return self.start + sum((count - 1) * step for count, step in self.loops) + self.length

    def starts(self) -> Iterator[int]:
        """Return the first byte of each run, in the order in which they are compacted."""
        steps = (range(0, count * step, step) for count, step in self.loops)
        return (self.start + sum(at) for at in product(*steps))


def compact(view: MemoryDesc, *, is_written: bool) -> tuple[Runs, MemoryDesc] | None:
    """Return the runs of a view, and the view of their bytes, one run behind the other.

    Parameters
    ----------
    view : MemoryDesc
        A tensor, or a box of it; with elements.
    is_written : bool
        Whether the runs are written, so that they must hold bytes of the view alone; runs that are
        read may hold gaps that are no longer than what is between them.

    Returns
    -------
    (Runs, MemoryDesc) or None
        None if there are no such runs: they do not consist of whole bytes, a stride is negative,
        or blocks lie within each other.
    """
    layout, bits = view.layout, view.dtype.bits
    blocks = sorted(
        (block for block in layout.blocks if block.extent > 1 and block.stride),
        key=lambda block: abs(block.stride),
    )
    first = layout.offset0
    inner = 1
    loops: list[Block] = []
    for block in blocks:
        if block.stride < inner and (block.stride < 0 or is_written or loops):
            return None
        # each step of an outer axis that ends within a block is counted in full
        if not loops and block.stride <= inner * (1 if is_written else _MAX_GAP):
            inner += (block.extent - 1) * block.stride
        else:
            loops.append(block)
    if (layout.has_partial_blocks or layout.last < first) and loops:
        return None
    at_bit = first * bits % _BYTE_BITS
    if at_bit and (loops or is_written):
        return None
    if loops and any(count * bits % _BYTE_BITS for count in (inner, *(b.stride for b in loops))):
        return None
    start = first * bits // _BYTE_BITS
    if not loops:
        last = max(layout.last, first) + 1 if layout.has_partial_blocks else first + inner
        runs = Runs(start, -(-last * bits // _BYTE_BITS) - start)
    else:
        steps = tuple((block.extent, block.stride * bits // _BYTE_BITS) for block in loops)
        runs = Runs(start, inner * bits // _BYTE_BITS, steps[::-1])
    strides, total = {}, inner
    for block in loops:
        strides[block] = total
        total *= block.extent
    moved = tuple(
        block._replace(stride=strides.get(block, block.stride)) for block in layout.blocks
    )
    made = Layout.computed(layout.dims, layout.axes, moved, at_bit // bits)
    return runs, MemoryDesc(view.dtype, made, letters=view.letters)
