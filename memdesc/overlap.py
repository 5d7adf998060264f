"""Whether two indices of a layout share an element: a proof, within bounded work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc.errors import OverlapError
from memdesc.int64 import INT64_MAX
from memdesc.layout import dim_name
from memdesc.search import SearchLimitError, Term, solve

if TYPE_CHECKING:
    from memdesc.layout import Block, Layout

__all__ = ["check_nesting", "check_overlap"]


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
    loops = sorted(
        [
            (abs(stride), extent, k)
            for k, (_, _, extent, stride) in enumerate(layout.blocks)
            if extent > 1 and stride
        ]
    )
    need = 1
    for stride, extent, _ in loops:
        if stride < need:
            _search(layout, [layout.blocks[k] for _, _, k in reversed(loops)])
            return
        need = stride * extent


def _search(layout: Layout, loops: list[Block]) -> None:
    try:
        moves = solve(
            (Term(block.stride, 1 - block.extent, block.extent - 1) for block in loops),
            0,
            trivial=False,
        )
    except SearchLimitError:
        msg = (
            f"strides {[block.stride for block in loops]} of extents {[block.extent for block in loops]} do not nest, and bounded "
            "work did not prove them free of overlap; order the strides so that each covers the ones inside it"
        )
        raise OverlapError(msg) from None
    if moves is None:
        return
    named = [
        f"{move:+d} in {dim_name(layout.axes[block.axis].dims[0])} (stride {block.stride})"
        for block, move in zip(loops, moves, strict=True)
        if move
    ]
    # an index of such an axis may lie beyond its padded extent
    ragged = any(
        layout.axes[block.axis].padded % layout.outer(block.axis).step
        for block, move in zip(loops, moves, strict=True)
        if move
    )
    where = " of the whole blocks, which padded_dims cut short," if ragged else ""
    msg = f"two indices{where} share one element: the moves {', '.join(named)} lead back to it"
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
        return (
            outer.stride,
            not is_blocked,
            outer.extent if is_blocked else padded,
            -outer.axis if is_blocked else outer.axis,
        )

    for outer in sorted((layout.outer(k) for k in range(layout.ndims)), key=order):
        if outer.stride == 0 or layout.axes[outer.axis].padded == 1:
            continue
        name = dim_name(outer.axis)
        if outer.stride < need:
            msg = (
                f"strict: stride {outer.stride} of {name} does not cover the {need} elements "
                "inside it"
            )
            raise OverlapError(msg)
        if bits == 4 and outer.stride > 1 and outer.stride % 2:  # noqa: PLR2004 - two elements share a byte
            msg = (
                f"strict: stride {outer.stride} of {name} is odd, so rows of 4-bit elements "
                "would start inside a byte"
            )
            raise OverlapError(msg)
        if outer.stride * whole * outer.extent > INT64_MAX:
            msg = (
                f"strict: stride {outer.stride} of {name} times its extent leaves the range "
                "of int64"
            )
            raise OverlapError(msg)
        need = outer.stride * outer.extent
