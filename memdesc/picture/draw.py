"""A whole picture: what it is, the logical grid, the memory, and what the signs mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdesc.errors import MemdescError, short_repr
from memdesc.picture.cells import Cell, cells_of, digits
from memdesc.picture.grid import arrange
from memdesc.picture.memory import CACHE_LINE, Strip, lines_of, pixel_lines
from memdesc.picture.paint import paint_cell
from memdesc.picture.panels import Panels
from memdesc.picture.picture import Picture
from memdesc.picture.svg import ACCENT, document, element, label
from memdesc.picture.text import grid_text, memory_text
from memdesc.tags import LETTERS

if TYPE_CHECKING:
    from memdesc.dtypes import DataType
    from memdesc.layout import Layout
    from memdesc.picture.cells import Cells
    from memdesc.picture.memory import Lines

__all__ = ["draw_image", "draw_layout", "frame", "legend"]

_MARGIN, _BETWEEN = 16, 36
_MAX_TITLE = 100


def draw_layout(
    layout: Layout, dtype: DataType, title: str, nbytes: tuple[int, int], letters: str = LETTERS
) -> Picture:
    """Draw a layout of a buffer.

    Parameters
    ----------
    layout, dtype
        What lies there.
    title : str
        What the picture is called.
    nbytes : (int, int)
        Bytes of the buffer, and those of them that are compensation behind the elements.
    letters : str
        What the dims are called, one letter each.

    Raises
    ------
    MemdescError
        If there are not as many letters as dims, or one of them stands twice.
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
    """Draw an image as its pixels; arguments as `draw_layout`, `pixels` being its width and its channels."""
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
    logical = f"logical: {grid.words}; numbers are offsets"
    memory = f"{what} {names}".rstrip() + (
        "; two elements share a byte" if cells.dtype.is_packed else ""
    )
    text = "\n".join([*head, "", logical, *grid_text(grid), "", memory, *memory_text(cells, lines)])

    top = _MARGIN + 18 * len(head) + 28
    panels = Panels(grid, _MARGIN, top, max(26, 7 * len(str(cells.layout.last)) + 8))
    left = max(panels.right, _MARGIN + 7 * len(logical) - 20) + _BETWEEN
    strip = Strip(lines, cells.at_offset, cells.dtype.bits, left, top)
    signs = ["run"]
    signs += ["padding"] if cells.layout.has_padding else []
    signs += ["pixel" if lines.lanes else "block"] if cells.tiles else []
    signs += ["gap"] if any(cell.run is None for row in strip.cells for cell in row) else []
    end = max(panels.bottom, strip.bottom) + 18
    signs += ["line"] if strip.marks else []
    signs_parts, right = legend(signs, end)
    parts = [
        label(_MARGIN, top - 10, logical, faint=True),
        label(left, top - 10, memory, faint=True),
    ]
    size = max(strip.right, left + 7 * len(memory), right), end + 22
    return Picture(frame(head, [*parts, *panels.paint(), *strip.paint(), *signs_parts], size), text)


def frame(head: list[str], parts: list[str], end: tuple[int, int]) -> str:
    """Return a picture under its head lines, large enough for parts that end there."""
    head = [line if len(line) <= _MAX_TITLE else f"{line[: _MAX_TITLE - 1]}…" for line in head]
    written = [label(_MARGIN, _MARGIN + 14, head[0], size=14, bold=True)]
    written += [label(_MARGIN, _MARGIN + 14 + 18 * k, line) for k, line in enumerate(head) if k]
    width = (
        max(end[0], _MARGIN + 9 * len(head[0]), *(_MARGIN + 7 * len(line) for line in head))
        + _MARGIN
    )
    return document(
        width, max(end[1], _MARGIN + 18 * len(head)) + _MARGIN, head[0], *written, *parts
    )


def legend(signs: list[str], y: int) -> tuple[list[str], int]:
    """Return what signs mean, and where the last one ends."""
    x = _MARGIN
    parts: list[str] = []
    words = {
        "run": "one colour: one run of memory",
        "padding": "padding, holds zeros",
        "block": "block",
        "pixel": "pixel",
        "gap": "no element",
        "line": f"cache line of {CACHE_LINE} bytes starts",
    }
    for sign in signs:
        if sign == "line":
            parts.append(element("path", d=f"M{x + 14} {y}v18", stroke=ACCENT, stroke_width=3.5))
        elif sign in {"block", "pixel"}:
            box = {"x": x, "y": y, "width": 28, "height": 18}
            parts.append(
                element(
                    "rect",
                    class_="memdesc-edge",
                    fill="none",
                    stroke="#1a1a1a",
                    stroke_width=1.5,
                    **box,
                )
            )
        else:
            parts.append(
                paint_cell(
                    Cell(
                        "", "", words[sign], None if sign == "gap" else 0, None, sign == "padding"
                    ),
                    x,
                    y,
                    (28, 18),
                )
            )
        parts.append(label(x + 34, y + 13, words[sign], size=10, faint=True))
        x += 58 + 6 * len(words[sign])
    return parts, x


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
        msg = (
            f"letters {short_repr(letters)} must name {layout.ndims} dims, "
            "each by a letter of its own"
        )
        raise MemdescError(msg)
