"""The text of a kernel from its pattern: OpenCL C 1.2, a pure function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.kernel.access import AccessKind
from reorder.opencl.kernel.conversion import operand_type
from reorder.opencl.kernel.launch import param_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.kernel.launch import Pattern

__all__ = ["KERNEL", "kernel_source"]

KERNEL = "reorder"
_PARAMS_PER_LINE = 8


def kernel_source(pattern: Pattern) -> str:
    """Return the program of a pattern; its only kernel is named `KERNEL`."""
    body = (f"    {line}" for line in pattern.body.lines(pattern))
    return "\n".join([*_head(pattern), "{", *body, "}", ""])


def _head(pattern: Pattern) -> Iterator[str]:
    yield f"typedef {'long' if pattern.is_wide else 'int'} index_t;"
    yield "typedef struct {"
    names = param_names(pattern)
    for k in range(0, len(names), _PARAMS_PER_LINE):
        yield f"    index_t {', '.join(names[k : k + _PARAMS_PER_LINE])};"
    yield "} params_t;"
    yield from pattern.body.functions(pattern)
    arguments = []
    if pattern.src.kind == AccessKind.IMAGE:
        arguments.append("__read_only image2d_t src")
    elif pattern.src.kind != AccessKind.NONE:
        arguments.append(f"__global const {pattern.src.element.memory} *restrict src")
    if pattern.dst.kind == AccessKind.IMAGE:
        arguments.append("__write_only image2d_t dst")
    else:
        arguments.append(f"__global {pattern.dst.element.memory} *restrict dst")
    if pattern.conversion is not None:
        arguments += [
            f"__global const {operand_type(pattern.conversion, role)} *restrict {role}"
            for role in pattern.others
        ]
    yield f"__kernel __attribute__((reqd_work_group_size({pattern.work_items}, 1, 1)))"
    yield f"void {KERNEL}({', '.join(arguments)}, const params_t p)"
