"""A kernel body for two loops, one contiguous in src and one in dst: a tile goes through local memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.codegen.params import place_lines, value_type, when

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import Pattern

__all__ = ["MAX_HEIGHT", "transpose_lines"]

MAX_HEIGHT = 256


def transpose_lines(pattern: Pattern) -> Iterator[str]:
    """Return the body: loop 0 is contiguous in src, loop 1 in dst, the others are outside the tile.

    A tile is 2^shift0 steps of loop 0 wide. Its height is what the items and their steps
    along loop 1 make of that; read by rows, it is written by columns.
    """
    steps = pattern.loops[1].steps
    kind = value_type(pattern)
    others = range(2, len(pattern.loops))
    # a column more than it has, so that the items of one do not fall into one bank
    yield f"__local {kind} tile[{pattern.items * steps} + {MAX_HEIGHT}];"
    yield from place_lines(pattern)
    yield f"const int width = 1 << n.shift0, height = {steps} << n.shift1, pitch = width + 1;"
    yield "const int a = (int)get_local_id(0) & (width - 1), b = (int)get_local_id(0) >> n.shift0;"
    yield f"const index from = {' + '.join(['n.src', *(f'i{k} * n.src{k}' for k in range(len(pattern.loops)))])};"
    around = [f"i{k} < n.valid{k}" for k in others]
    for step in range(steps):
        at = f"({step} << n.shift1)"
        yield f"{kind} v{step} = ({kind})(0);"
        yield when(
            [*around, "i0 < n.valid0", f"i1 + {at} < n.valid1"],
            f"v{step} = src[from + {at} * n.src1];",
        )
    for step in range(steps):
        yield f"tile[(b + ({step} << n.shift1)) * pitch + a] = v{step};"
    yield "barrier(CLK_LOCAL_MEM_FENCE);"
    # the same items again, now side by side along dst
    yield "const int c = (int)get_local_id(0) & (height - 1), d = (int)get_local_id(0) / height;"
    yield "const index j0 = i0 - a + d, j1 = i1 - b + c;"
    yield f"const index to = {' + '.join(['n.dst', 'j0 * n.dst0', 'j1 * n.dst1', *(f'i{k} * n.dst{k}' for k in others)])};"
    for step in range(steps):
        at = f"{step} * ({pattern.items} / height)"
        yield when(
            [f"j0 + {at} < n.extent0", "j1 < n.extent1"],
            f"dst[to + {at} * n.dst0] = tile[c * pitch + d + {at}];",
        )
