"""Selection of the boxes that run tile by tile: pure functions; plain moves load no codecs."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from reorder.cpu.schedule.select import TRANSPOSED, select
from reorder.cpu.target import BYTE_BITS
from reorder.plan.passes import pack_elements, simplify

if TYPE_CHECKING:
    from reorder.plan.nodes import Box
    from reorder.plan.plan import ReorderPlan

__all__ = ["is_scattered", "is_tiled", "needs_tiles"]

# Up to this many 4-bit elements are moved one by one: unpacking them would take longer.
_MAX_SINGLE_MOVES = 64
# A call of a kernel for fewer elements than this costs more than the elements.
_MIN_CALL_SIZE = 16
# Matrices with these numbers of rows and columns are too large to be interleaved and too small for
# vectors; two moves are faster if elements have at most these bits.
_SMALL_SIDES, _MAX_SMALL_BITS = range(5, 8), 16


def needs_tiles(plan: ReorderPlan) -> bool:
    """Whether any box of a plan is converted, or moved through scratch."""
    return plan.converts or any(is_tiled(plan, box) for box in plan.boxes)


def is_tiled(plan: ReorderPlan, box: Box) -> bool:
    """Whether a box is converted, or moved through scratch.

    Boxes of equal types are moved through scratch where they are scattered on both sides: two
    moves are then faster than one. 4-bit elements are unpacked to bytes, moved and packed.
    """
    bits = plan.dst.dtype.bits
    if plan.converts:
        return True
    if box.lookups or box.is_zero:
        return False
    packed, packed_bits = pack_elements(box, bits)
    (packed,) = simplify((packed,))
    return packed_bits == bits and (
        is_scattered(packed, bits) or (bits < BYTE_BITS and box.size > _MAX_SINGLE_MOVES)
    )


def is_scattered(box: Box, bits: int) -> bool:
    """Whether two moves of a box are faster than one, because one call moves few elements.

    Examples are a box between `8b16a2b` and `8a16b2a`, whose innermost pairs are of two dims, and
    matrices of 5 x 5 bytes, one behind the other.
    """
    choice = select(box)
    if choice.micro_kernel != TRANSPOSED or box.size <= _MIN_CALL_SIZE or box.lookups:
        return False
    sides = [prod(node.extent for node in group) for group in (choice.rows, choice.columns)]
    is_small = all(side in _SMALL_SIDES for side in sides) and bits <= _MAX_SMALL_BITS
    return is_small or choice.size < _MIN_CALL_SIZE
