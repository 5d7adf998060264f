"""Selection of the boxes that run tile by tile: pure functions; plain moves load no codecs."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from reorder.cpu.convert.permutation import has_permuted_rows
from reorder.cpu.schedule.select import TRANSPOSED, select
from reorder.cpu.target import BYTE_BITS, LINE_BITS, has_byte_permutations
from reorder.plan.passes import pack_elements, simplify, src_and_dst

if TYPE_CHECKING:
    from reorder.plan.nodes import Box, Node
    from reorder.plan.plan import ReorderPlan

__all__ = ["find_joined", "is_permuted", "is_scattered", "is_tiled", "needs_tiles"]

# Up to this many 4-bit elements are moved one by one: unpacking them would take longer.
_MAX_SINGLE_MOVES = 64
# A call of a kernel for fewer elements than this costs more than the elements.
_MIN_CALL_SIZE = 16
# Matrices with these numbers of rows and columns are too large to be interleaved and too small for
# vectors; two moves are faster if elements have at most these bits.
_SMALL_SIDES, _MAX_SMALL_BITS = range(5, 8), 16
# Elements that one side joins: fours of bytes and pairs of 16-bit elements.
_JOINED_BITS = 32
# Two moves are then faster if the innermost run of the other side has at most so many bits: where
# that is dst, and the elements to be joined lie near or apart; where it is src, for the bits of an
# element, since wider ones take fewer shuffles.
_SHORT_DST_BITS, _SHORT_APART_BITS, _SHORT_SRC_BITS = 144, 48, {8: 56, 16: 48}
# Wide elements are permuted in groups of up to a line: larger ones are interleaved as fast.
_MAX_NARROW_BITS = 16


def needs_tiles(plan: ReorderPlan, *, exceeds: bool) -> bool:
    """Whether any box of a plan is converted, or moved through scratch."""
    return plan.converts or any(is_tiled(plan, box, exceeds=exceeds) for box in plan.boxes)


def is_tiled(plan: ReorderPlan, box: Box, *, exceeds: bool) -> bool:
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
    if bits >= BYTE_BITS and is_permuted(packed, packed_bits):
        return True
    return packed_bits == bits and (
        is_scattered(packed, bits)
        or (bits < BYTE_BITS and box.size > _MAX_SINGLE_MOVES)
        or (not exceeds and find_joined(packed, bits) is not None)
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


def is_permuted(box: Box, bits: int) -> bool:
    """Whether the bytes of rows of a box that are contiguous on both sides are permuted at once.

    Examples are matrices of 5 x 5 bytes, one behind the other, and `4b` of filters of 3 x 3.
    """
    has_padding = any(node.valid < node.extent for node in box.nodes)
    if not has_byte_permutations() or has_padding or box.lookups or box.size <= _MIN_CALL_SIZE:
        return False
    if bits > _MAX_NARROW_BITS and select(box).size * bits > LINE_BITS:
        return False
    return has_permuted_rows(src_and_dst(box).nodes, bits)


def find_joined(box: Box, bits: int) -> Node | None:
    """Return the loop whose elements become neighbours in scratch, in the order of the other side.

    Then one of two moves moves wide elements, and the other one permutes bytes, or interleaves.
    That is faster than one move where the other side has short runs, such as 9 bytes in fours of
    filters of 3 x 3.
    """
    if not has_byte_permutations() or box.lookups or box.size <= _MIN_CALL_SIZE:
        return None
    for side in (0, 1):
        joined = next((node for node in box.nodes if node.strides[side] == 1), None)
        run = next((node for node in box.nodes if node.strides[1 - side] == 1), None)
        if joined is None or run is None or joined is run:
            continue
        if any(node.valid < node.extent for node in (joined, run)):
            continue
        if run.extent * bits == _JOINED_BITS and is_scattered(box, bits):
            # both sides join as many: the two moves of scattered boxes have wide elements
            continue
        if joined.extent * bits == _JOINED_BITS and _is_short(joined, run, 1 - side, bits):
            return joined
    return None


def _is_short(joined: Node, run: Node, side: int, bits: int) -> bool:
    """Whether an innermost run of a side is short, for elements that are joined on the other."""
    nbits = run.extent * bits
    is_near = joined.strides[side] == run.extent
    if side == 1:
        return nbits <= (_SHORT_DST_BITS if is_near else _SHORT_APART_BITS)
    return is_near and nbits <= _SHORT_SRC_BITS.get(bits, 0)
