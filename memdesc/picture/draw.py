"""A whole picture: title, logical grid, memory, legend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc.errors import MemdescError, short_repr
from memdesc.picture.cells import Cell, cells_of, digits
from memdesc.picture.grid import arrange
from memdesc.picture.memory import CACHE_LINE, Strip, lines_of, pixel_lines
from memdesc.picture.paint import paint_cell
from memdesc.picture.panels import Panels
from memdesc.picture.picture import Picture
from memdesc.picture.svg import ACCENT, document, edge, element, label, text_width
from memdesc.picture.text import grid_text, memory_text
from memdesc.tags import LETTERS

if TYPE_CHECKING:
    from memdesc.dtypes import DataType
    from memdesc.layout import Layout
    from memdesc.picture.cells import Cells
    from memdesc.picture.memory import Lines

__all__ = ["draw_image", "draw_layout", "frame", "legend"]

# Pixels: around the picture, between grid and memory, of a line of the head.
_MARGIN, _BETWEEN, _HEAD_LINE = 16, 36, 18
# characters; the rest of a longer line is left out
_MAX_TITLE = 100

# sign of the legend -> what it means
_MEANINGS = {
    "run": "one colour: one run of memory",
    "padding": "padding, holds zeros",
    "block": "block",
    "pixel": "pixel",
    "gap": "no element",
    "line": f"cache line of {CACHE_LINE} bytes starts",
}


def draw_layout(
    layout: Layout, dtype: DataType, title: str, nbytes: tuple[int, int], letters: str = LETTERS
) -> Picture:
    """Draw a layout of a buffer.

    Parameters
    ----------
    layout, dtype
        Of the elements.
    title : str
        The first line of the picture.
    nbytes : (int, int)
        Bytes of the buffer, and those of them that are compensation behind the elements.
    letters : str
        The names of the dims, one letter each.

    Raises
    ------
    MemdescError
        If the letters are not one for each dim, all different.
    """
    _check_letters(layout, letters)
    whole, behind = nbytes
    n_lines = -(-whole // CACHE_LINE)
    size = f"{whole} bytes in {n_lines} cache line{'s' if n_lines != 1 else ''}"
    head = [
        title,
        f"{_count(layout)}, {size}"
        + (f", the last {behind} of them compensation" if behind else ""),
    ]
    if not layout.nelems:
        head.append("nothing to draw")
        return Picture(frame(head, [], (0, 0)), "\n".join(head))
    cells = cells_of(layout, dtype, letters)
    return _picture(cells, lines_of(cells), head, "memory: at each offset the index")


def draw_image(
    layout: Layout, dtype: DataType, title: str, pixels: tuple[int, int], letters: str = LETTERS
) -> Picture:
    """Draw an image as pixels; as `draw_layout`, with (width, channels) of the image."""
    _check_letters(layout, letters)
    cells = cells_of(layout, dtype, letters, pixels)
    lines = pixel_lines(cells, *pixels)
    width, channels = pixels
    size = (
        f"{width} x {(layout.last + 1) // (width * channels)} pixels of {channels} "
        f"channel{'s' if channels != 1 else ''}"
    )
    return _picture(
        cells,
        lines,
        [title, f"{_count(layout)}, {size}"],
        "image: in each lane the offset and the index",
    )


def _picture(cells: Cells, lines: Lines, head: list[str], what: str) -> Picture:
    grid = arrange(cells)
    names = ",".join(cells.letters[dim] for dim in cells.long_dims)
    head = [*head, f"memory order, outermost first: {digits(cells.layout, cells.letters)}"]
    logical = f"logical: {grid.summary}; numbers are offsets"
    memory = f"{what} {names}".rstrip() + (
        "; two elements share a byte" if cells.dtype.is_packed else ""
    )
    text = "\n".join([*head, "", logical, *grid_text(grid), "", memory, *memory_text(cells, lines)])

    top = _MARGIN + _HEAD_LINE * len(head) + 28
    panels = Panels(grid, _MARGIN, top, max(26, text_width(str(cells.layout.last)) + 8))
    left = max(panels.right, _MARGIN + text_width(logical) - 20) + _BETWEEN
    strip = Strip(lines, cells.at_offset, cells.dtype.bits, left, top)
    signs = ["run"]
    signs += ["padding"] if cells.layout.has_padding else []
    signs += ["pixel" if lines.lanes else "block"] if cells.tiles else []
    signs += ["gap"] if any(cell.run is None for row in strip.cells for cell in row) else []
    end = max(panels.bottom, strip.bottom) + 18
    signs += ["line"] if strip.marks else []
    signs_parts, right = legend(signs, end)
    parts = [
        label(_MARGIN, top - 10, logical, style="faint"),
        label(left, top - 10, memory, style="faint"),
    ]
    size = max(strip.right, left + text_width(memory), right), end + 22
    return Picture(frame(head, [*parts, *panels.paint(), *strip.paint(), *signs_parts], size), text)


def frame(head: list[str], parts: list[str], end: tuple[int, int]) -> str:
    """Return the SVG of a picture: its head, and parts whose lower right corner is `end`."""
    head = [line if len(line) <= _MAX_TITLE else f"{line[: _MAX_TITLE - 1]}…" for line in head]
    lines = [label(_MARGIN, _MARGIN + 14, head[0], size=14, style="bold")]
    lines += [
        label(_MARGIN, _MARGIN + 14 + _HEAD_LINE * k, line) for k, line in enumerate(head) if k
    ]
    widths = [text_width(head[0], 14), *(text_width(line) for line in head)]
    width = max(end[0], _MARGIN + max(widths)) + _MARGIN
    height = max(end[1], _MARGIN + _HEAD_LINE * len(head)) + _MARGIN
    return document(width, height, head[0], *lines, *parts)


def legend(signs: list[str], y: int) -> tuple[list[str], int]:
    """Return the signs of `_MEANINGS` beside their meanings, and where the last one ends."""
    x = _MARGIN
    parts: list[str] = []
    for sign in signs:
        meaning = _MEANINGS[sign]
        parts += [_sign(sign, x, y), label(x + 34, y + 13, meaning, size=10, style="faint")]
        x += 58 + text_width(meaning, 10)
    return parts, x


def _sign(sign: str, x: int, y: int) -> str:
    """Return a sign of the legend: a mark, an outline or a cell, 28 pixels wide."""
    if sign == "line":
        return element("path", d=f"M{x + 14} {y}v18", stroke=ACCENT, stroke_width=3.5)
    if sign in {"block", "pixel"}:
        return edge("rect", x=x, y=y, width=28, height=18)
    run = None if sign == "gap" else 0
    cell = Cell("", "", _MEANINGS[sign], run, None, is_padding=sign == "padding")
    return paint_cell(cell, x, y, (28, 18))


def _count(layout: Layout) -> str:
    padding = layout.padded_nelems - layout.nelems
    return f"{layout.nelems} elements" + (f" and {padding} of padding" if padding else "")


def _check_letters(layout: Layout, letters: str) -> None:
    if letters == LETTERS:
        return
    if (
        not isinstance(letters, str)
        or len(letters) != layout.ndims
        or len(set(letters)) != layout.ndims
    ):
        msg = f"letters {short_repr(letters)} must name {layout.ndims} dims, each by another letter"
        raise MemdescError(msg)
