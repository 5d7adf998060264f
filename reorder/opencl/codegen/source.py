"""Kernel text of a pattern: OpenCL C 1.2, a pure function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.codegen.copy import move_lines
from reorder.opencl.codegen.params import element_type, fields
from reorder.opencl.codegen.pattern import Space
from reorder.opencl.codegen.transpose import transpose_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import Pattern

__all__ = ["kernel_text"]

# on a line
_NAMES = 8


def kernel_text(pattern: Pattern) -> str:
    """Return the program of a pattern, with one kernel, `move`."""
    body = transpose_lines(pattern) if pattern.is_transposed else move_lines(pattern)
    return "\n".join([*_head(pattern), "{", *(f"    {line}" for line in body), "}", ""])


def _head(pattern: Pattern) -> Iterator[str]:
    yield f"typedef {'long' if pattern.is_wide else 'int'} index;"
    yield "typedef struct {"
    names = fields(pattern)
    for k in range(0, len(names), _NAMES):
        yield f"    index {', '.join(names[k : k + _NAMES])};"
    yield "} numbers;"
    yield ""
    parameters = []
    if pattern.src.space == Space.IMAGE:
        parameters.append("__read_only image2d_t src")
    elif pattern.src.space != Space.NOWHERE:
        parameters.append(f"__global const {element_type(pattern.src)} *restrict src")
    is_image = pattern.dst.space == Space.IMAGE
    parameters.append(
        "__write_only image2d_t dst"
        if is_image
        else f"__global {element_type(pattern.dst)} *restrict dst"
    )
    yield f"__kernel __attribute__((reqd_work_group_size({pattern.items}, 1, 1)))"
    yield f"void move({', '.join(parameters)}, const numbers n)"
