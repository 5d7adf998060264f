"""A kernel body in which each work item copies pixels or elements, without local memory."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from reorder.opencl.codegen.access import load, store
from reorder.opencl.codegen.convert import code_type
from reorder.opencl.codegen.element_types import ELEMENT_TYPES, value_type
from reorder.opencl.codegen.gather import gather_lines
from reorder.opencl.codegen.indices import guarded, index_lines, start_lines
from reorder.opencl.codegen.pattern import OTHER, AccessKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import Pattern

__all__ = ["copy_lines"]


def copy_lines(pattern: Pattern) -> Iterator[str]:
    """Return the body: each work item copies its steps, all loads before all stores."""
    reads = pattern.src.kind != AccessKind.NONE
    yield from index_lines(pattern)
    outside = [f"i{k} >= p.extent{k}" for k, loop in enumerate(pattern.loops) if loop.steps == 1]
    outside += [f"g{k} >= p.gather{k}_extent" for k in range(len(pattern.gathers))]
    if outside:
        yield f"if ({' || '.join(outside)}) return;"
    for k, gather in enumerate(pattern.gathers):
        yield from gather_lines(k, gather, reads=reads)
    operands = [("src", pattern.src), ("dst", pattern.dst)]
    operands += [(role, OTHER) for role in pattern.others]
    for operand, access in operands:
        yield from start_lines(pattern, operand, access)
    # all loads come before all stores, so that they are in flight together
    all_steps = list(product(*(range(loop.steps) for loop in pattern.loops)))
    # raw bits are moved as scalars, values as vectors of four, like pixels
    if pattern.conversion is None:
        kind = value_type(pattern) + ("" if ELEMENT_TYPES[pattern.dst.element].is_raw else "4")
    elif pattern.dst.kind == AccessKind.IMAGE:
        kind = f"{ELEMENT_TYPES[pattern.dst.element].value}4"
    else:
        kind = f"{code_type(pattern.conversion.dst)}4"
    for number, steps in enumerate(all_steps):
        value = f"v{number}"
        yield f"{kind} {value} = ({kind})(0);"
        if reads:
            yield guarded(_is_data(pattern, steps), f"{{ {load(pattern, value, steps)} }}")
    for number, steps in enumerate(all_steps):
        yield guarded(_is_inside(pattern, steps), f"{{ {store(pattern, f'v{number}', steps)} }}")


def _is_inside(pattern: Pattern, steps: tuple[int, ...]) -> list[str]:
    """Return the conditions that steps are within their extents, without those tested before."""
    return [
        f"{_index(k, step)} < p.extent{k}"
        for k, step in enumerate(steps)
        if pattern.loops[k].steps > 1
    ]


def _is_data(pattern: Pattern, steps: tuple[int, ...]) -> list[str]:
    """Return the conditions that steps hold data."""
    return [
        *(f"{_index(k, step)} < p.valid{k}" for k, step in enumerate(steps)),
        *(f"is_data{k}" for k in range(len(pattern.gathers))),
    ]


def _index(k: int, step: int) -> str:
    return f"i{k} + ({step} << p.shift{k})" if step else f"i{k}"
