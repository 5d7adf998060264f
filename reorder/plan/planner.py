"""`plan_reorder`: the plan of two descriptors, made once."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from reorder.plan.plan import ReorderPlan, check_types

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from memdesc.tags import FormatTag
    from reorder.values.attr import Attr


def plan_reorder(
    src: str | FormatTag | MemoryDesc,
    dst: str | FormatTag | MemoryDesc,
    attr: Attr | None = None,
) -> ReorderPlan:
    """Plan how to move, and convert, the elements of one descriptor into another.

    The last plans are cached, so equal arguments of the same spelling (`MemoryDesc.spelling`)
    usually give the same object. Plans are not cached if the arrays of `attr` exceed 64 KiB, since
    the cache would keep these in memory.

    Parameters
    ----------
    src, dst : MemoryDesc, str or FormatTag
        Of the same dims. One of them may be a name: then it has the dims and the data type of the
        other.
    attr : Attr, optional
        Scales, zero points, accumulation.

    Raises
    ------
    MemdescError
        If dims differ, a stride of 0 makes dst write one element twice, or the
        attributes do not fit.

    Examples
    --------
    >>> src = memdesc.memory_desc((8, 17, 56, 56), "f32", "nchw")
    >>> (box,) = reorder.plan_reorder(src, "nhwc").boxes
    >>> for node in box.nodes:
    ...     print(node)
    8:53312:53312
    3136:1:17
    17:3136:1
    >>> box.offsets, box.nodes[0]
    ((0, 0), Node(extent=8, valid=8, strides=(53312, 53312)))
    """
    src, dst = check_types(src, dst, attr)
    if attr is not None and attr.is_large:
        return ReorderPlan(src, dst, attr)
    plan = _plan(src, dst, attr)
    if plan.src is src and plan.dst is dst:
        return plan
    spelling = src.spelling, dst.spelling
    if spelling == (plan.src.spelling, plan.dst.spelling):
        return plan
    return _spelled(src, dst, attr, spelling)


_plan = lru_cache(maxsize=4096)(ReorderPlan)


@lru_cache(maxsize=1024)
def _spelled(
    src: MemoryDesc, dst: MemoryDesc, attr: Attr | None, _spelling: tuple[str, str]
) -> ReorderPlan:
    """Return the plan of descriptors that equal those of another plan, but are shown otherwise."""
    return ReorderPlan(src, dst, attr)
