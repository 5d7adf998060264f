"""A kernel body that sums int8 weights up: one work-group for each number of a compensation.

Parameters, for dim d and block b: start (the first byte of the sums), offset (of the first weight),
factor, count (weights in a sum), size{d}, padded{d}, dim{d}_step{b}, dim{d}_extent{b},
dim{d}_stride{b}, and for the dims of the mask sum{d}_step{b} and so on, in the sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reorder.opencl.codegen.gather import block_offset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import SumShape

__all__ = ["sum_lines", "sum_param_names"]


def sum_param_names(shape: SumShape) -> list[str]:
    """Return the names of the parameters, in the order in which the kernel takes them."""
    names = ["start", "offset", "factor", "count"]
    for dim, blocks in enumerate(shape.blocks):
        names += [f"size{dim}", f"padded{dim}"]
        names += [f"dim{dim}_{field}{b}" for b in range(blocks) for field in _FIELDS]
    for dim, blocks in shape.sums:
        names += [f"sum{dim}_{field}{b}" for b in range(blocks) for field in _FIELDS]
    return names


_FIELDS = ("step", "extent", "stride")


def sum_lines(shape: SumShape, work_items: int) -> Iterator[str]:
    """Return the body: work items sum up some weights each, then the group their sums."""
    kept = dict(shape.sums)
    yield f"__local uint parts[{work_items}];"
    yield "const uint item = get_local_id(0);"
    yield "index_t rest = get_group_id(0), offset = p.offset, at = 0;"
    yield "int is_data = 1;"
    for dim in sorted(kept, reverse=True):
        yield f"const index_t i{dim} = rest % p.padded{dim}; rest /= p.padded{dim};"
        yield f"is_data &= i{dim} < p.size{dim};"
        yield f"offset += {block_offset(f'i{dim}', f'p.dim{dim}', shape.blocks[dim])};"
        yield f"at += {block_offset(f'i{dim}', f'p.sum{dim}', kept[dim])};"
    yield "uint sum = 0;"
    yield "if (is_data) {"
    yield f"for (index_t k = item; k < p.count; k += {work_items}) {{"
    yield "index_t rest = k, from = offset;"
    for dim in reversed(range(len(shape.blocks))):
        if dim not in kept:
            yield f"const index_t i{dim} = rest % p.size{dim}; rest /= p.size{dim};"
            yield f"from += {block_offset(f'i{dim}', f'p.dim{dim}', shape.blocks[dim])};"
    yield "sum += (uint)(int)as_char(dst[from]);"
    yield "} }"
    yield "parts[item] = sum;"
    width = work_items // 2
    while width:
        yield "barrier(CLK_LOCAL_MEM_FENCE);"
        yield f"if (item < {width}) parts[item] += parts[item + {width}];"
        width //= 2
    yield "if (item == 0) ((__global uint *)(dst + p.start))[at] = parts[0] * (uint)p.factor;"
