"""Attributes of a box: the scales and zero points of its elements."""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING, Any

from reorder.values.attr import Attr
from reorder.values.parameter import GROUPED_DIMS

if TYPE_CHECKING:
    from reorder.plan.plan import ReorderPlan

__all__ = ["attr_of_box", "groups_along"]


def groups_along(attr: Attr | None, ndims: int) -> tuple[int, ...]:
    """Return for each dim what offsets of boxes are multiples of, so that they cut no group."""
    groups = [1] * ndims
    for parameter in () if attr is None else attr.parameters:
        for k, group in enumerate(parameter.groups):
            dim = ndims - GROUPED_DIMS + k
            groups[dim] = lcm(groups[dim], group)
    return tuple(groups)


def attr_of_box(plan: ReorderPlan, sizes: tuple[int, ...], offsets: tuple[int, ...]) -> Attr | None:
    """Return the attributes of a plan for a box of its dims."""
    if plan.attr is None or not plan.attr.parameters:
        return plan.attr
    operands = {operand.role: operand for operand in plan.bound_attr.operands}
    given: dict[str, Any] = {}
    for parameter in plan.attr.parameters:
        role, operand = parameter.role, operands[parameter.role]
        along = [
            slice(at // group, (at + size) // group) if operand.mask >> dim & 1 else slice(None)
            for dim, (at, size, group) in enumerate(
                zip(offsets, sizes, operand.groups, strict=True)
            )
        ]
        values = parameter.values.reshape(operand.sizes)[tuple(along)]
        given[role] = values.reshape(-1) if parameter.mask else parameter.values
        given[f"{role}_mask"] = parameter.mask
        given[f"{role}_groups"] = parameter.groups
    return Attr(
        **given,
        beta=plan.attr.beta,
        saturate=plan.attr.saturate,
        f8_rounding=plan.attr.f8_rounding,
    )
