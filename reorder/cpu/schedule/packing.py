"""Packing for the micro-kernels: elements that stay neighbours become wider ones, anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.cpu.schedule.select import TRANSPOSED, select
from reorder.cpu.target import BYTE_BITS
from reorder.plan.nodes import Node
from reorder.plan.passes import pack_elements, simplify

if TYPE_CHECKING:
    from reorder.plan.nodes import Box

__all__ = ["pack_for_kernels"]

# Bits of the widest element that kernels move.
_WIDEST = 64
# Loop groups of fewer wide elements than this are no faster than runs.
_MIN_WIDE_SIZE = 16


def pack_for_kernels(box: Box, bits: int) -> tuple[Box, int, int]:
    """Pack elements, and simplify the box.

    Returns
    -------
    tuple of Box, int and int
        The box, the bits of its elements, and the stride between neighbouring ones. Where wide
        elements start between two places of their width (rows of an odd number of bytes), strides
        are in narrow ones. That is done for transpositions of whole runs: their vectors are loaded
        and stored at any byte.
    """
    packed, bits = pack_elements(box, bits)
    (packed,) = simplify((packed,))
    *outer, run = packed.nodes or (Node(1, 1, (1, 1)),)
    width = run.extent * bits
    is_run = run.strides == (1, 1) and run.valid == run.extent > 1
    if bits < BYTE_BITS or not is_run or width > _WIDEST or width & (width - 1) or packed.lookups:
        return packed, bits, 1
    wide = packed._replace(nodes=tuple(outer))
    choice = select(wide, run.extent)
    if choice.micro_kernel != TRANSPOSED or choice.size < _MIN_WIDE_SIZE:
        return packed, bits, 1
    return wide, width, run.extent
