"""A reorder plan as a picture: src beside dst, with the box and source of each element of dst."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc.picture import (
    FULL,
    Limits,
    Sheet,
    Side,
    cells_of,
    cells_text,
    coloured_as,
    draw_sides,
    lines_of,
)
from reorder.plan.trace import trace

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from memdesc.picture import Cell, Cells, Picture
    from reorder.plan.nodes import Box

__all__ = ["draw_plan"]

_MAX_BOX_LINES = 8
_IN_SRC = "src: at each offset the index"
_IN_DST = "dst: at each offset where in src it comes from"


def draw_plan(
    src_desc: MemoryDesc,
    dst_desc: MemoryDesc,
    boxes: tuple[Box, ...],
    printed: str,
    limits: Limits = FULL,
) -> Picture:
    """Draw a plan, with the string that it prints as.

    Each element of dst shows the offset in src of its source, and the number of its box if there
    are several.

    Raises
    ------
    MemdescError
        If the plan has an indirect loop with more offsets than a picture may search.
    """
    head = printed.splitlines()
    if len(head) > _MAX_BOX_LINES + 1:
        head = [*head[: _MAX_BOX_LINES + 1], f"… {len(head) - 1 - _MAX_BOX_LINES} more"]
    if not dst_desc.nelems:
        return Sheet(head, [], [], printed).picture()
    src, dst = (cells_of(desc.layout, desc.dtype) for desc in (src_desc, dst_desc))
    caption = _IN_DST + (", and the box" if len(boxes) > 1 else "")
    in_dst = Side(dst, caption, lambda offset: _dst_cell(dst, boxes, offset))
    lines = lines_of(dst)
    shown = [[in_dst.at_offset(offset) for offset in line] for line in lines.offsets()]
    written = cells_text(lines, shown, dst.dtype.bits, of_number=True)
    return draw_sides(
        head,
        Side(src, _IN_SRC, lambda offset: coloured_as(src, dst, offset)),
        in_dst,
        "\n".join([printed, "", caption, *written]),
        limits,
    )


def _dst_cell(dst: Cells, boxes: tuple[Box, ...], offset: int) -> Cell:
    """Return the cell of dst at an offset, with the offset of its source."""
    cell = dst.at_offset(offset)
    found = trace(boxes, offset)
    if found is None:
        return cell._replace(note="")
    box, source = found
    note = f"box {box}" if len(boxes) > 1 else ""
    if source is None:
        hover = f"{cell.hover}\nzero, by box {box}"
        return cell._replace(number="0", note=note, hover=hover, is_padding=True)
    hover = f"{cell.hover}\nfrom src offset {source}, by box {box}"
    return cell._replace(number=str(source), note=note, hover=hover)
