"""A reorder plan as a picture: src beside dst, with the box and source of each element of dst.

`trace` finds both: which box writes an offset of dst, and which offset of src it reads.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from memdesc import MemdescError, MemoryDesc
from memdesc.diophantine import SearchLimitError, Term, solve
from memdesc.picture.cells import Cell, Cells
from memdesc.picture.draw import coloured_as, draw_memories
from memdesc.picture.halves import memory_table
from reorder.plan.nodes import DST, NOWHERE, SRC, Box

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memdesc.picture import Picture

_MAX_BOX_LINES = 8
# Boxes with indirect loops that write more elements than this are not searched.
_MAX_SEARCHED = 1 << 14
_IN_SRC = "src: each offset shows the index"
_IN_DST = "dst: each offset shows where in src its element comes from"


def draw_plan(
    src_desc: MemoryDesc, dst_desc: MemoryDesc, boxes: tuple[Box, ...], printed: str
) -> Picture:
    """Draw a plan below its text, `printed`; refuse indirect loops with too many offsets."""
    head = printed.splitlines()
    if len(head) > _MAX_BOX_LINES + 1:
        head = [*head[: _MAX_BOX_LINES + 1], f"… {len(head) - 1 - _MAX_BOX_LINES} more"]
    if not dst_desc.nelems:
        return draw_memories(head, {}, set(), printed)
    src, dst = (Cells(desc.layout, desc.dtype) for desc in (src_desc, dst_desc))
    caption = _IN_DST + (", and the box" if len(boxes) > 1 else "")
    in_src = memory_table(src, lambda offset: coloured_as(src, dst, offset))
    in_dst = memory_table(dst, lambda offset: _dst_cell(dst, boxes, offset))
    text = "\n".join([printed, "", caption, *in_dst.text(of_number=True)])
    legend = {"run", "block" if src.tiles or dst.tiles else ""}
    return draw_memories(head, {_IN_SRC: in_src, caption: in_dst}, legend, text)


def _dst_cell(dst: Cells, boxes: tuple[Box, ...], offset: int) -> Cell:
    """Return the cell of dst at an offset, with the offset of its source."""
    cell = dst.at_offset(offset)
    traced = trace(boxes, offset)
    if traced is None:
        return cell._replace(note="")
    box, source = traced
    note = f"box {box}" if len(boxes) > 1 else ""
    if source is None:
        hover = f"{cell.hover}\nzero, by box {box}"
        return cell._replace(number="0", note=note, hover=hover, is_padding=True)
    hover = f"{cell.hover}\nfrom src offset {source}, by box {box}"
    return cell._replace(number=str(source), note=note, hover=hover)


def trace(boxes: tuple[Box, ...], offset: int) -> tuple[int, int | None] | None:
    """Return which box writes an offset of dst, or None, and the offset in src, None for a zero.

    Fails if a box has an indirect loop with too many offsets, or the search exceeds its limit.
    """
    for k, box in enumerate(boxes):
        if box.indirect and box.size > _MAX_SEARCHED:
            raise MemdescError(
                f"box {k} has indirection tables for {box.size} elements; a picture can search at "
                f"most {_MAX_SEARCHED}"
            )
        for src, dst in _starts(box):
            # the loop of a box that writes a single zero has a stride of 0
            loops = [Term(node.strides[DST] or 1, 0, node.extent - 1) for node in box.nodes]
            try:
                steps = solve(loops, offset - dst)
            except SearchLimitError:
                raise MemdescError(
                    f"box {k}, {box}, has strides that do not nest; the search for what it writes "
                    f"at offset {offset} exceeded its limit"
                ) from None
            if steps is None:
                continue
            taken = list(zip(steps, box.nodes, strict=True))
            if src is None or any(step >= node.valid for step, node in taken):
                return k, None
            return k, src + sum(step * node.strides[SRC] for step, node in taken)
    return None


def _starts(box: Box) -> Iterator[tuple[int | None, int]]:
    """Yield the offsets in src (None for padding) and dst at each step of the indirect loops."""
    tables = [
        list(zip(*(table.tolist() for table in loop.tables(0, loop.extent)[:2]), strict=True))
        for loop in box.indirect
    ]
    for chosen in product(*tables):
        is_padding = any(src == NOWHERE for src, _ in chosen)
        yield (
            None if is_padding else box.offsets[SRC] + sum(src for src, _ in chosen),
            box.offsets[DST] + sum(dst for _, dst in chosen),
        )
