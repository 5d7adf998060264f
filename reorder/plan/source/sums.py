"""The compensation behind int8 weights, as loops over the elements of dst."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memdesc.extra import FACTORS, compensation_layout
from memdesc.source.layouts import axis_name
from memdesc.source.statements import AddInt32, ClearBytes, Loop, digit_terms, sum_of
from memdesc.tags import LETTERS

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from memdesc.source.statements import Statement

__all__ = ["sums_of"]

_INT32_BYTES = 4


def sums_of(dst: MemoryDesc) -> tuple[Statement, ...]:
    """Return the statements that sum the stored elements up, for each mask; none without one."""
    layout = dst.layout
    found: list[Statement] = []
    for name, (start, shape) in dst.compensation_spans.items():
        assert dst.extra is not None  # noqa: S101 - for the type checker: there are spans
        mask = dst.extra.masks[name]
        sums = compensation_layout(layout, mask)
        kept = [dim for dim in range(dst.ndims) if mask >> dim & 1]
        names = [axis_name(axis, LETTERS) for axis in layout.axes]
        at = [
            term
            for k, index in enumerate(names)
            for term in digit_terms(index, layout.axis_blocks(k))
        ]
        to = [
            (digit, _INT32_BYTES * stride)
            for k, dim in enumerate(kept)
            for digit, stride in digit_terms(names[dim], sums.axis_blocks(k))
        ]
        body: tuple[Statement, ...] = (
            AddInt32("dst", sum_of(start, to), f"{FACTORS[name]} * dst[{sum_of(dst.offset0, at)}]"),
        )
        for dim in reversed(range(dst.ndims)):
            body = (Loop(names[dim], dst.dims[dim], body),)
        found += [ClearBytes("dst", start, _INT32_BYTES * prod(shape)), *body]
    return tuple(found)
