"""Pictures as SVG and as HTML, and the colours and sizes of all of them.

Halves are side by side in an SVG, or below each other on a narrow HTML page. The HTML has no
script, so notebooks and pages show it as it is. What does not fit scrolls, and a shadow marks the
edge that hides something.

Cells have light tints of the Okabe-Ito colours under dark ink in both colour schemes; what is drawn
on the background follows the reader's scheme. Elements have no ids, so that a page can contain many
pictures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from types import MappingProxyType

from memdesc.picture.cells import CACHE_LINE, Cell
from memdesc.tuples import NamedTuple

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


# Pixels: around the picture and between its halves; height of a line of the head, of a caption, of
# the legend.
_MARGIN, _BETWEEN, _HEAD_LINE, _CAPTION, _LEGEND = 16, 36, 18, 28, 22
# Pixels left of a half, right of it and above it, if it is a picture of its own.
_LEFT, _RIGHT, _ABOVE = 6, 22, 4
# characters; longer lines are cut
_MAX_TITLE = 100
# Pixels: size of a symbol in the legend.
_SYMBOL = (28, 18)

# symbol of the legend -> what it means
MEANINGS = MappingProxyType(
    {
        "run": "one colour: one run of memory",
        "banks": "one colour: four of the 32 banks of shared memory",
        "field": "one colour: one field",
        "padding": "padding, holds zeros",
        "block": "block",
        "pixel": "pixel",
        "gap": "no element",
        "highlight": "highlighted",
        "line": f"cache line of {CACHE_LINE} bytes starts",
    }
)


@cache
def _style() -> str:
    """Return the style of a fragment, in which an `::after` covers the shadow of the last edge."""
    css = (files("memdesc.picture") / "figure.css").read_text(encoding="utf-8")
    return css.replace("\n", "").replace("{font}", FONT)


class Drawing(NamedTuple):
    """SVG elements that start at (0, 0), and how many pixels they need."""

    caption: str
    width: int
    height: int
    parts: list[str]


def svg_of(head: list[str], halves: list[Drawing], symbols: list[str]) -> str:
    """Return the halves side by side under the head lines, the legend below them."""
    head = [line if len(line) <= _MAX_TITLE else f"{line[: _MAX_TITLE - 1]}…" for line in head]
    lines = [label(_MARGIN, _MARGIN + 14, head[0], size=14, style="bold")]
    lines += [
        label(_MARGIN, _MARGIN + 14 + _HEAD_LINE * k, line) for k, line in enumerate(head) if k
    ]
    left, top = _MARGIN, _MARGIN + _HEAD_LINE * len(head)
    right = left + max(text_width(head[0], 14), *map(text_width, head))
    bottom = top
    for half in halves:
        place = f"translate({left} {top + _CAPTION})"
        lines.append(label(left, top + _CAPTION - 10, half.caption, style="faint"))
        lines.append(element("g", *half.parts, transform=place))
        end = left + max(half.width, text_width(half.caption))
        left, right = end + _BETWEEN, max(right, end)
        bottom = max(bottom, top + _CAPTION + half.height)
    if symbols:
        x, y = _MARGIN, bottom + _HEAD_LINE
        for symbol in symbols:
            meaning = MEANINGS[symbol]
            lines += [_symbol(symbol, x, y), label(x + 34, y + 13, meaning, style="faint")]
            x += 58 + text_width(meaning)
        right = max(right, x)
        bottom += _HEAD_LINE + _LEGEND
    return document((0, 0), (right + _MARGIN, bottom + _MARGIN), head[0], *lines)


def fragment_of(head: list[str], halves: list[Drawing], symbols: list[str]) -> str:
    """Return the halves as HTML, below each other on a narrow page."""
    title, *more = (escape(line, quote=False) for line in head)
    caption = "<br>".join([f"<strong>{title}</strong>", *more])
    legend = "".join(
        f"<span>{document((0, 0), _SYMBOL, MEANINGS[symbol], _symbol(symbol, 0, 0))}"
        f"{escape(MEANINGS[symbol], quote=False)}</span>"
        for symbol in symbols
    )
    return (
        f'<figure class="memdesc-figure"><style>{_style()}</style><figcaption>{caption}'
        f'</figcaption><div class="memdesc-halves">{"".join(map(_half_html, halves))}</div>'
        f'<div class="memdesc-legend">{legend}</div></figure>'
    )


def _half_html(half: Drawing) -> str:
    size = half.width + _LEFT + _RIGHT, half.height + _ABOVE + _LEFT
    return (
        f'<div class="memdesc-half">{escape(half.caption, quote=False)}<div class="memdesc-scroll">'
        f'<div class="memdesc-sheet" style="flex:0 0 {size[0]}px">'
        f"{document((-_LEFT, -_ABOVE), size, half.caption, *half.parts)}</div></div></div>"
    )


def _symbol(symbol: str, x: int, y: int) -> str:
    """Return a symbol for the legend: a mark, an outline or a cell."""
    width, height = _SYMBOL
    if symbol == "line":
        return element("path", d=f"M{x + width // 2} {y}v{height}", stroke=ACCENT, stroke_width=3.5)
    if symbol in {"block", "pixel"}:
        return edge("rect", x=x + 1, y=y + 1, width=width - 2, height=height - 2)
    run = None if symbol == "gap" else 0
    cell = Cell("", "", MEANINGS[symbol], run, None, symbol == "padding", symbol == "highlight")
    return paint_cell(cell, x, y, _SYMBOL)
