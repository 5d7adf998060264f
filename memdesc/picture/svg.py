"""SVG elements and cells as strings, and the colours and sizes of all pictures.

Cells have light tints of the Okabe-Ito colours under dark ink in both colour schemes; what is drawn
on the background follows the reader's scheme. Elements have no ids, so that a page can contain many
pictures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

from memdesc.picture.cells import Cell

# sky blue, orange, green, purple, yellow, blue, vermilion, each mixed with white
COLOURS = ("#a4d7f3", "#f4cd78", "#86d0bb", "#e6bdd4", "#f7f1a0", "#8fbfdc", "#efb38a")
INK = "#1a1a1a"  # text, edges of blocks
FAINT = "#5f6368"  # headings, notes
RULE = "#9aa0a6"  # borders and hatching of padding
ACCENT = "#d55e00"  # where a cache line starts: vermilion
HIGHLIGHT = "#b0127b"  # around highlighted elements
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"

# pixels per character by font size; characters of a monospaced font are 0.6 em wide
_CHARACTER = {11: 7, 14: 9}

# the dark scheme by class: background, text, faint text, edges, rules, missing cells, padding
_DARK = (
    ".memdesc-paper{fill:#16191d}.memdesc-ink{fill:#e8e8e8}.memdesc-faint{fill:#a0a6ad}.memdesc-edge{stroke:#e8e8e8}"
    ".memdesc-rule{stroke:#5a6169}.memdesc-none{fill:#16191d}.memdesc-void{fill:#2b3036}"
)


def element(name: str, *children: str, **attributes: object) -> str:
    """Return an element; `_` in attribute names becomes `-`, and a trailing one is dropped."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{''.join(children)}</{name}>" if children else f"<{name}{written}/>"


# text on the background follows the reader's scheme
_PLAIN = {"class_": "memdesc-ink", "fill": INK}
_FAINT = {"class_": "memdesc-faint", "fill": FAINT}
_STYLES = {"plain": _PLAIN, "faint": _FAINT, "bold": {**_PLAIN, "font_weight": "bold"}}


def label(
    x: float, y: float, content: str, *, size: int = 11, anchor: str = "start", style: str = "plain"
) -> str:
    """Return text on the background, whose style is plain, faint or bold."""
    place = {"x": f"{x:g}", "y": f"{y:g}", "font_size": size, "text_anchor": anchor}
    return element("text", escape(content, quote=False), **place, **_STYLES[style])


def edge(name: str, **attributes: object) -> str:
    """Return an element that is only an outline, such as those of blocks."""
    look = {"class_": "memdesc-edge", "fill": "none", "stroke": INK, "stroke_width": 1.5}
    return element(name, **attributes, **look)


def text_width(text: str, size: int = 11) -> int:
    """Return the width of a string in pixels, for a font size."""
    return _CHARACTER[size] * len(text)


def hatch(x: int, y: int, width: int, height: int) -> str:
    """Return diagonal lines across a rectangle, 6 pixels apart."""
    parts = []
    for start in range(6, width + height, 6):
        x0, y0 = (x + start, y) if start <= width else (x + width, y + start - width)
        x1, y1 = (x, y + start) if start <= height else (x + start - height, y + height)
        parts.append(f"M{x0} {y0}L{x1} {y1}")
    return element("path", d="".join(parts), class_="memdesc-rule", stroke=RULE, fill="none")


def document(corner: tuple[int, int], size: tuple[int, int], title: str, *children: str) -> str:
    """Return a picture with a background, given its upper left corner, its width and its height."""
    (x, y), (width, height) = corner, size
    box = {"x": x, "y": y, "width": width, "height": height}
    return element(
        "svg",
        element("title", escape(title, quote=False)),
        element("style", f"@media (prefers-color-scheme:dark){{{_DARK}}}"),
        element("rect", class_="memdesc-paper", **box, rx=6, fill="#ffffff"),
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"{x} {y} {width} {height}",
        width=width,
        height=height,
        role="img",
        font_family=FONT,
    )


# pixels of a cell without a note, around the number in it, and of the narrowest one
CELL_HEIGHT = 22
_AROUND, _NARROWEST = 8, 26


def cell_width(number: str) -> int:
    """Return the width of a cell with this number."""
    return max(_NARROWEST, text_width(number) + _AROUND)


def paint_cell(cell: Cell, x: int, y: int, size: tuple[int, int]) -> str:
    """Return a cell of size (width, height): its number, the note below it, and the hover text."""
    width, height = size
    box = {"x": x, "y": y, "width": width, "height": height}
    parts = [element("title", escape(cell.hover, quote=False))]
    ink: dict[str, str] = {"fill": INK}
    if cell.run is None:
        look = {"class_": "memdesc-rule memdesc-none", "fill": "#ffffff", "stroke": RULE}
        parts.append(element("rect", stroke_dasharray="2 2", **look, **box))
        ink = _FAINT
    elif cell.is_padding:
        look = {"class_": "memdesc-rule memdesc-void", "fill": "#f1f2f4", "stroke": RULE}
        parts += [element("rect", stroke_width=0.5, **look, **box), hatch(x, y, width, height)]
        ink = _PLAIN
    else:
        look = {"fill": COLOURS[_colour(cell.run)], "stroke": "#ffffff"}
        parts.append(element("rect", stroke_width=0.5, **look, **box))
    middle = f"{x + width / 2:g}"
    base = f"{y + 12 if cell.note else y + height / 2 + 4:g}"
    texts = ((cell.number, base), (cell.note, f"{y + height - 5}"))
    parts += [
        element("text", escape(text), x=middle, y=at, font_size=11, **ink)
        for text, at in texts
        if text
    ]
    if cell.is_highlighted:
        inner = {"x": x + 1.5, "y": y + 1.5, "width": width - 3, "height": height - 3}
        parts.append(element("rect", fill="none", stroke=HIGHLIGHT, stroke_width=3, **inner))
    return element("g", *parts, class_="memdesc-cell", text_anchor="middle")


def _colour(run: int) -> int:
    # shifted by one in each round, so that rows of 7, 14, 28 or 56 runs do not form columns
    return (run + run // len(COLOURS)) % len(COLOURS)


# the colours in the same order as those of 256 that terminals have, and an escape sequence
_TERMINAL = (153, 222, 115, 182, 229, 110, 216)
_ESCAPE = re.compile("\x1b\\[[0-9;]*m")


def terminal(cell: Cell | None, text: str) -> str:
    """Return the text of a cell in the colour that it has in the picture."""
    if cell is None or cell.run is None:
        return text
    colour = "2" if cell.is_padding else f"38;5;16;48;5;{_TERMINAL[_colour(cell.run)]}"
    return f"\x1b[{colour}m{text}\x1b[0m"


def plain(text: str) -> str:
    """Return text without the colours of a terminal."""
    return _ESCAPE.sub("", text)


def outline(
    cells: Mapping[tuple[int, int], Cell], xs: list[int], ys: list[int], size: tuple[int, int]
) -> str:
    """Return the edges of blocks of cells, given the cells by column and row."""
    width, height = size
    lines: dict[str, None] = {}
    for (column, row), cell in cells.items():
        x, y = xs[column], ys[row]
        for neighbour, line in (
            ((column - 1, row), f"M{x} {y}v{height}"),
            ((column + 1, row), f"M{x + width} {y}v{height}"),
            ((column, row - 1), f"M{x} {y}h{width}"),
            ((column, row + 1), f"M{x} {y + height}h{width}"),
        ):
            other = cells.get(neighbour)
            if cell.tile is not None and (other is None or other.tile != cell.tile):
                lines[line] = None
    return edge("path", d="".join(lines)) if lines else ""
