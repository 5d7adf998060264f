"""Kernel lines that compute the loop indices of a work item, and where operands are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.codegen.params import is_last_in_dimension
from reorder.opencl.codegen.pattern import AccessKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import Access, Pattern

__all__ = ["guarded", "index_lines", "start_lines"]


def index_lines(pattern: Pattern) -> Iterator[str]:
    """Return the indices of a work item: i0, i1, ... of loops, and g0, g1, ... of gathers."""
    yield "uint item = get_local_id(0);"
    for dim in sorted(
        {loop.grid_dim for loop in pattern.loops} | ({0} if pattern.gathers else set())
    ):
        yield f"uint group{dim} = get_group_id({dim});"
    for k, loop in enumerate(pattern.loops):
        is_last = is_last_in_dimension(pattern, k)
        dim = loop.grid_dim
        group = f"group{dim}" if is_last else f"group{dim} % (uint)p.groups{k}"
        tile = f"(index_t)({group}){f' * {loop.steps}' if loop.steps > 1 else ''}"
        yield f"const index_t i{k} = (({tile}) << p.shift{k}) + {_digit(f'shift{k}')};"
        yield f"item >>= p.shift{k};"
        if not is_last:
            yield f"group{dim} /= (uint)p.groups{k};"
    for k in range(len(pattern.gathers)):
        is_last = k == len(pattern.gathers) - 1
        shift = f"gather{k}_shift"
        group = "group0" if is_last else f"group0 % (uint)p.gather{k}_groups"
        yield f"const index_t g{k} = ((index_t)({group}) << p.{shift}) + {_digit(shift)};"
        yield f"item >>= p.{shift};"
        if not is_last:
            yield f"group0 /= (uint)p.gather{k}_groups;"


def _digit(shift: str) -> str:
    """Return the lowest bits of the rest of the local id."""
    return f"(index_t)(item & ((1u << p.{shift}) - 1))"


def start_lines(pattern: Pattern, operand: str, access: Access) -> Iterator[str]:
    """Return the coordinates of an operand at the indices of a work item."""
    loops = range(len(pattern.loops))
    if access.kind == AccessKind.IMAGE:
        for c in "xy":
            terms = [f"p.{operand}_{c}", *(f"i{k} * p.{operand}_{c}{k}" for k in loops)]
            yield f"const int {operand}_{c} = (int)({' + '.join(terms)});"
    elif access.kind != AccessKind.NONE:
        terms = [
            f"p.{operand}",
            *(f"i{k} * p.{operand}{k}" for k in loops),
            *(f"gather{k}_{operand}" for k in range(len(pattern.gathers))),
        ]
        yield f"const index_t {operand}_offset = {' + '.join(terms)};"


def guarded(conditions: list[str], statement: str) -> str:
    """Return a statement that runs if all conditions hold."""
    return f"if ({' && '.join(conditions)}) {statement}" if conditions else statement
