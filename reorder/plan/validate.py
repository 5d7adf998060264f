"""The bounds of the boxes of a plan, so that no plan made by hand leads outside of buffers."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memdesc import MemdescError
from memdesc.int64 import INT64_MAX
from reorder.plan.plan import ReorderPlan, check_types, is_planned, plan_reorder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reorder.plan.nodes import Box, Lookup

__all__ = ["check_fields", "validate"]

_MAX_NODES = 64
# the index of dst among operands
_DST = 1
_COUNTS = ("two", "three", "four", "five", "six")


def check_fields(plan: object) -> None:
    """Refuse what is no plan, by the types of its fields; boxes are not looked at.

    Raises
    ------
    MemdescError
        With the type that was given.
    """
    if not isinstance(plan, ReorderPlan):
        msg = f"a ReorderPlan is needed, not {type(plan).__name__}; see plan_reorder"
        raise MemdescError(msg)
    check_types(plan.src, plan.dst, plan.attr)
    if not isinstance(plan.boxes, tuple | list):
        msg = (  # type: ignore[unreachable] # callers without types
            f"boxes must be a tuple of Box, not {type(plan.boxes).__name__}"
        )
        raise MemdescError(msg)


def validate(plan: ReorderPlan) -> ReorderPlan:
    """Return a plan whose boxes stay inside of its descriptors; refuse others.

    Plans of `plan_reorder` do. Others are compared with what it makes, and if they are not
    equal, the offsets that each box may touch are.

    Raises
    ------
    MemdescError
        With the box and the numbers.
    """
    check_fields(plan)
    if is_planned(plan):
        return plan
    planned = plan_reorder(plan.src, plan.dst, plan.attr)
    if plan == planned:
        return planned
    varying = plan.bound_attr.varying
    lasts = [(repr(plan.src), plan.src.layout.last), (repr(plan.dst), plan.dst.layout.last)]
    lasts += [(f"{operand.sizes}", prod(operand.sizes) - 1) for operand in varying]
    names = ["src", "dst", *(operand.role for operand in varying)]
    for box in plan.boxes:
        try:
            bounds = _bounds(box, len(names))
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
            msg = (
                f"{box!r} is no box of {_COUNTS[len(names) - 2]} operands whose nodes have 1 or "
                "more steps, and no more valid ones"
            )
            raise MemdescError(msg) from None
        for (low, high), (described, last), name in zip(bounds, lasts, names, strict=True):
            if low < 0 or high > last:
                msg = (
                    f"box {box} reaches offsets {low} to {high} of {name}, but {described} ends "
                    f"at {last}"
                )
                raise MemdescError(msg)
    return plan


def _bounds(box: Box, count: int) -> list[tuple[int, int]]:
    """Return the lowest and the highest offset that a box may touch in each of its operands.

    Raises ValueError and others where the box breaks a rule.
    """
    _require_ints(box.offsets)
    for node in box.nodes:
        _require_ints((node.extent, node.valid, *node.strides))
        if not 0 <= node.valid <= node.extent or not node.extent or len(node.strides) != count:
            raise ValueError
    for lookup in box.lookups:
        _check_lookup(lookup, count)
    if (
        len(box.offsets) != count
        or len(box.nodes) > _MAX_NODES
        or prod(node.extent for node in box.nodes) > INT64_MAX
    ):
        raise ValueError
    bounds = []
    for operand, offset in enumerate(box.offsets):
        # nothing is read where zeros are written
        if operand != _DST and box.is_zero:
            bounds.append((0, 0))
            continue
        steps = [step for lookup in box.lookups for step in _lookup_steps(lookup, operand)]
        for node in box.nodes:
            moves = node.extent if operand == _DST else max(node.valid, 1)
            steps.append(node.strides[operand] * (moves - 1))
        low, high = (offset + sum(pick(step, 0) for step in steps) for pick in (min, max))
        bounds.append((low, high))
    return bounds


def _require_ints(numbers: Iterable[object]) -> None:
    """Refuse numbers of numpy, which would wrap around, and what int64 does not hold."""
    if any(type(number) is not int or abs(number) > INT64_MAX for number in numbers):
        raise ValueError


def _check_lookup(lookup: Lookup, count: int) -> None:
    """Refuse a lookup that does not have the axes of all operands over the same dims."""
    sizes = dict(lookup.sizes)
    operands = (lookup.src, lookup.dst, *lookup.others)
    if len(operands) != count:
        raise ValueError
    for operand in operands:
        dims: list[int] = []
        for axis, blocks in operand:
            positive = [axis.padded]
            for block in blocks:
                _require_ints((block.step, block.extent, block.stride))
                positive += [block.step, block.extent]
            positive += [sizes[dim] for dim in axis.dims]
            _require_ints(positive)
            if not blocks or not axis.dims or min(positive) < 1:
                raise ValueError
            dims += axis.dims
        if sorted(dims) != sorted(sizes):
            raise ValueError


def _lookup_steps(lookup: Lookup, operand: int) -> Iterator[int]:
    """Yield the largest offset, or the least, that each block of one operand adds."""
    sizes = dict(lookup.sizes)
    for axis, blocks in (lookup.src, lookup.dst, *lookup.others)[operand]:
        # dst is written beyond its size too
        size = axis.padded if operand == _DST else prod(sizes[dim] for dim in axis.dims)
        for k, block in enumerate(blocks):
            # the first block counts without an end
            digits = (size - 1) // block.step
            yield (min(block.extent - 1, digits) if k else digits) * block.stride
