"""The box that writes an offset of dst, and the offset of src that it reads."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from memdesc import MemdescError
from memdesc.search import SearchLimitError, Term, solve
from reorder.plan.nodes import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reorder.plan.nodes import Box

__all__ = ["trace"]

# Boxes with indirect loops that write more elements than this are not searched.
_MAX_SEARCHED = 1 << 14


def trace(boxes: tuple[Box, ...], offset: int) -> tuple[int, int | None] | None:
    """Return which box writes an offset of dst, and the offset in src that it reads.

    Returns
    -------
    (box, offset) or None
        The offset is None for a zero. None where no box writes, as in the gaps of a strided dst.

    Raises
    ------
    MemdescError
        If a box has an indirect loop of too many offsets, or the bounded search finds no answer.
    """
    for k, box in enumerate(boxes):
        if box.indirect and box.size > _MAX_SEARCHED:
            msg = (
                f"box {k} looks up offsets for {box.size} elements; pictures are made of "
                f"{_MAX_SEARCHED} at most"
            )
            raise MemdescError(msg)
        for src, dst in _starts(box):
            # the loop of a box that writes a single zero has a stride of 0
            loops = [Term(node.strides[1] or 1, 0, node.extent - 1) for node in box.nodes]
            try:
                steps = solve(loops, offset - dst)
            except SearchLimitError:
                msg = (
                    f"box {k}, {box}, has strides that do not nest; bounded work did not find what "
                    f"it writes at offset {offset}"
                )
                raise MemdescError(msg) from None
            if steps is None:
                continue
            taken = list(zip(steps, box.nodes, strict=True))
            if src is None or any(step >= node.valid for step, node in taken):
                return k, None
            return k, src + sum(step * node.strides[0] for step, node in taken)
    return None


def _starts(box: Box) -> Iterator[tuple[int | None, int]]:
    """Yield the offsets in src and dst at each step of a box's indirect loops; None: padding."""
    tables = [
        list(zip(*(table.tolist() for table in loop.tables(0, loop.extent)[:2]), strict=True))
        for loop in box.indirect
    ]
    for chosen in product(*tables):
        is_padding = any(src == NOWHERE for src, _ in chosen)
        yield (
            None if is_padding else box.offsets[0] + sum(src for src, _ in chosen),
            box.offsets[1] + sum(dst for _, dst in chosen),
        )
