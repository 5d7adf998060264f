"""Comparison of two layouts: whether a reorder between them is a no-op, a view, or a copy."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from memdesc.desc import desc_of
from memdesc.immutable import immutable
from memdesc.layout import block_offset, dim_names
from memdesc.swizzle import period_of
from memdesc.tuples import NamedTuple
from reorder.plan.plan import check_pair, check_types

if TYPE_CHECKING:
    from memdesc import Block, Layout, MemoryDesc
    from memdesc.tags import FormatTag

NO_OP, VIEW, COPY = "no-op", "view", "copy"

# Tensors with more elements are not compared element by element; the answer is then a copy.
_MAX_COMPARED = 1 << 22


@immutable
class Relation(NamedTuple):
    """What a reorder of src into dst does.

    Parameters
    ----------
    kind : {"no-op", "view", "copy"}
        A no-op if a buffer of src is also a valid buffer of dst; a view if it is one when it is
        read from `shift` elements further on; a copy if elements move or zeros must be written.
    shift : int
        How many elements further on in src each element is than in dst.
    why : str
        The reason for the kind.

    Examples
    --------
    >>> whole = memdesc.memory_desc((4, 8), "f32", "ab")
    >>> part = whole.submemory((2, 8), (1, 0))
    >>> reorder.compare_layouts(part, memdesc.memory_desc((2, 8), "f32", "ab"))[:2]
    ('view', 8)
    """

    kind: str
    shift: int
    why: str


def compare_layouts(
    src: str | FormatTag | MemoryDesc, dst: str | FormatTag | MemoryDesc
) -> Relation:
    """Compare the offsets of two layouts; their names do not matter.

    *Law*: if the answer is not a copy, each element that dst describes, padding too, is at
    the same offset plus `shift` in src.

    Parameters
    ----------
    src, dst : MemoryDesc, str or FormatTag
        With the same dims. One of them may be a name, which then gets the dims and the data type of
        the other.

    Raises
    ------
    MemdescError
        If there is no reorder between them.

    Examples
    --------
    >>> plain = memdesc.memory_desc((8, 16, 1, 1), "f32", "nchw")
    >>> reorder.compare_layouts(plain, "nChw16c").kind, reorder.compare_layouts(plain, "chwn").kind
    ('no-op', 'copy')
    """
    src, dst = check_types(src, dst, None)
    check_pair(src, dst)
    if not dst.nelems:
        return Relation(NO_OP, 0, "there are no elements")
    if src.dtype != dst.dtype:
        return Relation(COPY, 0, f"elements are converted from {src.dtype} to {dst.dtype}")
    if dst.extra is not None and src.extra != dst.extra:
        return Relation(COPY, 0, "dst has compensation that src lacks: it must be computed")
    if not (src.layout.xor or dst.layout.xor):
        return _compare(src, dst)
    if src.layout.xor == dst.layout.xor:
        plain = (desc_of(desc.dtype, desc.layout.base(), None, desc.letters) for desc in (src, dst))
        relation = _compare(*plain)
        if relation.kind == COPY or relation.shift % period_of(src.layout.xor) == 0:
            return relation
    names = [
        f"swizzled by {layout.xor}" if layout.xor else "not swizzled"
        for layout in (src.layout, dst.layout)
    ]
    return Relation(COPY, 0, f"elements move: src is {names[0]}, dst is {names[1]}")


def _compare(src: MemoryDesc, dst: MemoryDesc) -> Relation:
    """Compare layouts that are not swizzled."""
    if reason := _why_elements_move(src.layout, dst.layout, dst.letters or src.letters):
        return Relation(COPY, 0, reason)
    if shift := src.offset0 - dst.offset0:
        distance = "1 element" if abs(shift) == 1 else f"{abs(shift)} elements"
        direction = "later" if shift > 0 else "earlier"
        reason = (
            f"the elements are arranged in the same way, {distance} {direction} in src than in dst"
        )
        return Relation(VIEW, shift, reason)
    padding = ", and src has all of dst's padding" if dst.has_padding else ""
    return Relation(NO_OP, 0, f"every element has the same offset in both{padding}")


def _why_elements_move(src: Layout, dst: Layout, letters: str | None) -> str:
    """Return why elements move, axis by axis: an offset is a sum of one term for each axis."""
    if [axis.dims for axis in src.axes] != [axis.dims for axis in dst.axes]:
        return _why_fused_elements_move(src, dst)
    for k, axis in enumerate(dst.axes):
        blocks = src.axis_blocks(k), dst.axis_blocks(k)
        if src.axes[k] == axis and blocks[0] == blocks[1]:
            continue
        names = dim_names(axis.dims, letters)
        first = _first_difference(*blocks, axis.padded)
        if first is None:
            return (
                f"the blocks of {names} do not divide each other; {axis.padded} indices are not "
                "compared one by one"
            )
        if first < dst.axis_size(k):
            in_src, in_dst = (block_offset(layout, first) for layout in blocks)
            return (
                f"elements move: from index 0 to index {first} of {names} the offset changes by "
                f"{in_src} in src, by {in_dst} in dst"
            )
        if first < axis.padded or src.axes[k].padded < axis.padded:
            return f"dst has padding in {names} where src has none: zeros must be written"
    return ""


def _why_fused_elements_move(src: Layout, dst: Layout) -> str:
    fused = "dims are fused on one side only"
    if dst.has_padding:
        return f"{fused}, and dst is padded: zeros must be written"
    if dst.nelems > _MAX_COMPARED:
        return f"{fused}; {dst.nelems} elements are not compared one by one"
    moved = np.argwhere(src.offsets() - src.offset0 != dst.offsets() - dst.offset0)
    return f"elements move: the first is {tuple(map(int, moved[0]))}" if len(moved) else ""


def _first_difference(src: tuple[Block, ...], dst: tuple[Block, ...], stop: int) -> int | None:
    """Return the first index below `stop` where two offsets differ, or `stop` if none does.

    None if that would take too much work to find out. If each step of either operand divides the
    next larger one, both offsets are linear in the digits of an index in that mixed radix, so it is
    enough to compare the indices that equal a step.
    """
    steps = sorted({block.step for block in (*src, *dst)})
    if all(large % small == 0 for small, large in pairwise(steps)):
        return next(
            (
                step
                for step in steps
                if step < stop and block_offset(src, step) != block_offset(dst, step)
            ),
            stop,
        )
    if stop > _MAX_COMPARED:
        return None
    indices = np.arange(stop)
    differing = np.flatnonzero(block_offset(src, indices) != block_offset(dst, indices))
    return int(differing[0]) if len(differing) else stop
