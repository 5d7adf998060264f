"""Which boxes of a plan run tile by tile: a pure function, so that plain moves load no codecs."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from reorder.cpu.schedule.select import TRANSPOSED, select
from reorder.plan.passes import pack_elements, simplify

if TYPE_CHECKING:
    from reorder.plan.nodes import Box
    from reorder.plan.plan import ReorderPlan

__all__ = ["is_scattered", "is_tiled", "needs_tiles"]

_BYTE_BITS = 8
# 4-bit elements that are too few to be unpacked.
_FEW = 64
# Elements that are too few for a call of a kernel.
_MIN_CALL_SIZE = 64


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
    if packed_bits != bits:
        return False
    (packed,) = simplify((packed,))
    return is_scattered(packed) or (bits < _BYTE_BITS and box.size > _FEW)


def is_scattered(box: Box) -> bool:
    """Whether two moves of a box are faster than one: no kernel takes more than a few elements.

    So it is where each side has pairs of another dim, as `8b16a2b` and `8a16b2a` have.
    """
    choice = select(box)
    size = prod(node.extent for node in (*choice.rows, *choice.columns))
    if choice.micro_kernel != TRANSPOSED or size >= _MIN_CALL_SIZE:
        return False
    return box.size > _MIN_CALL_SIZE and not box.lookups
