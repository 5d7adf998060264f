"""Kernel lines that compute the offsets of a gather, by the formula of a layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.opencl.codegen.pattern import GatherShape

__all__ = ["block_offset", "gather_lines"]


def gather_lines(
    k: int, gather: GatherShape, others: tuple[str, ...] = (), *, reads: bool
) -> Iterator[str]:
    """Return gather{k}_src, gather{k}_dst and is_data{k} from the index g{k}.

    The index runs over the padded indices of the axes of dst, row-major. Without
    `reads`, only zeros are written and the offset in src stays 0. `others` names further operands.
    """
    params = f"p.gather{k}"
    offsets = ", ".join(f"gather{k}_{operand} = 0" for operand in ("src", "dst", *others))
    yield f"index_t linear{k} = g{k}; index_t {offsets}; int is_data{k} = 1;"
    for dim in gather.dims:
        yield f"index_t index{k}_{dim} = 0;"
    for j in reversed(range(len(gather.dst))):
        dims, blocks = gather.dst[j]
        axis, padded = f"dst_axis{k}_{j}", f"{params}_dst{j}_padded"
        yield f"index_t {axis} = linear{k} % {padded}; linear{k} /= {padded};"
        yield f"gather{k}_dst += {block_offset(axis, f'{params}_dst{j}', blocks)};"
        yield f"is_data{k} &= {axis} < {' * '.join(f'{params}_size{dim}' for dim in dims)};"
        for dim in reversed(dims):
            size = f"{params}_size{dim}"
            yield f"index{k}_{dim} = {axis} % {size}; {axis} /= {size};"
    if not reads:
        return
    for operand, axes in zip(("src", *others), (gather.src, *gather.others), strict=True):
        for j, (dims, blocks) in enumerate(axes):
            axis = f"{operand}_axis{k}_{j}"
            yield f"index_t {axis} = 0;"
            for dim in dims:
                yield f"{axis} = {axis} * {params}_size{dim} + index{k}_{dim};"
            yield f"gather{k}_{operand} += {block_offset(axis, f'{params}_{operand}{j}', blocks)};"


def block_offset(axis: str, params: str, blocks: int) -> str:
    """Return the offset of an index of an axis; its outermost block, the first, has no modulus."""
    digits = [
        f"{axis} / {params}_step{b}{f' % {params}_extent{b}' if b else ''} * {params}_stride{b}"
        for b in range(blocks)
    ]
    return " + ".join(digits)
