"""Box and Node: a reorder as plain loop nests over its operands.

For every index of a box's nest: if all i_k < valid_k, dst gets src's element, else dst gets 0.
Offsets and strides are in elements. There is one for each operand: src, dst, then the scales and
zero points that differ along the dims.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from memdesc.immutable import immutable
from memdesc.layout import axis_index, block_offset
from memdesc.swizzle import swizzled, xor_expression
from memdesc.tuples import NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memdesc import Axis, Block
    from memdesc.swizzle import Terms

# The operands that every box has, in the order of offsets and strides.
SRC, DST = 0, 1
# Marks padding in the indirection table of src. It is the least int64, since real offsets, which
# are relative to the start of a box, may be negative.
NOWHERE = -(2**63)


@immutable
class Node(NamedTuple):
    """One loop: `extent` steps of `strides`; the first `valid` of them hold data.

    Parameters
    ----------
    extent : int
        Number of steps.
    valid : int
        Steps that hold data; the others write zeros.
    strides : tuple of int
        Elements from one step to the next, in each operand.

    Examples
    --------
    >>> print(reorder.plan.Node(extent=16, valid=1, strides=(3136, 1)))
    16(1):3136:1
    """

    extent: int
    valid: int
    strides: tuple[int, ...]

    def __str__(self) -> str:
        part = "" if self.valid == self.extent else f"({self.valid})"
        return f"{self.extent}{part}:{':'.join(map(str, self.strides))}"


@immutable
class IndirectLoop(NamedTuple):
    """One loop without constant strides, such as over blocks that do not divide each other.

    The loop runs over the padded indices of dst's axes, row-major; if one of them is padding, src
    has no element. Axes of a swizzle may be loops over runs, not dims. Offsets come from
    indirection tables that are computed when the plan runs, so that the plan stays small.

    Parameters
    ----------
    sizes : tuple of (dim, size)
        The dims, and their logical sizes.
    src, dst : tuple of (Axis, tuple of Block)
        The axes of the operand over these dims, each with its blocks, the largest step first.
    params : tuple
        The same for each scale and zero point that differs along the dims.
    xor : tuple of (start, terms)
        For src and dst, if one is swizzled: the base where it starts, and its XOR terms.

    Examples
    --------
    >>> src, dst = (memdesc.memory_desc((2000, 3), "f32", tag) for tag in ("Ab47a", "Ab31a"))
    >>> (box,) = reorder.plan_reorder(src, dst).boxes
    >>> (loop,) = box.indirect
    >>> loop.extent  # the padded size: 65 blocks of 31
    2015
    >>> [table.tolist() for table in loop.tables(45, 49)]  # src wraps at 47, dst at 31
    [[45, 46, 141, 142], [107, 108, 109, 110]]
    """

    sizes: tuple[tuple[int, int], ...]
    src: tuple[tuple[Axis, tuple[Block, ...]], ...]
    dst: tuple[tuple[Axis, tuple[Block, ...]], ...]
    params: tuple[tuple[tuple[Axis, tuple[Block, ...]], ...], ...] = ()
    xor: tuple[tuple[int, Terms], ...] = ()

    @property
    def extent(self) -> int:
        """Number of steps."""
        return prod(axis.padded for axis, _ in self.dst)

    def tables(self, start: int, stop: int) -> tuple[NDArray[np.int64], ...]:
        """Return the indirection tables of a range of steps; `NOWHERE` marks padding in src's."""
        sizes = dict(self.sizes)
        outer = np.arange(start, stop, dtype=np.int64)
        dst = np.zeros_like(outer)
        is_padding = np.zeros(outer.shape, np.bool_)
        index: dict[int, NDArray[np.int64]] = {}
        for axis, blocks in reversed(self.dst):
            outer, i = np.divmod(outer, axis.padded)
            dst += block_offset(blocks, i)
            is_padding |= i >= prod(sizes[dim] for dim in axis.dims)
            for dim in reversed(axis.dims):
                i, index[dim] = np.divmod(i, sizes[dim])
        src, *params = (
            sum(
                (block_offset(blocks, axis_index(axis, sizes, index)) for axis, blocks in operand),
                start=np.zeros_like(outer),
            )
            for operand in (self.src, *self.params)
        )
        if self.xor:
            src, dst = (
                swizzled(terms, start + table)
                for (start, terms), table in zip(self.xor, (src, dst), strict=True)
            )
        src[is_padding] = NOWHERE
        return src, dst, *params

    def __str__(self) -> str:
        operands = [
            " ".join(_axis_string(axis, blocks) for axis, blocks in operand)
            for operand in (self.src, self.dst, *self.params)
        ]
        for k, (start, terms) in enumerate(self.xor):
            operands[k] = f"{start}+{operands[k]}" if start else operands[k]
            operands[k] += f" as o, {xor_expression('o', terms)}" if terms else ""
        return f"[{self.extent}: {' -> '.join(operands)}]"


@immutable
class Box(NamedTuple):
    """A loop nest over all operands: where it starts in each, and its loops.

    Parameters
    ----------
    offsets : tuple of int
        Elements from the start of each operand to the first element of the box.
    nodes : tuple of Node
        The loops, outermost first.
    indirect : tuple of IndirectLoop
        Loops without constant strides.

    Examples
    --------
    >>> src, dst = (memdesc.memory_desc((3, 2), "f32", tag) for tag in ("ab", "Ab2a"))
    >>> box = reorder.plan_reorder(src, dst).boxes[1]
    >>> print(box)
    @4:4 2:1:2 2(1):2:1
    >>> box.size, box.is_zero
    (4, False)
    """

    offsets: tuple[int, ...]
    nodes: tuple[Node, ...]
    indirect: tuple[IndirectLoop, ...] = ()

    @property
    def is_zero(self) -> bool:
        """Whether the box only writes zeros."""
        return any(node.valid == 0 for node in self.nodes)

    @property
    def size(self) -> int:
        """Number of elements that the box writes."""
        return prod(loop.extent for loop in self.indirect) * prod(
            node.extent for node in self.nodes
        )

    def __str__(self) -> str:
        return " ".join(
            [
                f"@{':'.join(map(str, self.offsets))}",
                *map(str, self.indirect),
                *map(str, self.nodes),
            ]
        )


def _axis_string(axis: Axis, blocks: tuple[Block, ...]) -> str:
    letters = "".join("abcdefghijkl"[dim] for dim in axis.dims)
    parts = [
        f"{letters}{f'/{b.step}' if b.step > 1 else ''}{f'%{b.extent}' if k else ''}*{b.stride}"
        for k, b in enumerate(blocks)
    ]
    return "+".join(parts)
