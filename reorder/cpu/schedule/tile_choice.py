"""Which boxes are moved or converted in tiles.

Apart from `tiles`, because plain moves do not load that.
"""

from memdesc.dtypes import BYTE_BITS
from reorder.cpu.schedule.select import select_kernel
from reorder.plan.nodes import Box
from reorder.plan.passes import pack_elements, simplify
from reorder.plan.plan import ReorderPlan

# Up to this many 4-bit elements are moved one by one: unpacking them would take longer.
_MAX_SINGLE_MOVES = 64
# Calling a kernel for fewer elements than this costs more than moving them.
_MIN_CALL_SIZE = 16


def needs_tiles(plan: ReorderPlan) -> bool:
    """Whether any box of a plan is converted, or moved through scratch."""
    return plan.converts or any(is_tiled(plan, box) for box in plan.boxes)


def is_tiled(plan: ReorderPlan, box: Box) -> bool:
    """Whether a box is converted, or moved through scratch.

    Boxes of equal types are moved through scratch if they are scattered on both sides: two moves
    are then faster than one. 4-bit elements are unpacked to bytes, moved and packed.
    """
    bits = plan.dst.dtype.bits
    if plan.converts:
        return True
    if box.indirect or box.is_zero:
        return False
    packed, packed_bits = pack_elements(box, bits)
    (packed,) = simplify((packed,))
    moves_bytes = bits < BYTE_BITS and box.size > _MAX_SINGLE_MOVES
    return packed_bits == bits and (moves_bytes or is_scattered(packed))


def is_scattered(box: Box) -> bool:
    """Whether two moves of a box are faster than one, because one call moves few elements.

    An example is a box between `8b16a2b` and `8a16b2a`, whose innermost pairs belong to two dims.
    """
    scheduled = select_kernel(box)
    is_small = scheduled.inner_size < _MIN_CALL_SIZE < box.size
    return is_small and scheduled.is_transposed and not box.indirect
