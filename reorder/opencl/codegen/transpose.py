"""A kernel body for two loops, one contiguous in src, one in dst: a tile in local memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.codegen.element_types import value_type
from reorder.opencl.codegen.indices import guarded, index_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import Pattern

__all__ = ["MAX_HEIGHT", "transpose_lines"]

# Most rows of a tile; each row has one element of padding in local memory.
MAX_HEIGHT = 256


def transpose_lines(pattern: Pattern) -> Iterator[str]:
    """Return the body: loop 0 is contiguous in src, loop 1 in dst, the others are outside the tile.

    The width of a tile is 2^shift0 iterations of loop 0, its height the work items along loop 1
    times their steps. It is read by rows and written by columns.
    """
    steps = pattern.loops[1].steps
    kind = value_type(pattern)
    loops = range(len(pattern.loops))
    outer = loops[2:]
    # one column of padding, so that the work items of a column access different banks
    yield f"__local {kind} tile[{pattern.work_items * steps} + {MAX_HEIGHT}];"
    yield from index_lines(pattern)
    yield f"const int width = 1 << p.shift0, height = {steps} << p.shift1, pitch = width + 1;"
    yield (
        "const int src_column = (int)get_local_id(0) & (width - 1), "
        "src_row = (int)get_local_id(0) >> p.shift0;"
    )
    src_terms = ["p.src", *(f"i{k} * p.src{k}" for k in loops)]
    yield f"const index_t src_offset = {' + '.join(src_terms)};"
    is_data = [f"i{k} < p.valid{k}" for k in outer]
    for step in range(steps):
        row = f"({step} << p.shift1)"
        yield f"{kind} v{step} = ({kind})(0);"
        yield guarded(
            [*is_data, "i0 < p.valid0", f"i1 + {row} < p.valid1"],
            f"v{step} = src[src_offset + {row} * p.src1];",
        )
    for step in range(steps):
        yield f"tile[(src_row + ({step} << p.shift1)) * pitch + src_column] = v{step};"
    yield "barrier(CLK_LOCAL_MEM_FENCE);"
    # the same work items, now numbered along dst
    yield (
        "const int dst_row = (int)get_local_id(0) & (height - 1), "
        "dst_column = (int)get_local_id(0) / height;"
    )
    yield "const index_t j0 = i0 - src_column + dst_column, j1 = i1 - src_row + dst_row;"
    dst_terms = ["p.dst", "j0 * p.dst0", "j1 * p.dst1", *(f"i{k} * p.dst{k}" for k in outer)]
    yield f"const index_t dst_offset = {' + '.join(dst_terms)};"
    for step in range(steps):
        column = f"{step} * ({pattern.work_items} / height)"
        yield guarded(
            [f"j0 + {column} < p.extent0", "j1 < p.extent1"],
            f"dst[dst_offset + {column} * p.dst0] = tile[dst_row * pitch + dst_column + {column}];",
        )
