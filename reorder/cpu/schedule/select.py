"""Selection of the micro-kernel of a box, and of the loops that it runs: pure functions."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from reorder.cpu.schedule.contiguity import contiguous_loops
from reorder.cpu.target import BYTE_BITS
from reorder.plan.nodes import Node
from reorder.plan.passes import pack_elements, simplify

if TYPE_CHECKING:
    from reorder.plan.nodes import Box

__all__ = [
    "MAX_INTERLEAVED",
    "MICRO_KERNELS",
    "RUN",
    "STRIDED",
    "TILE",
    "TRANSPOSED",
    "Choice",
    "Kernel",
    "pack_for_kernels",
    "select",
]

RUN, STRIDED, TRANSPOSED = 0, 1, 2
MICRO_KERNELS = {RUN: "run", STRIDED: "strided", TRANSPOSED: "transposed"}

_ONE_STEP = Node(1, 1, (1, 1))
# Loop groups score up to this many elements, a cache line of 16-bit ones: longer groups gain
# nothing.
_LANES = 32
# Elements of both loop groups together score up to this number.
_MAX_SIZE = 4096
# Most rows or columns that are interleaved instead of transposed.
MAX_INTERLEAVED = 4
# Elements of a side of a cache tile; a loop group shorter than two sides is not cut.
TILE = 256


class Choice(NamedTuple):
    """The loops of a box: the walker runs the outer ones, the micro-kernel the others.

    The loops of a group come innermost first. For `TRANSPOSED` the columns are contiguous in
    src and the rows in dst; otherwise the columns are one loop, and the rows have any strides.
    """

    micro_kernel: int
    outer: tuple[Node, ...]
    rows: tuple[Node, ...]
    columns: tuple[Node, ...]

    @property
    def size(self) -> int:
        """Elements that a call of the micro-kernel moves, without cuts."""
        return prod(node.extent for node in (*self.rows, *self.columns))

    def __str__(self) -> str:
        parts = [" ".join(map(str, nodes)) for nodes in (self.outer, self.rows, self.columns)]
        return f"{MICRO_KERNELS[self.micro_kernel]}({parts[1]} | {parts[2]}) in [{parts[0]}]"


def select(box: Box, element_stride: int = 1) -> Choice:
    """Select the micro-kernel of a box whose neighbouring elements are `element_stride` apart.

    Two loop groups that share no loop, one contiguous in src and one in dst, are transposed; an
    innermost loop that is contiguous on both sides is copied as a run; all else is moved
    element by element.
    """
    nodes = box.nodes
    if not box.is_zero:
        columns, rows = _transposed_groups(nodes, element_stride)
        if columns and rows:
            taken = {*columns, *rows}
            outer = tuple(node for node in nodes if node not in taken)
            return Choice(TRANSPOSED, outer, rows, columns)
    run = nodes[-1] if nodes else _ONE_STEP
    is_run = run.strides[1] == element_stride and (run.strides[0] == element_stride or box.is_zero)
    rows = _row_loops(nodes[:-1])
    outer = nodes[: len(nodes) - 1 - len(rows)]
    return Choice(RUN if is_run else STRIDED, outer, rows or (_ONE_STEP,), (run,))


def _row_loops(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the innermost loops whose steps fit in a table of rows, innermost first.

    At most one of them holds padding, and becomes the outermost one. After it no loop is taken that
    makes the table too long: tiles are cut at the outermost loop, and padding should stay with its
    data.
    """
    rows: list[Node] = []
    padded: list[Node] = []
    size = 1
    for node in reversed(nodes):
        is_padded = node.valid < node.extent
        is_too_long = bool(padded) and size * node.extent >= 2 * TILE
        if (is_padded and padded) or is_too_long or _exceeds_tile(size, node):
            break
        (padded if is_padded else rows).append(node)
        size *= node.extent
    return (*rows, *padded)


def _exceeds_tile(size: int, node: Node) -> bool:
    """Whether a loop makes a group of TILE / 2 elements or more too long: 2 * TILE or more."""
    return 2 * size >= TILE and size * node.extent >= 2 * TILE


def _contiguous_group(nodes: tuple[Node, ...], side: int, element_stride: int) -> tuple[Node, ...]:
    """Return the longest loop group that is contiguous on a side, innermost first.

    Only its last loop may hold padding.
    """
    group: list[Node] = []
    size = 1
    for k in contiguous_loops(nodes, side, element_stride):
        if _exceeds_tile(size, nodes[k]):
            break
        group.append(nodes[k])
        size *= nodes[k].extent
        if nodes[k].valid < nodes[k].extent:
            break
    return tuple(group)


def _transposed_groups(
    nodes: tuple[Node, ...], element_stride: int
) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Return columns and rows: the prefixes of both groups that share no loop and are best.

    All pairs of prefixes are compared, shorter ones first, by how much of a tile of vectors they
    fill, then by their number of elements, up to a limit; of equal pairs the first one wins.
    """
    from_src, from_dst = (_contiguous_group(nodes, side, element_stride) for side in (0, 1))
    best: tuple[tuple[Node, ...], tuple[Node, ...]] = (), ()
    best_score = (0, 0)
    for i in range(1, len(from_src) + 1):
        for j in range(1, len(from_dst) + 1):
            columns, rows = from_src[:i], from_dst[:j]
            if set(columns).isdisjoint(rows):
                width, height = (prod(node.extent for node in group) for group in (columns, rows))
                score = min(width, _LANES) * min(height, _LANES), min(width * height, _MAX_SIZE)
                if score > best_score:
                    best, best_score = (columns, rows), score
    return best


class Kernel(NamedTuple):
    """A variant of the walker of boxes and its micro-kernels: each is compiled separately.

    `bits` is 4, 8, 16, 32 or 64. With `streams` whole, aligned cache lines of dst are written by
    non-temporal stores; not for 4-bit elements.
    """

    bits: int
    streams: bool = False

    @property
    def is_packed(self) -> bool:
        """Whether elements share bytes."""
        return self.bits < BYTE_BITS

    def __str__(self) -> str:
        return f"{self.bits}-bit elements{', non-temporal stores' if self.streams else ''}"


# Bits of the widest element that kernels move.
_WIDEST = 64
# Loop groups of fewer wide elements than this are no faster than runs of narrow ones.
_MIN_WIDE_SIZE = 16


def pack_for_kernels(box: Box, bits: int) -> tuple[Box, int, int]:
    """Pack adjacent elements into wider ones, and simplify the box.

    Returns
    -------
    tuple of Box, int and int
        The box, the bits of its elements, and the element stride. If wide elements start at places
        that are not multiples of their width (rows of an odd number of bytes), strides are in
        narrow elements. Only transpositions of whole runs do that: their vectors are loaded and
        stored at any byte.
    """
    packed, bits = pack_elements(box, bits)
    (packed,) = simplify((packed,))
    *outer, run = packed.nodes or (Node(1, 1, (1, 1)),)
    width = run.extent * bits
    is_run = run.strides == (1, 1) and run.valid == run.extent > 1
    if bits < BYTE_BITS or not is_run or width > _WIDEST or width & (width - 1) or packed.indirect:
        return packed, bits, 1
    wide = packed._replace(nodes=tuple(outer))
    choice = select(wide, run.extent)
    if choice.micro_kernel != TRANSPOSED or choice.size < _MIN_WIDE_SIZE:
        return packed, bits, 1
    return wide, width, run.extent
