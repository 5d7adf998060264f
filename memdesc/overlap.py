"""Whether two indices of a layout share an element: a proof, within bounded work."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from memdesc.errors import OverlapError
from memdesc.layout import INT64_MAX, dim_name

if TYPE_CHECKING:
    from memdesc.layout import Block, Layout

__all__ = ["check_nesting", "check_overlap"]

# Visits of the search; 20,000 take about 20 ms.
_BUDGET = 20_000


def check_overlap(layout: Layout) -> None:
    """Refuse a layout in which two indices share an element.

    Broadcasts (stride 0) are not looked at: they are legal in a source.

    Raises
    ------
    OverlapError
        With a witness, or saying that bounded work could not prove it disjoint.
    """
    if not layout.nelems:
        return
    loops = sorted([(abs(stride), extent, k) for k, (_, _, extent, stride) in enumerate(layout.blocks) if extent > 1 and stride])
    need = 1
    for stride, extent, _ in loops:
        if stride < need:
            _search(layout, [layout.blocks[k] for _, _, k in reversed(loops)])
            return
        need = stride * extent


def _search(layout: Layout, loops: list[Block]) -> None:
    """Look for index differences, not all zero, whose offsets cancel.

    Loops come with falling strides. What the loops inside can still reach bounds each
    difference to a few values, so nearly nested strides take a handful of visits.
    """
    strides = [abs(block.stride) for block in loops]
    reach = [0] * (len(loops) + 1)
    common = [0] * (len(loops) + 1)
    for k in reversed(range(len(loops))):
        reach[k] = reach[k + 1] + (loops[k].extent - 1) * strides[k]
        common[k] = gcd(common[k + 1], strides[k])
    visits = 0
    # (loop, offset to cancel, differences so far)
    stack: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, ())]
    while stack:
        k, rest, chosen = stack.pop()
        if k == len(loops):
            if any(chosen):
                _refuse(layout, loops, chosen)
            continue
        low = max(-((reach[k + 1] + rest) // strides[k]), 1 - loops[k].extent)
        high = min((reach[k + 1] - rest) // strides[k], loops[k].extent - 1)
        if not any(chosen):
            low = 0  # a difference and its negative are one witness
        visits += max(high - low, 0) + 1
        if visits > _BUDGET:
            msg = (
                f"strides {[block.stride for block in loops]} of extents {[block.extent for block in loops]} do not nest, and "
                f"{_BUDGET} steps did not prove them free of overlap; order the strides so that each covers the ones inside"
            )
            raise OverlapError(msg)
        for difference in range(low, high + 1):
            left = rest + difference * strides[k]
            if left == 0 if common[k + 1] == 0 else left % common[k + 1] == 0:
                stack.append((k + 1, left, (*chosen, difference)))


def _refuse(layout: Layout, loops: list[Block], chosen: tuple[int, ...]) -> None:
    moves = [
        f"{difference:+d} in {dim_name(layout.axes[block.axis].dims[0])} (stride {block.stride})"
        for block, difference in zip(loops, (d * (1 if b.stride > 0 else -1) for d, b in zip(chosen, loops, strict=True)), strict=True)
        if difference
    ]
    msg = f"two indices share one element: the moves {', '.join(moves)} lead back to it"
    raise OverlapError(msg)


def check_nesting(layout: Layout, bits: int) -> None:
    """Refuse strides that oneDNN refuses: each must cover the ones inside it.

    Source: oneDNN 3.13, `memory_desc.cpp`. Broadcasts pass. It rejects some layouts
    without overlap, such as dims (2, 2, 2) with strides (3, 1, 5).

    Raises
    ------
    OverlapError
        With the dim and the numbers.
    """
    if not all(layout.padded_dims()):
        return
    tile = layout.tile()
    need = 1
    blocked = {block.axis for block in tile}
    for block in tile:
        need *= block.extent
    whole = need

    def order(outer: Block) -> tuple[int, ...]:
        padded = layout.axes[outer.axis].padded
        is_blocked = outer.axis in blocked
        return (outer.stride, not is_blocked, outer.extent if is_blocked else padded, -outer.axis if is_blocked else outer.axis)

    for outer in sorted((layout.outer(k) for k in range(layout.ndims)), key=order):
        if outer.stride == 0 or layout.axes[outer.axis].padded == 1:
            continue
        name = dim_name(outer.axis)
        if outer.stride < need:
            msg = f"strict: stride {outer.stride} of {name} does not cover the {need} elements inside it"
            raise OverlapError(msg)
        if bits == 4 and outer.stride > 1 and outer.stride % 2:  # noqa: PLR2004 - two elements share a byte
            msg = f"strict: stride {outer.stride} of {name} is odd, so rows of 4-bit elements would start inside a byte"
            raise OverlapError(msg)
        if outer.stride * whole * outer.extent > INT64_MAX:
            msg = f"strict: stride {outer.stride} of {name} times its extent leaves the range of int64"
            raise OverlapError(msg)
        need = outer.stride * outer.extent
