"""The picture of a layout (title, grid, memory, legend), and of two memories side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from memdesc.errors import MemdescError, counted, short_repr
from memdesc.index import index_at
from memdesc.int64 import check_length, checked_ints, entries_of
from memdesc.layout import Layout, dim_name
from memdesc.picture.cells import CACHE_LINE, Cell, Cells, Pixels, digits
from memdesc.picture.grid import FULL, Limits, arrange
from memdesc.picture.memory import Lines, lines_of, memory_half, memory_text, pixel_lines
from memdesc.picture.sheet import Sheet
from memdesc.tags import LETTERS, check_letters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from memdesc.dtypes import DataType
    from memdesc.picture.picture import Picture
    from memdesc.picture.table import Table


class Look(NamedTuple):
    """What a caller chooses: letters of the dims, indices to highlight, how much, and values."""

    letters: str = LETTERS
    highlight: Iterable[Iterable[int]] = ()
    limits: Limits = FULL
    values: Any = None


def draw_layout(
    layout: Layout, dtype: DataType, title: str, nbytes: tuple[int, int], look: Look
) -> Picture:
    """Draw the layout of a buffer under a title.

    `nbytes` are the bytes of the buffer, and how many of them are compensation after the elements.
    """
    cells = checked_cells(layout, dtype, look)
    whole, compensation = nbytes
    n_lines = -(-whole // CACHE_LINE)
    size = f"{whole} bytes in {counted(n_lines, 'cache line')}"
    size += f", the last {compensation} of them compensation" if compensation else ""
    head = [title, f"{_count(layout)}, {size}"]
    if not layout.nelems:
        return Sheet([*head, "nothing to draw"]).picture()
    what = "memory: each offset shows the "
    what += "index" if look.values is None else "value at"
    return _picture(cells, lines_of(cells, look.limits), head, what, look.limits)


def draw_image(layout: Layout, dtype: DataType, title: str, pixels: Pixels, look: Look) -> Picture:
    """Draw an image as pixels, like `draw_layout`; `pixels` says how its pixels lie."""
    cells = checked_cells(layout, dtype, look, pixels)
    width, channels, slice_rows = pixels
    rows = (layout.last + 1) // (width * channels)
    sides = (width, slice_rows, rows // slice_rows) if slice_rows else (width, rows)
    size = f"{' x '.join(map(str, sides))} pixels of {counted(channels, 'channel')}"
    lines = pixel_lines(cells, pixels, look.limits)
    what = "image: each lane shows the offset and the index"
    return _picture(cells, lines, [title, f"{_count(layout)}, {size}"], what, look.limits)


def checked_cells(
    layout: Layout, dtype: DataType, look: Look, pixels: Pixels | None = None
) -> Cells:
    """Return the cells of a layout, with the letters and the highlighted indices checked."""
    if not isinstance(look.letters, str) or look.letters != LETTERS:
        check_letters(look.letters, layout.ndims)
    cells = Cells(layout, dtype, look.letters, pixels)
    return replace(cells, highlighted=_checked_indices(cells, look.highlight), values=look.values)


def _picture(cells: Cells, lines: Lines, head: list[str], what: str, limits: Limits) -> Picture:
    grid, table = arrange(cells, limits), lines.table(cells.at_offset, cells.dtype.bits)
    names = ",".join(cells.letters[dim] for dim in cells.long_dims)
    order = f"memory order, outermost first: {digits(cells.layout, cells.letters)}"
    if cells.layout.xor:
        terms = (f"(o >> {shift} & {mask:#x})" for shift, mask in cells.layout.xor)
        order = " ^ ".join([f"{order}; then the offset o becomes o", *terms])
    head = [*head, order]
    numbers = "offsets" if cells.values is None else "values"
    logical = f"logical: {grid.summary}; numbers are {numbers}"
    memory = f"{what} {names}".rstrip()
    memory += "; two elements share a byte" if cells.dtype.is_packed else ""
    text = [*head, "", logical, *grid.text(), "", memory, *memory_text(table)]
    tile = ("pixel" if lines.pixels else "block") if cells.tiles else ""
    layout = cells.layout
    symbols = _symbols([table], tile, has_padding=layout.has_padding, is_swizzled=bool(layout.xor))
    return Sheet(
        head, [grid.half(logical), memory_half(table, memory)], symbols, "\n".join(text)
    ).picture()


def _symbols(
    tables: list[Table], tile: str, *, has_padding: bool = False, is_swizzled: bool = False
) -> list[str]:
    """Return the symbols of the legend; `tile` is that of blocks, `has_padding` of a grid."""
    shown = [cell for table in tables for cell in table.shown]
    is_shown = {
        "run": not is_swizzled,
        "banks": is_swizzled,
        "padding": has_padding or any(cell.is_padding for cell in shown),
        tile: bool(tile),
        "gap": any(cell.run is None for cell in shown),
        "highlight": any(cell.is_highlighted for cell in shown),
        "line": any(table.marks for table in tables),
    }
    return [symbol for symbol, is_here in is_shown.items() if is_here]


def _count(layout: Layout) -> str:
    padding = layout.padded_nelems - layout.nelems
    return f"{layout.nelems} elements" + (f" and {padding} of padding" if padding else "")


def _checked_indices(
    cells: Cells, highlight: Iterable[Iterable[int]]
) -> tuple[tuple[int, ...], ...]:
    """Return the indices to highlight; refuse any that is neither an element nor padding."""
    try:
        given = entries_of("highlight", highlight)
        indices = tuple(checked_ints("highlight", index) for index in given)
    except (TypeError, MemdescError):
        raise MemdescError(
            f"highlight {short_repr(highlight)} must be a list of indices, "
            f"such as [{(0,) * len(cells.extents)}]"
        ) from None
    for index in indices:
        check_length("highlight", index, len(cells.extents))
        for dim, (i, extent) in enumerate(zip(index, cells.extents, strict=True)):
            if not 0 <= i < extent:
                raise MemdescError(
                    f"highlight {index}: index {i} of {dim_name(dim, cells.letters)} is not in "
                    f"0 to {extent - 1}, with padding"
                )
        if cells.at(index) is None:
            raise MemdescError(
                f"highlight {index}: the layout has no such index, not even in its padding"
            )
    return indices


class Side(NamedTuple):
    """One of two memories: its cells, its caption, and the cell to draw at an offset."""

    cells: Cells
    caption: str
    at_offset: Callable[[int], Cell]

    def table(self, limits: Limits = FULL) -> Table:
        """Return the lines of the memory."""
        return lines_of(self.cells, limits).table(self.at_offset, self.cells.dtype.bits)


def draw_beside(a: Cells, b: Cells, titles: tuple[str, str]) -> Picture:
    """Draw two layouts of the same dims; the pointer shows the offset in the other one."""
    head = [f"a: {titles[0]}", f"b: {titles[1]}"]
    if not a.layout.nelems:
        return Sheet([*head, "nothing to draw"]).picture()
    names = ",".join(a.letters[dim] for dim in a.long_dims)
    captions = [f"{name}: each offset shows the index {names}".rstrip() for name in "ab"]
    left = Side(a, captions[0], lambda offset: _with_other(a, b, coloured_as(a, b, offset), "b"))
    right = Side(b, captions[1], lambda offset: _with_other(b, a, b.at_offset(offset), "a"))
    text = [*head]
    for side in (left, right):
        own = Side(side.cells, "", side.cells.at_offset)
        text += ["", side.caption, *memory_text(own.table())]
    return draw_sides(head, left, right, "\n".join(text))


def draw_sides(
    head: list[str], left: Side, right: Side, text: str, limits: Limits = FULL
) -> Picture:
    """Draw two memories under a head."""
    tables = [side.table(limits) for side in (left, right)]
    captions = left.caption, right.caption
    halves = [memory_half(*each) for each in zip(tables, captions, strict=True)]
    tile = "block" if left.cells.tiles or right.cells.tiles else ""
    return Sheet(head, halves, _symbols(tables, tile), text).picture()


def coloured_as(cells: Cells, other: Cells, offset: int) -> Cell:
    """Return the cell at an offset, with the colour that its element has in another layout."""
    cell = cells.at_offset(offset)
    index = index_at(cells.layout, offset)
    if index is None or cell.run is None or cell.is_padding:
        return cell
    target = other.at(index)
    return cell._replace(run=None if target is None else target.run)


def _with_other(cells: Cells, other: Cells, cell: Cell, name: str) -> Cell:
    """Return a cell whose hover text gives the offset in the other layout."""
    index = None if cell.run is None else index_at(cells.layout, int(cell.number))
    if index is None or cell.is_padding:
        return cell
    return cell._replace(hover=f"{cell.hover}\noffset in {name} {other.layout.offset(index)}")
