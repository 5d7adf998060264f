"""The source of a kernel from its pattern: OpenCL C 1.2, a pure function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.codegen.convert import conversion_lines, operand_type
from reorder.opencl.codegen.copy import copy_lines
from reorder.opencl.codegen.element_types import memory_type
from reorder.opencl.codegen.params import param_names
from reorder.opencl.codegen.pattern import AccessKind
from reorder.opencl.codegen.pixel_tile import pixel_tile_lines
from reorder.opencl.codegen.ranges import range_functions, range_lines
from reorder.opencl.codegen.rows import row_functions, row_lines
from reorder.opencl.codegen.run_tile import run_tile_lines
from reorder.opencl.codegen.runs import run_lines
from reorder.opencl.codegen.skewed import skewed_functions, skewed_lines
from reorder.opencl.codegen.sums import sum_lines
from reorder.opencl.codegen.tile import tile_lines
from reorder.opencl.codegen.vectors import vector_functions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import Pattern

__all__ = ["KERNEL", "kernel_source"]

KERNEL = "reorder"
_PARAMS_PER_LINE = 8


def kernel_source(pattern: Pattern) -> str:
    """Return the program of a pattern; its only kernel is named `KERNEL`."""
    if pattern.ranges is not None:
        body = range_lines(pattern.ranges, pattern.work_items)
    elif pattern.sums is not None:
        body = sum_lines(pattern.sums, pattern.work_items)
    elif pattern.run_tile is not None:
        body = run_tile_lines(pattern)
    elif pattern.run is not None:
        body = run_lines(pattern)
    elif pattern.rows is not None:
        body = row_lines(pattern)
    elif pattern.pixel_tile is not None:
        body = pixel_tile_lines(pattern)
    elif pattern.skewed is not None:
        body = skewed_lines(pattern)
    else:
        body = copy_lines(pattern) if pattern.tile is None else tile_lines(pattern)
    return "\n".join([*_head(pattern), "{", *(f"    {line}" for line in body), "}", ""])


def _head(pattern: Pattern) -> Iterator[str]:
    yield f"typedef {'long' if pattern.is_wide else 'int'} index_t;"
    yield "typedef struct {"
    names = param_names(pattern)
    for k in range(0, len(names), _PARAMS_PER_LINE):
        yield f"    index_t {', '.join(names[k : k + _PARAMS_PER_LINE])};"
    yield "} params_t;"
    yield from _body_functions(pattern)
    yield ""
    if pattern.conversion is not None:
        yield from conversion_lines(pattern.conversion)
    if pattern.ranges is not None:
        yield from range_functions(pattern.ranges)
    arguments = []
    if pattern.src.kind == AccessKind.IMAGE:
        arguments.append("__read_only image2d_t src")
    elif pattern.src.kind != AccessKind.NONE:
        arguments.append(f"__global const {memory_type(pattern.src)} *restrict src")
    if pattern.dst.kind == AccessKind.IMAGE:
        arguments.append("__write_only image2d_t dst")
    else:
        arguments.append(f"__global {memory_type(pattern.dst)} *restrict dst")
    if pattern.conversion is not None:
        arguments += [
            f"__global const {operand_type(pattern.conversion, role)} *restrict {role}"
            for role in pattern.others
        ]
    yield f"__kernel __attribute__((reqd_work_group_size({pattern.work_items}, 1, 1)))"
    yield f"void {KERNEL}({', '.join(arguments)}, const params_t p)"


def _body_functions(pattern: Pattern) -> Iterator[str]:
    """Return the functions that the body of a pattern calls."""
    if pattern.tile is not None:
        yield from vector_functions(pattern.tile)
    if pattern.rows is not None:
        yield from row_functions(pattern.rows)
    if pattern.skewed is not None:
        yield from skewed_functions(pattern.skewed)
