"""A reorder plan as a picture: src and dst side by side; for each element of dst box and source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc.inverse import index_at
from memdesc.picture import Picture
from memdesc.picture.cells import Cell, cells_of
from memdesc.picture.draw import frame, legend
from memdesc.picture.memory import Strip, lines_of
from memdesc.picture.svg import label, text_width
from memdesc.picture.text import cells_text
from reorder.plan.trace import trace

if TYPE_CHECKING:
    from memdesc import MemoryDesc
    from memdesc.picture.cells import Cells
    from reorder.plan.nodes import Box

__all__ = ["draw_plan"]

# Pixels: around the picture, between src and dst, of a line of the head, of a caption with the
# space around it, of the legend.
_MARGIN, _BETWEEN, _HEAD_LINE, _CAPTION, _LEGEND = 16, 36, 18, 28, 22
_MAX_BOX_LINES = 8
_IN_SRC = "src: at each offset the index"
_IN_DST = "dst: at each offset where in src it comes from, and the box"


def draw_plan(
    src_desc: MemoryDesc, dst_desc: MemoryDesc, boxes: tuple[Box, ...], printed: str
) -> Picture:
    """Draw a plan, and the string that it prints as.

    Each element of dst shows the offset in src of what it gets, and the number of the box.

    Raises
    ------
    MemdescError
        If the plan has a lookup with more offsets than are searched for a picture.
    """
    head = printed.splitlines()
    if len(head) > _MAX_BOX_LINES + 1:
        head = [*head[: _MAX_BOX_LINES + 1], f"… {len(head) - 1 - _MAX_BOX_LINES} more"]
    if not dst_desc.nelems:
        return Picture(frame(head, [], (0, 0)), printed)
    src, dst = (cells_of(desc.layout, desc.dtype) for desc in (src_desc, dst_desc))
    top = _MARGIN + _HEAD_LINE * len(head) + _CAPTION
    in_src = Strip(
        lines_of(src), lambda offset: _src_cell(src, dst, offset), src.dtype.bits, _MARGIN, top
    )
    left = max(in_src.right, _MARGIN + text_width(_IN_SRC)) + _BETWEEN
    in_dst = Strip(
        lines_of(dst), lambda offset: _dst_cell(dst, boxes, offset), dst.dtype.bits, left, top
    )
    end = max(in_src.bottom, in_dst.bottom) + _HEAD_LINE
    padding = ["padding"] if src_desc.has_padding or dst_desc.has_padding else []
    parts, right = legend(["run", *padding, "line"], end)
    parts += [
        label(x, top - 10, caption, style="faint")
        for x, caption in ((_MARGIN, _IN_SRC), (left, _IN_DST))
    ]
    parts += [part for strip in (in_src, in_dst) for part in strip.paint()]
    written = cells_text(in_dst.lines, in_dst.cells, dst.dtype.bits, of_number=True)
    width = max(in_dst.right, left + text_width(_IN_DST), right)
    return Picture(
        frame(head, parts, (width, end + _LEGEND)), "\n".join([printed, "", _IN_DST, *written])
    )


def _src_cell(src: Cells, dst: Cells, offset: int) -> Cell:
    """Return the cell of src at an offset, in the colour that its element has in dst."""
    cell = src.at_offset(offset)
    index = index_at(src.layout, offset)
    if index is None or cell.run is None or cell.is_padding:
        return cell
    target = dst.at(index)
    return cell._replace(run=None if target is None else target.run)


def _dst_cell(dst: Cells, boxes: tuple[Box, ...], offset: int) -> Cell:
    """Return the cell of dst at an offset, with the offset of its source."""
    cell = dst.at_offset(offset)
    found = trace(boxes, offset)
    if found is None:
        return cell._replace(note="")
    box, source = found
    note = f"box {box}"
    if source is None:
        hover = f"{cell.hover}\nzero, by box {box}"
        return cell._replace(number="0", note=note, hover=hover, is_padding=True)
    hover = f"{cell.hover}\nfrom src offset {source}, by box {box}"
    return cell._replace(number=str(source), note=note, hover=hover)
