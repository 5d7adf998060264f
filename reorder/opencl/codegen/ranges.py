"""A kernel body that finds the lowest and the highest value of parts of a tensor, 0 among them.

A work-group has some of the elements that share a scale, and writes two numbers. Where one element
is not finite, the highest value is infinite. Parameters, for dim d, axis j and block b: offset,
total (elements that share a scale), parts (work-groups for these), count{d} (scales along a dim),
inside{d} (neighbours that share one), size{d}, and of the blocks axis{j}_step{b},
axis{j}_extent{b}, axis{j}_stride{b}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.codegen.convert import decoder_of
from reorder.opencl.codegen.float_codec import WIDE
from reorder.opencl.codegen.gather import block_offset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import RangeShape

__all__ = ["range_functions", "range_lines"]


def range_functions(shape: RangeShape) -> Iterator[str]:
    """Return the decoder of an element."""
    yield from decoder_of(shape.dtype, shape.work)[1]


def range_lines(shape: RangeShape, work_items: int) -> Iterator[str]:
    """Return the body: work items compare some elements each, then the group theirs."""
    wide = WIDE[shape.work]
    dims = range(sum(len(axis) for axis, _ in shape.axes))
    yield f"__local {wide.real} lows[{work_items}], highs[{work_items}];"
    yield "const uint item = get_local_id(0);"
    yield "index_t scale = get_group_id(0);"
    for dim in reversed(dims):
        yield f"const index_t g{dim} = scale % p.count{dim}; scale /= p.count{dim};"
    yield f"{wide.real} low = 0, high = 0;"
    yield f"const index_t first = (index_t)get_group_id(1) * {work_items} + item;"
    yield f"for (index_t k = first; k < p.total; k += {work_items} * p.parts) {{"
    yield "index_t rest = k, at = p.offset;"
    for dim in reversed(dims):
        inside = f"p.inside{dim}"
        yield f"const index_t i{dim} = g{dim} * {inside} + rest % {inside}; rest /= {inside};"
    for j, (axis, blocks) in enumerate(shape.axes):
        index = "0"
        for dim in axis:
            index = f"i{dim}" if index == "0" else f"({index} * p.size{dim} + i{dim})"
        yield f"at += {block_offset(index, f'p.axis{j}', blocks)};"
    yield f"{wide.real} value = {decoder_of(shape.dtype, shape.work)[0]}(src[at]);"
    magnitude = f"as_{wide.bits}(value) & {wide.number(wide.form.sign - 1)}"
    yield f"if (({magnitude}) >= {wide.number(wide.form.overflow)})"
    yield f"    value = as_{wide.real}({wide.number(wide.form.overflow)});"
    yield "low = fmin(low, value); high = fmax(high, value);"
    yield "}"
    yield "lows[item] = low; highs[item] = high;"
    width = work_items // 2
    while width:
        yield "barrier(CLK_LOCAL_MEM_FENCE);"
        yield f"if (item < {width}) {{"
        yield f"lows[item] = fmin(lows[item], lows[item + {width}]);"
        yield f"highs[item] = fmax(highs[item], highs[item + {width}]); }}"
        width //= 2
    yield "if (item == 0) {"
    to = f"((__global {wide.real} *)dst)"
    yield "const index_t n = 2 * ((index_t)get_group_id(0) * p.parts + (index_t)get_group_id(1));"
    yield f"{to}[n] = lows[0]; {to}[n + 1] = highs[0]; }}"
