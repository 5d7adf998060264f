"""A scheduled box: a box and the micro-kernel that was selected for it, once."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.cpu.schedule.contiguity import contiguous_size
from reorder.cpu.schedule.select import STRIDED, TRANSPOSED, Choice, select
from reorder.cpu.target import BYTE_BITS, LINE_BITS, LINE_NBYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reorder.plan.nodes import Box, Node

__all__ = ["MAX_CALL_SIZE", "ScheduledBox", "schedule"]

# Elements that one call of the transposing kernel should move: smaller loop groups are moved
# together with the loop around them.
MAX_CALL_SIZE = 1 << 12
# Bits of a row of the narrowest tile that is transposed in registers.
_LANE_BITS = 128
# Lines of dst are prefetched for rows of at least this many lines and at least this many columns:
# the lines of the first row of tiles are not prefetched, and some tiles must lie between a prefetch
# and its use.
_PREFETCHED_LINES, _PREFETCHED_COLUMNS = 2, 6
# Numbers of rows or columns that are interleaved, or split, by stores of whole lines: three rows do
# not fill whole lines.
_INTERLEAVED = 2, 4


class ScheduledBox(NamedTuple):
    """A box and how it is moved; neighbouring elements are `element_stride` apart."""

    box: Box
    choice: Choice
    element_stride: int = 1

    @property
    def is_transposed(self) -> bool:
        """Whether the transposing kernel moves it."""
        return self.choice.micro_kernel == TRANSPOSED

    @property
    def inner_size(self) -> int:
        """Elements of the rows and columns together."""
        return self.choice.size

    @property
    def repeat(self) -> Node | None:
        """The innermost outer loop, if the transposing kernel runs it; else None.

        It does so around small loop groups, if all steps of that loop hold data.
        """
        if not self.is_transposed or 2 * self.inner_size > MAX_CALL_SIZE or not self.choice.outer:
            return None
        last = self.choice.outer[-1]
        return last if last.valid == last.extent else None

    def prefetches_dst(self, bits: int) -> bool:
        """Whether its kernel prefetches lines of dst.

        The model: a store that crosses the end of a line waits for the next line, since it is the
        first to need it. A store of one line does not: the core fetches lines ahead for stores in
        its queue.
        """
        rows, columns = (
            prod(node.extent for node in group) for group in (self.choice.rows, self.choice.columns)
        )
        return (
            self.is_transposed
            and rows * bits >= _PREFETCHED_LINES * LINE_BITS
            and columns >= _PREFETCHED_COLUMNS
            and not self._starts_lines(self.choice.rows, bits)
        )

    def divided_pieces(self, inner: Iterable[Node], bits: int) -> int:
        """Return how many contiguous pieces of dst some loops write, or 0 if these are whole lines.

        Two threads that divide the other loops share as many lines.
        """
        nodes = tuple(inner)
        size = contiguous_size(nodes, 1, self.element_stride)
        piece = tuple(node for node in nodes if abs(node.strides[1]) < size * self.element_stride)
        if self._starts_lines(piece, bits):
            return 0
        return prod(node.extent for node in nodes) // size

    def fills_lines(self, bits: int) -> bool:
        """Whether it writes whole cache lines only, if dst starts with one."""
        choice = self.choice
        width = prod(node.extent for node in choice.columns)
        if self._is_interleaved(bits):
            return self._starts_lines((*choice.rows, *choice.columns), bits)
        if self._is_split():
            return self._starts_lines(choice.rows, bits)
        if self.is_transposed and width < _LANE_BITS // bits:
            # tiles are wider than the columns: their stores beyond these do not go to dst
            return False
        inner = choice.rows if self.is_transposed else choice.columns
        return choice.micro_kernel != STRIDED and self._starts_lines(inner, bits)

    def _is_interleaved(self, bits: int) -> bool:
        """Whether two or four rows are interleaved to whole lines that follow each other in dst."""
        rows, columns = self.choice.rows, self.choice.columns
        count = prod(node.extent for node in rows)
        return (
            self._are_joined(1)
            and count in _INTERLEAVED
            and bits > BYTE_BITS  # bytes take as many shuffles as two lines
            and prod(node.extent for node in columns) * bits >= 2 * _LANE_BITS
        )

    def _is_split(self) -> bool:
        """Whether rows of two or four columns follow each other in src, which are split."""
        return (
            self._are_joined(0)
            and prod(node.extent for node in self.choice.columns) in _INTERLEAVED
        )

    def _are_joined(self, side: int) -> bool:
        """Whether rows and columns are transposed, contiguous on a side, and hold data only."""
        inner = (*self.choice.rows, *self.choice.columns)
        return (
            self.is_transposed
            and contiguous_size(inner, side, self.element_stride) == self.inner_size
            and all(node.valid == node.extent for node in inner)
        )

    def _starts_lines(self, inner: tuple[Node, ...], bits: int) -> bool:
        """Whether each step of the loops around some contiguous ones writes whole lines of dst."""
        strides = [node.strides[-1] for node in self.box.nodes if node not in inner]
        size = prod(node.extent for node in inner) * self.element_stride
        starts = [size, self.box.offsets[-1], *strides]
        line = LINE_BITS // bits * self.element_stride
        return not any(start % line for start in starts)

    def written_nbytes(self, bits: int) -> int:
        """Return the bytes that it writes; a separate piece counts as at least a cache line."""
        piece = contiguous_size(self.box.nodes, 1, self.element_stride)
        return self.box.size // piece * max(piece * bits // BYTE_BITS, LINE_NBYTES)


def schedule(box: Box, element_stride: int = 1) -> ScheduledBox:
    """Return a box with the micro-kernel selected for it."""
    return ScheduledBox(box, select(box, element_stride), element_stride)
