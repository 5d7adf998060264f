"""The memory of two layouts side by side; the colours of the right one are those of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memdesc.inverse import index_at
from memdesc.picture.grid import FULL, Limits
from memdesc.picture.memory import Strip, lines_of
from memdesc.picture.sheet import Half, Sheet, right_of, top_under
from memdesc.picture.text import memory_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from memdesc.picture.cells import Cell, Cells
    from memdesc.picture.picture import Picture

__all__ = ["Side", "coloured_as", "draw_beside", "draw_sides"]


class Side(NamedTuple):
    """One of two memories: its cells, its caption, and what is drawn at an offset."""

    cells: Cells
    caption: str
    at_offset: Callable[[int], Cell]


def draw_beside(a: Cells, b: Cells, titles: tuple[str, str]) -> Picture:
    """Draw two layouts of the same dims; under the pointer stands the offset in the other one."""
    head = [f"a: {titles[0]}", f"b: {titles[1]}"]
    if not a.layout.nelems:
        head.append("nothing to draw")
        return Sheet(head, [], [], "\n".join(head)).picture()
    names = ",".join(a.letters[dim] for dim in a.long_dims)
    captions = [f"{name}: at each offset the index {names}".rstrip() for name in "ab"]
    left = Side(a, captions[0], lambda offset: _with_other(a, b, coloured_as(a, b, offset), "b"))
    right = Side(b, captions[1], lambda offset: _with_other(b, a, b.at_offset(offset), "a"))
    text = [*head]
    for side in (left, right):
        text += ["", side.caption, *memory_text(side.cells, lines_of(side.cells))]
    return draw_sides(head, left, right, "\n".join(text))


def draw_sides(
    head: list[str], left: Side, right: Side, text: str, limits: Limits = FULL
) -> Picture:
    """Draw two memories under a head."""
    top = top_under(head)
    halves: list[Half] = []
    strips: list[Strip] = []
    for side in (left, right):
        start = right_of(halves[-1] if halves else None)
        cells = side.cells
        strip = Strip(lines_of(cells, limits), side.at_offset, cells.dtype.bits, start, top)
        strips.append(strip)
        halves.append(Half(side.caption, start, top, strip.right, strip.bottom, strip.paint()))
    shown = [cell for strip in strips for row in strip.cells for cell in row]
    signs = ["run"]
    signs += ["padding"] if any(cell.is_padding for cell in shown) else []
    signs += ["block"] if any(side.cells.tiles for side in (left, right)) else []
    signs += ["gap"] if any(cell.run is None for cell in shown) else []
    signs += ["highlight"] if any(cell.is_highlighted for cell in shown) else []
    signs += ["line"] if any(strip.marks for strip in strips) else []
    return Sheet(head, halves, signs, text).picture()


def coloured_as(cells: Cells, other: Cells, offset: int) -> Cell:
    """Return the cell at an offset, in the colour that its element has in another layout."""
    cell = cells.at_offset(offset)
    index = index_at(cells.layout, offset)
    if index is None or cell.run is None or cell.is_padding:
        return cell
    target = other.at(index)
    return cell._replace(run=None if target is None else target.run)


def _with_other(cells: Cells, other: Cells, cell: Cell, name: str) -> Cell:
    """Return a cell that says where its element lies in the other layout."""
    index = None if cell.run is None else index_at(cells.layout, int(cell.number))
    if index is None or cell.is_padding:
        return cell
    return cell._replace(hover=f"{cell.hover}\noffset in {name} {other.layout.offset(index)}")
