"""Axis and Block: the parts of a layout, and the check of those that callers made by hand."""

from __future__ import annotations

from typing import NamedTuple

from memdesc.errors import MemdescError, short_repr
from memdesc.int64 import checked_int, entries_of, exact_ints

__all__ = ["Axis", "Block", "exact_axes", "exact_blocks"]


class Axis(NamedTuple):
    """Dims that are indexed as one (row-major over them), and their padded extent."""

    dims: tuple[int, ...]
    padded: int


class Block(NamedTuple):
    """One loop of a layout: index i of `axis` adds (i // step) % extent * stride."""

    axis: int
    step: int
    extent: int
    stride: int


def exact_axes(axes: object) -> tuple[Axis, ...]:
    """Return axes whose numbers are Python ints; refuse what is no sequence of axes."""
    try:
        pairs = [(dims, padded) for dims, padded in entries_of("axes", axes)]
    except (TypeError, ValueError, NotImplementedError):
        msg = f"axes must be a tuple of Axis(dims, padded), not {short_repr(axes)}"
        raise MemdescError(msg) from None
    return tuple(
        Axis(
            exact_ints("dims of an axis", dims), checked_int("the padded extent of an axis", padded)
        )
        for dims, padded in pairs
    )


def exact_blocks(blocks: object) -> tuple[Block, ...]:
    """Return blocks whose numbers are Python ints; refuse what is no sequence of blocks."""
    try:
        rows = [
            (axis, step, extent, stride)
            for axis, step, extent, stride in entries_of("blocks", blocks)
        ]
    except (TypeError, ValueError, NotImplementedError):
        msg = (
            f"blocks must be a tuple of Block(axis, step, extent, stride), not {short_repr(blocks)}"
        )
        raise MemdescError(msg) from None
    return tuple(Block(*exact_ints("numbers of a block", row)) for row in rows)
