"""How far the boxes of a plan reach, so that no plan made by hand leads outside of buffers."""

from __future__ import annotations

from math import prod
from operator import index as to_int
from typing import TYPE_CHECKING

from memdesc import MemdescError
from reorder.plan.plan import ReorderPlan, plan_reorder
from reorder.values.binding import bind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.plan.nodes import Box, Lookup

__all__ = ["check_plan"]

_MAX_STEPS, _MAX_NODES = 2**63 - 1, 64
_DST = 1
_COUNTS = ("two", "three", "four", "five", "six")


def check_plan(plan: object) -> None:
    """Refuse a plan whose boxes leave its descriptors; those of `plan_reorder` never do.

    Raises
    ------
    MemdescError
        With the box and the numbers.
    """
    if not isinstance(plan, ReorderPlan):
        msg = f"a ReorderPlan is needed, not {type(plan).__name__}; see plan_reorder"
        raise MemdescError(msg)
    planned = plan_reorder(plan.src, plan.dst, plan.attr)
    if plan is planned or plan == planned:
        return
    varying = [
        operand for operand in bind(plan.attr, plan.src, plan.dst).operands if not operand.is_scalar
    ]
    ends = [(repr(plan.src), plan.src.layout.last), (repr(plan.dst), plan.dst.layout.last)]
    ends += [(f"{operand.sizes}", prod(operand.sizes) - 1) for operand in varying]
    names = ["src", "dst", *(operand.role for operand in varying)]
    for box in plan.boxes:
        try:
            reaches = [_reach(box, side, len(ends)) for side in range(len(ends))]
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
            msg = f"{box!r} is no box of {_COUNTS[len(ends) - 2]} operands whose nodes have 1 or more steps, and no more valid ones"
            raise MemdescError(msg) from None
        for (low, high), (text, last), side in zip(reaches, ends, names, strict=True):
            if low < 0 or high > last:
                msg = f"box {box} reaches offsets {low} to {high} of {side}, but {text} ends at {last}"
                raise MemdescError(msg)


def _reach(box: Box, side: int, sides: int) -> tuple[int, int]:
    """Return the lowest and the highest offset of one operand that a box may touch."""
    numbers = [
        *box.offsets,
        *(number for node in box.nodes for number in (node.extent, node.valid, *node.strides)),
    ]
    if any(type(number) is not int or abs(number) > _MAX_STEPS for number in numbers):
        raise ValueError  # numbers of numpy would wrap around
    at = [to_int(offset) for offset in box.offsets]
    steps = [step for lookup in box.lookups for step in _lookup_steps(lookup, side)]
    for extent, valid, strides in box.nodes:
        if not 0 <= to_int(valid) <= to_int(extent) or not extent or len(strides) != sides:
            raise ValueError
        steps.append(to_int(strides[side]) * ((extent if side == _DST else max(valid, 1)) - 1))
    if (
        len(at) != sides
        or len(box.nodes) > _MAX_NODES
        or prod(node[0] for node in box.nodes) > _MAX_STEPS
    ):
        raise ValueError
    # nothing is read where zeros are written
    is_unread = side != _DST and box.is_zero
    return (
        (0, 0)
        if is_unread
        else (
            at[side] + sum(min(step, 0) for step in steps),
            at[side] + sum(max(step, 0) for step in steps),
        )
    )


def _lookup_steps(lookup: Lookup, side: int) -> Iterator[int]:
    sizes = dict(lookup.sizes)
    for axis, blocks in (lookup.src, lookup.dst, *lookup.others)[side]:
        last = (axis.padded if side == _DST else prod(sizes[dim] for dim in axis.dims)) - 1
        for k, block in enumerate(sorted(blocks, key=lambda block: -block.step)):
            yield (
                min(block.extent - 1, last // block.step) if k else last // block.step
            ) * block.stride
