"""Prove, with bounded work, that two indices of a layout, or two layouts, share no element."""

from __future__ import annotations

from collections import Counter

from memdesc.diophantine import SearchLimitError, Term, solve
from memdesc.errors import OverlapError
from memdesc.layout import Layout, do_nest, index_of_digits, moving_blocks


def check_overlap(layout: Layout) -> None:
    """Refuse a layout in which two indices share an element.

    Broadcasts (stride 0) are ignored: they are legal in a source. Nearly all layouts have nested
    strides, each at least as large as the whole loop inside it, and need no search.
    """
    loops = moving_blocks(layout)
    if not layout.nelems or do_nest(loops):
        return
    # they overlap if index differences that are not all 0 add up to offset 0
    try:
        differences = [Term(block.stride, 1 - block.extent, block.extent - 1) for block in loops]
        values = solve(differences, 0, trivial=False)
    except SearchLimitError:
        strides, extents = [block.stride for block in loops], [block.extent for block in loops]
        raise OverlapError(
            f"strides {strides} of extents {extents} do not nest, and bounded work did not prove "
            "them free of overlap; order the strides so that each covers the ones inside it"
        ) from None
    if values is None:
        return
    # an index within the whole blocks may lie beyond the padded extent
    is_uneven = any(
        layout.axes[block.axis].padded % layout.outer(block.axis).step
        for block, value in zip(loops, values, strict=True)
        if value
    )
    where = " of the whole blocks, which padded_dims cut short," if is_uneven else ""
    first, second = (
        tuple(index_of_digits(layout, loops, [max(sign * value, 0) for value in values])[1])
        for sign in (-1, 1)
    )
    raise OverlapError(f"two indices{where} share one element, {first} and {second}")


def are_apart(
    left: tuple[Layout, int], right: tuple[Layout, int], distance: int, least: int
) -> bool:
    """Whether a bounded search proves that elements of two layouts share no bits.

    Each layout comes with the bits of its elements, which count as `least` bits if they are fewer.
    The second buffer starts `distance` bits after the first.
    """
    lows: Counter[int] = Counter()
    highs: Counter[int] = Counter()
    for (layout, bits), sign in ((left, 1), (right, -1)):
        for block in layout.blocks:
            stride = sign * block.stride * bits
            # loops with equal strides in both layouts are one loop over their difference
            end = (block.extent - 1) * (1 if stride > 0 else -1)
            if stride and block.extent > 1:
                lows[abs(stride)] += min(end, 0)
                highs[abs(stride)] += max(end, 0)
    lows[1] -= max(right[1], least) - 1
    highs[1] += max(left[1], least) - 1
    terms = [Term(stride, lows[stride], highs[stride]) for stride in lows]
    start = distance + right[0].offset0 * right[1] - left[0].offset0 * left[1]
    try:
        return solve(terms, start) is None
    except SearchLimitError:
        return False
